// SPDX-License-Identifier: MIT OR Apache-2.0
//! Group `sim`: the simulator's own speed, and how much the fuzzer checks. On this machine, no
//! guest.
//!
//! CPU time counts, not wall time: what else runs on the machine does not. A repetition is about a
//! tenth of a second or more.
//!
//! The fuzzer runs for a minute, from seed 0; `TURBOLANE_FUZZ_S=SECONDS ./x bench sim` for as long
//! as that says, and `TURBOLANE_FUZZ_SEED=N` from another seed, so that hours on several machines
//! check different cases. A violation is printed with its seed, counted, and the run goes on.

use std::time::Instant;

use ::sim::crowd::run_crowd;
use ::sim::engine::Options;
use ::sim::fuzz::run_case;
use ::sim::policy_spec::simulate;
use ::sim::scenario::Scenario;
use anyhow::{Context, Result, ensure};
use cpumodel::{CpuModel, Platform};

use crate::measure::{Figure, publish};

/// Sizes of the table; the bars are at 64 and at 1,024.
const CPUS: [usize; 5] = [4, 16, 64, 256, 1024];
/// Repetitions.
const N: usize = 7;
/// Events of a repetition, about.
const EVENTS: u64 = 1_000_000;
/// Environment variable: how long the fuzzer runs, s. Hours are for whoever asks.
const FUZZ_S: &str = "TURBOLANE_FUZZ_S";
/// The first seed.
const FUZZ_SEED: &str = "TURBOLANE_FUZZ_SEED";

/// Measure and publish.
pub fn run() -> Result<()> {
    let mut figures = Vec::new();
    for nr_cpus in CPUS {
        figures.push(events_per_s(nr_cpus)?);
    }
    figures.push(nginx_s()?);
    figures.extend(fuzz()?);
    publish("sim", &figures)
}

/// CPU time of this thread's process, s.
pub(super) fn cpu_s() -> f64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel writes one timespec, which is ours.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &mut now) };
    now.tv_sec as f64 + now.tv_nsec as f64 / 1e9
}

fn events_per_s(nr_cpus: usize) -> Result<Figure> {
    let mut engine = ::sim::stress::engine(nr_cpus);
    let mut rates = Vec::new();
    // the first fills tables and caches
    for repetition in 0..=N {
        let (events, at_s) = (engine.nr_events(), cpu_s());
        while engine.nr_events() - events < EVENTS {
            let until_ns = engine.now_ns() + 1_000_000;
            ::sim::stress::run_until(&mut engine, until_ns).context("the load runs for ever")?;
        }
        if repetition > 0 {
            rates.push((engine.nr_events() - events) as f64 / (cpu_s() - at_s));
        }
    }
    Figure::of(&format!("sim.events_per_s.cpus_{nr_cpus}"), "1/s", "higher", &rates)
}

/// Ten simulated seconds of the web server of THESIS 5.2 on 28 CPUs.
fn nginx_s() -> Result<Figure> {
    let scenario = Scenario::built_in("thesis-nginx").context("it is built in")??;
    let model = CpuModel::built_in(&scenario.machine).context("it is built in")??;
    let platform = Platform::new(&model);
    let spec = "lane:wide=1,detect=trap,remigrate=syscall-return".parse()?;
    let mut times = Vec::new();
    for seed in 1..=3 {
        let workload = scenario.workload(None).context("every scenario has one")?.clone();
        let options = Options { seed, duration_ns: 10_000_000_000, ..Default::default() };
        let at_s = cpu_s();
        simulate(&platform, scenario.packages, workload, &spec, options, None)?;
        times.push(cpu_s() - at_s);
    }
    Figure::of("sim.nginx_wall_s", "s", "lower", &times)
}

/// A number from the environment.
fn asked(variable: &str, default: u64) -> Result<u64> {
    match std::env::var(variable) {
        Ok(text) => text.parse().with_context(|| format!("{variable}={text} is no number")),
        Err(_) => Ok(default),
    }
}

fn fuzz() -> Result<[Figure; 2]> {
    let (seconds, first) = (asked(FUZZ_S, 60)?, asked(FUZZ_SEED, 0)?);
    let begun = Instant::now();
    let (mut cases, mut decisions, mut violations) = (0, 0, 0);
    while begun.elapsed().as_secs() < seconds {
        let seed = first + cases;
        match if seed % 16 == 15 { run_crowd(seed, None) } else { run_case(seed, None) } {
            Ok(checked) => decisions += checked.decisions,
            Err(failure) => {
                println!("{failure}");
                violations += 1;
            }
        }
        cases += 1;
    }
    ensure!(cases > 0, "{FUZZ_S}=0 leaves no time to check anything");
    let value = decisions as f64;
    let checked = Figure {
        name: "fuzz.decisions_checked".into(),
        value,
        unit: "decisions",
        better: "higher",
        n: cases,
        min: value,
        max: value,
        baseline: None,
    };
    let mut broken = Figure::count("fuzz.violations", violations, cases);
    broken.unit = "cases";
    Ok([checked, broken])
}
