// SPDX-License-Identifier: MIT OR Apache-2.0
//! `turbolane sample` on a machine with dim silicon: whether it says who executes wide code, and
//! what it costs. The load (`c/shares.c`) has a CPU to itself and knows how long it was in each of
//! its functions. Time is virtual.
//!
//! | figure | what |
//! |---|---|
//! | `sample.attribution_error_pct` | of the time in functions with wide code: how far the share of a function is from the truth, the worst of three functions, in points |
//! | `sample.overhead_pct` | by how much longer a call of its scalar function takes while it is sampled |

use std::collections::BTreeMap;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use report::sample::SampleReport;

use crate::guest::{install, nr_cpus, set_affinity};
use crate::lane::TURBOLANE;
use crate::measure::{Figure, publish};
use crate::silicon::ask_for_full_clock;

/// Its function without wide code.
const PLAIN: &str = "plain";
const PROGRAM: &str = "/tmp/shares";
/// Its CPU; who samples is elsewhere.
const CPU: &str = "1";
/// Samplings, and how long each takes: 600 samples of the load.
const RUNS: usize = 3;
const TIME: Duration = Duration::from_millis(600);

/// What the load says of itself: by function the ns in it, and its calls.
struct Truth(BTreeMap<String, (f64, f64)>);

impl Truth {
    /// A call of the scalar function takes so long.
    fn plain_ns(&self) -> Result<f64> {
        let (ns, calls) = self.0.get(PLAIN).context("no scalar function")?;
        Ok(ns / calls)
    }
}

/// See the head.
pub fn run() -> Result<()> {
    install(PROGRAM, include_bytes!(concat!(env!("OUT_DIR"), "/shares")))?;
    // else the first run is slower, until the governor knows the load
    (0..nr_cpus()).try_for_each(ask_for_full_clock)?;
    set_affinity(0, &[0])?;
    let (mut errors, mut costs) = (Vec::new(), Vec::new());
    for _ in 0..RUNS {
        let (alone, ()) = beside(|| {
            sleep(TIME);
            Ok(())
        })?;
        let (sampled, report) = beside(sample)?;
        errors.push(error_points(&sampled, &report)?);
        let (alone_ns, sampled_ns) = (alone.plain_ns()?, sampled.plain_ns()?);
        println!("{alone_ns:.0} ns a call, {sampled_ns:.0} while sampled");
        costs.push(100.0 * (sampled_ns / alone_ns - 1.0));
    }
    publish(
        "sample",
        &[
            Figure::of("sample.attribution_error_pct", "points", "lower", &errors)?,
            Figure::of("sample.overhead_pct", "%", "lower", &costs)?,
        ],
    )
}

fn sample() -> Result<SampleReport> {
    let time = format!("{}ms", TIME.as_millis());
    let done =
        Command::new(TURBOLANE).args(["sample", "--for", &time, "--format", "json"]).output()?;
    let said = String::from_utf8_lossy(&done.stdout);
    SampleReport::parse(&said).map_err(|error| {
        anyhow::anyhow!("sample: {error}: {}", String::from_utf8_lossy(&done.stderr))
    })
}

/// What the load did while something else was done, and what came of that.
fn beside<T>(what: impl FnOnce() -> Result<T>) -> Result<(Truth, T)> {
    let load = Command::new(PROGRAM).arg(CPU).stdout(Stdio::piped()).spawn()?;
    let done = what();
    Ok((truth(load)?, done?))
}

/// Ends the load, and asks it.
fn truth(load: Child) -> Result<Truth> {
    // SAFETY: a child of ours that was not waited for.
    unsafe { libc::kill(load.id() as i32, libc::SIGTERM) };
    let done = load.wait_with_output()?;
    ensure!(done.status.success(), "shares: {}", done.status);
    let said = String::from_utf8(done.stdout)?;
    let mut functions = BTreeMap::new();
    for line in said.lines() {
        let mut words = line.split(' ');
        let mut word = || words.next().context("a name and two numbers");
        let function = functions.entry(word()?.to_owned()).or_insert((0.0, 0.0));
        function.0 += word()?.parse::<f64>()?;
        function.1 += word()?.parse::<f64>()?;
    }
    Ok(Truth(functions))
}

/// How far the worst share of wide time is off, in points.
fn error_points(truth: &Truth, report: &SampleReport) -> Result<f64> {
    let functions = truth.0.iter().map(|(name, (ns, _))| (name.as_str(), *ns));
    let wide: Vec<(&str, f64)> = functions.filter(|(name, _)| *name != PLAIN).collect();
    let all_ns: f64 = wide.iter().map(|(_, ns)| ns).sum();
    let ours = || report.offenders.iter().filter(|offender| offender.process == "shares");
    let all: u64 = ours().map(|offender| offender.samples).sum();
    ensure!(all > 100, "{all} samples in wide code: {report:?}");
    let error = |(name, ns): &(&str, f64)| {
        let found = ours().filter(|offender| offender.function == *name);
        let samples: u64 = found.map(|offender| offender.samples).sum();
        let (said, is) = (samples as f64 / all as f64, ns / all_ns);
        println!("{name}: {:.1} % of wide time, sampled {:.1} %", 100.0 * is, 100.0 * said);
        100.0 * (said - is).abs()
    };
    Ok(wide.iter().map(error).fold(0.0, f64::max))
}
