// SPDX-License-Identifier: MIT OR Apache-2.0
//! The overhead profiler (DIM 7.2.1) judged by the machine's own log: `turbolane profile --pid`
//! says for which part of a load's time the clock was low, and which part of that was avoidable;
//! the machine wrote down both, in a stretch in which the load was not disturbed.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use silicon::{CpuTotals, Log};
use testbed::Step;

use crate::lab::Lab;
use crate::results::{BenchResult, Better, exact};

/// The CPU, and how many of them: the load's and the profiler's.
const CPU: &str = "xeon-gold-6130";
const CPUS: u32 = 2;
/// The CPU of the load in the guest.
const LOAD_CPU: usize = 1;
/// For boot and all profiles.
const LIMIT: Duration = Duration::from_secs(600);

/// What the profiler says of a load, as `tests/vm/src/silicon_profile.rs` leaves it.
#[derive(Debug, Deserialize)]
struct Profile {
    load: String,
    /// The first of its two marks; the second is one more.
    mark: u32,
    reduced_pct: Option<f64>,
    avoidable_pct: Option<f64>,
}

/// The truth about a load.
#[derive(Debug, PartialEq)]
struct Truth {
    reduced_pct: f64,
    /// Nothing if the clock was never low.
    avoidable_pct: Option<f64>,
}

/// How far the profiler is off: the worst share of all loads, percentage points.
pub(crate) fn measure(lab: &Lab) -> Result<Vec<BenchResult>> {
    let step = Step::start("silicon: profiles");
    let guest = lab.guest("").silicon(super::machine(CPU, CPUS, "")?).cpus(CPUS);
    let guest = guest.limit(LIMIT).env("TURBOLANE_OUT", "/out");
    let outcome = guest.run(&["vmtests", "silicon-profile"])?;
    ensure!(outcome.is_clean(), "{}\n{}", outcome.summary(), outcome.stderr);
    step.done();
    let log = outcome.silicon_log().context("the machine left no log")?;
    let log = std::fs::read_to_string(log).context("the machine's log cannot be read")?;
    let profiles = std::fs::read_to_string(outcome.out_dir().join("profiles.json"))
        .context("the guest left no profiles.json")?;
    let profiles: Vec<Profile> = serde_json::from_str(&profiles).context("profiles.json")?;
    let log = Log::parse(&log)?;
    let mut errors = Vec::new();
    for profile in &profiles {
        let truth = truth(&log, profile.mark)
            .with_context(|| format!("no stretch of the load {}", profile.load))?;
        println!("{profile:?}, {truth:?}");
        errors.extend(errors_points(profile, &truth)?);
    }
    let worst = errors.iter().copied().fold(0.0, f64::max);
    let n = errors.len() as u64;
    let mut result = exact("silicon.profile_error_pct", worst, "points", n, Better::Lower);
    result.min = errors.iter().copied().fold(f64::INFINITY, f64::min);
    Ok(vec![result])
}

/// What the machine wrote down between the mark and the next.
fn truth(log: &Log, mark: u32) -> Option<Truth> {
    let totals = |value: u32| log.mark(value)?.cpus.get(LOAD_CPU);
    let CpuTotals { busy_ns, needed_ns, .. } = totals(mark + 1)?.since(totals(mark)?);
    let (all_ns, reduced_ns) = (busy_ns.iter().sum::<u64>(), busy_ns.iter().skip(1).sum::<u64>());
    let percent = |part: u64, whole: u64| part as f64 / whole as f64 * 100.0;
    Some(Truth {
        reduced_pct: percent(reduced_ns, all_ns),
        avoidable_pct: (reduced_ns > 0).then(|| 100.0 - percent(needed_ns, reduced_ns)),
    })
}

/// How far each of the shares is off that both know.
fn errors_points(profile: &Profile, truth: &Truth) -> Result<Vec<f64>> {
    let reduced = profile.reduced_pct.context("a profile without a busy moment")?;
    let mut errors = vec![(reduced - truth.reduced_pct).abs()];
    let both = profile.avoidable_pct.zip(truth.avoidable_pct);
    errors.extend(both.map(|(found, truth)| (found - truth).abs()));
    ensure!(
        both.is_some() || (reduced == 0.0) == (truth.reduced_pct == 0.0),
        "one of profile and machine alone has seen a low clock: {profile:?}, {truth:?}"
    );
    Ok(errors)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &str = "mark t_ns=1000 value=2\n\
        cpu t_ns=1000 cpu=0 insns=9 cycles=9 busy_ns=40,0,0 halted_ns=0 throttled_ns=0 needed_ns=0 wide=0,0,0,0,0\n\
        cpu t_ns=1000 cpu=1 insns=9 cycles=9 busy_ns=40,10,0 halted_ns=0 throttled_ns=0 needed_ns=5 wide=0,0,0,0,0\n\
        mark t_ns=3000 value=3\n\
        cpu t_ns=3000 cpu=0 insns=9 cycles=9 busy_ns=40,0,0 halted_ns=0 throttled_ns=0 needed_ns=0 wide=0,0,0,0,0\n\
        cpu t_ns=3000 cpu=1 insns=9 cycles=9 busy_ns=640,10,400 halted_ns=0 throttled_ns=0 needed_ns=105 wide=0,0,0,0,0\n";

    fn profile(reduced_pct: f64, avoidable_pct: Option<f64>) -> Profile {
        Profile { load: "x".into(), mark: 2, reduced_pct: Some(reduced_pct), avoidable_pct }
    }

    #[test]
    fn the_truth_is_that_of_the_loads_cpu_between_its_marks() {
        let truth = truth(&Log::parse(LOG).unwrap(), 2);
        assert_eq!(truth, Some(Truth { reduced_pct: 40.0, avoidable_pct: Some(75.0) }));
        assert_eq!(super::truth(&Log::parse(LOG).unwrap(), 3), None);
    }

    #[test]
    fn both_shares_are_compared() {
        let truth = Truth { reduced_pct: 40.0, avoidable_pct: Some(75.0) };
        assert_eq!(errors_points(&profile(42.0, Some(70.0)), &truth).unwrap(), [2.0, 5.0]);
    }

    #[test]
    fn a_low_clock_that_one_of_them_missed_fails() {
        let none = Truth { reduced_pct: 0.0, avoidable_pct: None };
        assert_eq!(errors_points(&profile(0.0, None), &none).unwrap(), [0.0]);
        assert!(errors_points(&profile(3.0, Some(1.0)), &none).is_err());
    }
}
