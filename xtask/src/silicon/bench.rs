// SPDX-License-Identifier: MIT OR Apache-2.0
//! What `./x bench silicon` measures from outside the guest: whether two runs are equal to the bit,
//! how fast the machine is beside stock Bochs, what profiles are worth, and what the experiments
//! measure.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use testbed::{Emulator, Outcome, Step};

use crate::lab::Lab;
use crate::results::{Baseline, BenchResult, Better, Outside, exact};
use crate::silicon::{GROUP, batch, experiment, nginx, profile, recorded, results};

/// The machine of both.
const CPU: &str = "xeon-gold-6130";
/// CPUs of the guests.
const CPUS: u32 = 4;
/// For boot and load.
const LIMIT: Duration = Duration::from_secs(300);

/// Million instructions of each CPU's load. Long beside what the guest does before and after it.
const MILLION_INSNS: u32 = 500;

/// TLS by nginx: key exchange, random numbers, network, many wake-ups.
const TLS: &str = r#"
set -e
mkdir /tmp/tls
cd /tmp/tls
seq 20000 >file.txt
openssl req -x509 -nodes -subj /CN=silicon -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 \
    -keyout key.pem -out cert.pem 2>/dev/null
cat >nginx.conf <<END
worker_processes 4;
events { }
http {
    access_log off;
    server {
        listen 127.0.0.1:8443 ssl;
        root /tmp/tls;
        ssl_certificate /tmp/tls/cert.pem;
        ssl_certificate_key /tmp/tls/key.pem;
    }
}
END
nginx -c /tmp/tls/nginx.conf
for i in 1 2 3 4 5 6 7 8; do
    curl -skf https://127.0.0.1:8443/file.txt | cksum
done
cksum cert.pem
nginx -c /tmp/tls/nginx.conf -s stop
cat /proc/uptime
"#;

/// All of them.
pub(crate) const OUTSIDE: [Outside; 6] = [
    Outside { group: GROUP, name: "deterministic", measure: deterministic },
    Outside { group: GROUP, name: "mips", measure: mips },
    Outside { group: GROUP, name: "point", measure: point },
    Outside { group: GROUP, name: "profile", measure: profile::measure },
    Outside { group: GROUP, name: "experiments", measure: experiments },
    Outside { group: "predict", name: "recorded-service", measure: recorded::measure },
];

/// What `./x silicon` measures, and what is a figure of all experiments together.
fn experiments(lab: &Lab) -> Result<Vec<BenchResult>> {
    let server = |server| experiment::measure(lab, nginx::planned(server, None, false), true);
    let (small, twelve) = (server(&nginx::SMALL)?, server(&nginx::TWELVE)?);
    let batch = experiment::measure(lab, batch::planned(batch::MS, false), true)?;
    let mut results = results::nginx(&small, nginx::SMALL.figures);
    results.extend(results::separation(&small));
    results.extend(results::nginx(&twelve, nginx::TWELVE.figures));
    results.extend(results::batch(&batch));
    let all = [&small, &twelve, &batch];
    results.extend(results::worst(&all));
    results.push(results::sim_error(&all));
    Ok(results)
}

fn run(lab: &Lab, is_silicon: bool, command: &[&str]) -> Result<Outcome> {
    let guest = lab.guest("").cpus(CPUS).limit(LIMIT);
    let guest = if is_silicon {
        guest.silicon(super::machine(CPU, CPUS, "")?)
    } else {
        guest.emulator(Emulator::Bochs)
    };
    let outcome = guest.run(command)?;
    ensure!(outcome.exit_code() == 0, "{}\n{}", outcome.summary(), outcome.stderr);
    Ok(outcome)
}

/// Two boots and runs of nginx: what the guest printed, its kernel's log and the machine's log.
fn deterministic(lab: &Lab) -> Result<Vec<BenchResult>> {
    let step = Step::start("silicon: two equal runs");
    let seen = || -> Result<_> {
        let outcome = run(lab, true, &["sh", "-c", TLS])?;
        let log = outcome.silicon_log().context("the machine left no log")?;
        let log = std::fs::read(log).context("the machine's log cannot be read")?;
        Ok((log, outcome.stdout, outcome.kernel_log))
    };
    let (first, second) = (seen()?, seen()?);
    step.done();
    let equal = if first == second { 1.0 } else { 0.0 };
    Ok(vec![exact("silicon.deterministic", equal, "1 if equal", 2, Better::Higher)])
}

/// How long one point of the web server's experiment takes, with boot.
fn point(lab: &Lab) -> Result<Vec<BenchResult>> {
    let step = Step::start("silicon: a point of nginx");
    let outcome = run(lab, true, &["vmtests", "nginx", "wide", "300"])?;
    step.done();
    let cpu_s = outcome.command_cpu_s.context("no CPU time of the emulator")?;
    println!("CPU time of the emulator without the boot: {cpu_s:.1} s");
    Ok(vec![exact("silicon.point_s", outcome.total_s, "s", 1, Better::Lower)])
}

/// Guest instructions per second of the emulator's CPU time, all CPUs busy.
fn mips(lab: &Lab) -> Result<Vec<BenchResult>> {
    let million = MILLION_INSNS.to_string();
    let speed = |is_silicon| -> Result<f64> {
        let name = if is_silicon { "silicon: speed" } else { "silicon: speed of stock Bochs" };
        let step = Step::start(name);
        let load = ["vmtests", "silicon-mix", &CPUS.to_string(), &million];
        let outcome = run(lab, is_silicon, &load)?;
        step.done();
        let cpu_s = outcome.command_cpu_s.context("no CPU time of the emulator")?;
        Ok(f64::from(CPUS * MILLION_INSNS) / cpu_s)
    };
    let (ours, stock) = (speed(true)?, speed(false)?);
    let baseline = Baseline { name: "stock Bochs".to_owned(), value: stock };
    let mut result = exact("silicon.mips", ours, "MIPS", 1, Better::Higher);
    result.baseline = Some(baseline);
    Ok(vec![result])
}
