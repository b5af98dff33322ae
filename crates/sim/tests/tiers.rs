// SPDX-License-Identifier: MIT OR Apache-2.0
//! A class of cores per licence level (SYSTOR 5): where that helps, and where it only divides the cores.

use machine::{CpuModel, Platform};
use sim::engine::{Options, Outcome};
use sim::policy_spec::simulate;
use sim::scenario::Scenario;

/// How much more each load of `three-levels` does with six wide cores in tiers than with the six in one
/// class, percent: server, filter (AVX2), solver (AVX-512).
fn gains_pct(variant: &str, settings: &str) -> [f64; 3] {
    let scenario = Scenario::built_in("three-levels").unwrap().unwrap();
    let platform = Platform::new(&CpuModel::built_in(&scenario.machine).unwrap().unwrap());
    let run = |tiers: &str| -> Outcome {
        let policy = format!("lane:wide=6,{settings}{tiers}").parse().unwrap();
        let workload = scenario.workload(Some(variant)).unwrap().clone();
        let (duration_ns, warmup_ns) = (700_000_000, 200_000_000);
        let options = Options { seed: 1, duration_ns, warmup_ns, ..Default::default() };
        simulate(&platform, 1, workload, &policy, options, None).unwrap().outcome
    };
    let (one, tiers) = (run(""), run(",tiers=yes"));
    ["server", "filter", "solver"].map(|name| {
        let done = |out: &Outcome| out.group(name).unwrap().completed as f64;
        100.0 * (done(&tiers) / done(&one) - 1.0)
    })
}

/// Where AVX2 and AVX-512 code have enough to do for cores of their own, the AVX2 code gets the clock of
/// its level, a quarter more than beside AVX-512, and nobody pays for it.
#[test]
fn tiers_help_where_levels_fill_cores() {
    let gains = gains_pct("avx512", "detect=hint");
    let [server, filter, solver] = gains;
    assert!(filter > 15.0, "{gains:?}");
    assert!(server > -1.0 && solver > -2.0, "{gains:?}");
}

/// Where all wide code is of one level, cores of lower classes are lost to it.
#[test]
fn tiers_cost_where_there_is_one_level() {
    let gains = gains_pct("one-level", "detect=trap,remigrate=syscall-entry");
    let [_, filter, solver] = gains;
    assert!(filter < -10.0 && solver < -10.0, "{gains:?}");
}
