// SPDX-License-Identifier: MIT OR Apache-2.0
//! Power scores of simulated tasks: each process is told apart from what shares its CPUs, which is
//! what DIM's Table 2 is there to show. How near its numbers are, `turbolane reproduce DIM` says.

use machine::{CpuModel, Platform};
use sim::engine::Options;
use sim::scenario::Scenario;
use sim::score::power_scores;

/// Mean scores by group, without hyperthreading; groups that are not named have no tasks.
fn scores(scenario: &str, variant: &str, groups: &[&str]) -> Vec<f64> {
    let scenario = Scenario::built_in(scenario).unwrap().unwrap();
    let mut platform = Platform::new(&CpuModel::built_in(&scenario.machine).unwrap().unwrap());
    (platform.threads_per_core, platform.smt_frac) = (1, 1.0);
    let mut workload = scenario.workload(Some(variant)).unwrap().clone();
    for group in &mut workload.groups {
        if !groups.contains(&group.name.as_str()) {
            group.tasks = 0;
        }
    }
    let names: Vec<String> = workload.groups.iter().map(|group| group.name.clone()).collect();
    let options = Options { duration_ns: 1_500_000_000, ..Default::default() };
    let scores = power_scores(&platform, 1, workload, options).unwrap();
    let of = |name: &&str| scores[names.iter().position(|n| n == name).unwrap()].unwrap();
    groups.iter().map(of).collect()
}

/// Two processes on the same CPUs, one wide and one not: each gets the level of its own code, beside a
/// computation as beside a server of short requests.
#[test]
fn mixed_processes_are_told_apart() {
    for (scenario, scalar) in
        [("dim-x265-swaptions", vec!["swaptions"]), ("dim-x265-apache", vec!["apache", "ab"])]
    {
        let groups: Vec<&str> = ["x265"].into_iter().chain(scalar).collect();
        let scores = scores(scenario, "avx512", &groups);
        assert!(scores[0] > 1.5, "{groups:?}: {scores:?}");
        assert!(scores[1..].iter().all(|&score| score < 0.5), "{groups:?}: {scores:?}");
    }
}

/// Alone, an encoder scores what its widest code asks for.
#[test]
fn a_process_alone_scores_its_level() {
    for (variant, level) in [("none", 0.0), ("avx2", 1.0), ("avx512", 2.0)] {
        let score = scores("dim-x265-swaptions", variant, &["x265"])[0];
        assert!((score - level).abs() < 0.5, "{variant}: {score}");
    }
}

/// Instructions of the same width ask for different levels, and score so: no look at the registers
/// could tell (DIM 6.1).
#[test]
fn instructions_are_told_apart() {
    for (variant, level) in
        [("fma-512", 2.0), ("add-512", 1.0), ("fma-256", 1.0), ("add-256", 0.0)]
    {
        let scores = scores("dim-instructions", variant, &["loop", "kworker"]);
        assert!((scores[0] - level).abs() < 0.6, "{variant}: {scores:?}");
        assert!(scores[1] < 0.1, "{variant}: the kernel thread is not to blame: {scores:?}");
    }
}
