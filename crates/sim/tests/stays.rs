// SPDX-License-Identifier: MIT OR Apache-2.0
//! Stays (policy/stay.h): a task that has trapped leaves its wide CPU when its stay is over, and
//! not when the kernel happens to come by.

mod common;

use common::*;
use cpumodel::InsnClass;
use sim::policy_spec::{PolicySpec, simulate};
use sim::program::{Builder, Group, Step, Workload};
use sim::rng::Dist;
use sim::sched::lane::{Detect, LaneConfig, Wide};

/// Twice as many tasks as CPUs that execute 20 us of wide code after half a millisecond of scalar
/// code, without system calls.
fn bursts(cpus: usize) -> Workload {
    let mut w = Workload::new();
    let heavy = w.code(InsnClass::Heavy512, 1.0);
    let turn = Builder::new()
        .work(0, Dist::Uniform(900_000, 1_300_000))
        .wide(heavy, 2, Dist::Uniform(36_000, 44_000))
        .step(Step::Done);
    let program = w.program(turn.forever(0));
    w.group(Group::new("bursts", 2 * cpus, program));
    w
}

fn done(policy: &str) -> f64 {
    let policy: PolicySpec = policy.parse().expect("it is written as policies are");
    let finished = simulate(&part_of_a_platform(4), 1, bursts(4), &policy, secs(1), None);
    finished.expect("a run that ends").outcome.groups[0].completed as f64
}

/// Ticks are 4 ms apart. If stays ended by them, eight tasks would be on the one wide CPU most of
/// the time, and three CPUs idle.
#[test]
fn tasks_that_trapped_do_not_crowd_on_wide_cpus() {
    let (fair, lane) = (done("fair"), done("lane:wide=1,detect=trap"));
    assert!(lane > 1.1 * fair, "{lane} with, {fair} without the lane");
}

/// One task whose scalar code lasts for longer than all slices: the tasks that need the wide CPUs
/// get nearly what they get where the ends of sections are known (93 %; 77 % if ticks end stays).
#[test]
fn stays_end_by_the_timer() {
    let wide_ns = |detect| {
        let config = LaneConfig { detect, ..lane(Wide::Cores(1)) };
        let out = run(platform(), 1, alternating(0, 70_000_000), config, secs(1));
        out.group("wide").unwrap().cpu_ns as f64
    };
    let (trap, hint) = (wide_ns(Detect::Trap(InsnClass::Light512)), wide_ns(Detect::Hint));
    assert!(trap > 0.9 * hint, "{trap} by traps, {hint} by hints");
}
