// SPDX-License-Identifier: MIT OR Apache-2.0
//! Classes of cores by licence level (SYSTOR 5): they come where that helps, and only there.

use cpumodel::{CpuModel, Platform};
use sim::engine::{Options, Outcome};
use sim::policy_spec::simulate;
use sim::scenario::Scenario;

/// Time until the classes stand: the hold time of a second, and sizing before it.
const SETTLE_NS: u64 = 1_600_000_000;

/// A load of `three-levels` once the classes stand.
fn run(variant: &str, policy: &str) -> Outcome {
    let scenario = Scenario::built_in("three-levels").unwrap().unwrap();
    let platform = Platform::new(&CpuModel::built_in(&scenario.machine).unwrap().unwrap());
    let workload = scenario.workload(Some(variant)).unwrap().clone();
    let duration_ns = SETTLE_NS + 500_000_000;
    let options = Options { seed: 1, duration_ns, warmup_ns: SETTLE_NS, ..Default::default() };
    let policy = format!("lane:{policy}").parse().unwrap();
    simulate(&platform, 1, workload, &policy, options, None).unwrap().outcome
}

/// How much more each load does with tiers than with one class, percent: server, filter (AVX2),
/// solver (AVX-512); and how often the classes changed meanwhile.
fn gains_pct(variant: &str, policy: &str) -> ([f64; 3], u64) {
    let (one, tiers) = (run(variant, policy), run(variant, &format!("{policy},tiers=yes")));
    let gain_pct = |name: &str| {
        let done = |out: &Outcome| out.group(name).unwrap().completed as f64;
        100.0 * (done(&tiers) / done(&one) - 1.0)
    };
    (["server", "filter", "solver"].map(gain_pct), tiers.sched.resizes)
}

/// Where AVX2 and AVX-512 code have enough to do for cores of their own, the AVX2 code gets the
/// clock of its level, a fifth more than beside AVX-512, and nobody pays for it; with the number of
/// wide cores given, and chosen by the load. The classes are chosen once.
#[test]
fn tiers_help_where_levels_fill_cores() {
    for policy in ["wide=6", "wide=auto,standby=no"] {
        let (gains, changes) = gains_pct("avx512", policy);
        let [server, filter, solver] = gains;
        assert!(filter > 18.0, "{policy}: {gains:?}");
        // the wide CPUs are split into whole cores, where one class shares them to the task
        assert!(server > -1.0 && solver > -3.0, "{policy}: {gains:?}");
        assert_eq!(changes, 0, "{policy}");
    }
}

/// Where all wide code is of one level there is one class, and nothing changes.
#[test]
fn tiers_cost_nothing_where_there_is_one_level() {
    for cores in ["4", "6", "auto,standby=no"] {
        let policy = format!("wide={cores},detect=trap-avx,remigrate=syscall-entry");
        let (gains, _) = gains_pct("one-level", &policy);
        assert_eq!(gains, [0.0; 3], "{policy}");
    }
}

/// Where levels are told apart that do not differ, because the program's hints are old, a class for
/// each costs next to nothing: it gets what it needs.
#[test]
fn wrong_levels_cost_little() {
    let (gains, _) = gains_pct("one-level", "wide=6");
    assert!(gains.iter().all(|gain| gain.abs() < 2.0), "{gains:?}");
}
