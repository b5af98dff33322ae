// SPDX-License-Identifier: MIT OR Apache-2.0
//! Power scores of simulated tasks: each process is distinguished from what shares its CPUs, which
//! is the point of DIM's Table 2. `./x papers DIM` shows how near its numbers are.

mod common;

use cpumodel::{CpuModel, Platform};
use policy::TYPE_WIDE;
use sim::engine::{Engine, Options};
use sim::events::Quiet;
use sim::program::Workload;
use sim::scenario::Scenario;
use sim::sched::Scheduler;
use sim::sched::lane::{Detect, Lane, LaneConfig, Wide};
use sim::score::power_scores;
use sim::sys::{Layout, Sys};

/// A scenario's machine, without hyperthreading.
fn platform(scenario: &Scenario) -> Platform {
    let mut platform = Platform::new(&CpuModel::built_in(&scenario.machine).unwrap().unwrap());
    (platform.threads_per_core, platform.smt_frac) = (1, 1.0);
    platform
}

/// Mean scores by group, without hyperthreading; groups that are not named have no tasks.
fn scores(scenario: &str, variant: &str, groups: &[&str]) -> Vec<f64> {
    let scenario = Scenario::built_in(scenario).unwrap().unwrap();
    let platform = platform(&scenario);
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

/// Two processes on the same CPUs, one wide and one not: each gets the level of its own code,
/// beside a computation as beside a server of short requests.
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
    for (variant, level) in [("fma-512", 2.0), ("add-512", 1.0), ("fma-256", 1.0), ("add-256", 0.0)]
    {
        let scores = scores("dim-instructions", variant, &["loop", "kworker"]);
        assert!((scores[0] - level).abs() < 0.6, "{variant}: {scores:?}");
        assert!(scores[1] < 0.1, "{variant}: the kernel thread is not to blame: {scores:?}");
    }
}

/// Turbolane by scores alone, at the end of a second: it, and the group of each task.
fn placed_by_score(workload: Workload, scenario: &Scenario) -> (Lane, Vec<u16>) {
    placed_by_score_on(platform(scenario), workload, 8)
}

fn placed_by_score_on(platform: Platform, workload: Workload, nr_wide: usize) -> (Lane, Vec<u16>) {
    let sys = Sys::new(Layout::new(&platform.topology(1)));
    let config =
        LaneConfig { detect: Detect::Score, wide: Wide::Cores(nr_wide), ..LaneConfig::default() };
    let sched = Lane::new(&sys, config);
    let options = Options { duration_ns: 1_000_000_000, ..Options::default() };
    let mut engine = Engine::new(platform, sys, sched, Quiet, workload, options);
    engine.run().unwrap();
    (engine.sched().clone(), engine.group_of())
}

/// Nobody tells the scheduler anything: the encoder's threads become wide of their level, those of
/// the computation do not, and it stays so: few changes in a second of thousands of switches.
#[test]
fn scores_place_tasks() {
    let scenario = Scenario::built_in("dim-x265-swaptions").unwrap().unwrap();
    let (lane, group_of) =
        placed_by_score(scenario.workload(Some("avx512")).unwrap().clone(), &scenario);
    let x265 = 1;
    for (task, &group) in group_of.iter().enumerate() {
        let t = lane.task(task as u32);
        let wide = (t.task_type == TYPE_WIDE as u8, t.level);
        assert_eq!(wide, if group == x265 { (true, 2) } else { (false, 0) }, "task {task}: {t:?}");
    }
    // each encoder thread at least once, and each task at most five times
    let changes = lane.counters().type_changes;
    assert!((16..=5 * 32).contains(&changes), "{changes}");
}

/// With hyperthreading a task finds its sibling's level whenever it runs for long (DIM 5.2: the
/// technique "only works" without). Whose code has no such instruction is not blamed for it: a
/// computation that is a guest beside an encoder, on the other thread of a wide core.
#[test]
fn siblings_are_told_apart() {
    let scenario = Scenario::built_in("dim-x265-swaptions").unwrap().unwrap();
    let mut workload = scenario.workload(Some("avx512")).unwrap().clone();
    for group in &mut workload.groups {
        group.tasks = if group.name == "x265" { 1 } else { 6 };
    }
    let names: Vec<String> = workload.groups.iter().map(|g| g.name.clone()).collect();
    let mut platform = common::part_of_a_platform(2);
    platform.threads_per_core = 2;
    let (lane, group_of) = placed_by_score_on(platform, workload, 1);
    for (task, &group) in group_of.iter().enumerate() {
        let t = lane.task(task as u32);
        if names[usize::from(group)] == "x265" {
            assert_eq!(t.level, 2, "task {task}: {t:?}");
        } else {
            assert_eq!((t.level, t.score.score_q10), (0, 0), "task {task}: {t:?}");
            assert!(t.score.nr_samples > 10, "task {task}: {t:?}");
        }
    }
}

/// Without wide code nobody becomes wide, but for a moment: ordinary code copies now and then.
#[test]
fn scores_leave_scalar_loads_alone() {
    let scenario = Scenario::built_in("dim-x265-swaptions").unwrap().unwrap();
    let (lane, group_of) =
        placed_by_score(scenario.workload(Some("none")).unwrap().clone(), &scenario);
    let wide = |&task: &usize| lane.task(task as u32).task_type == TYPE_WIDE as u8;
    let nr_wide = (0..group_of.len()).filter(wide).count();
    assert!(nr_wide <= group_of.len() / 4, "{nr_wide} of {}", group_of.len());
}
