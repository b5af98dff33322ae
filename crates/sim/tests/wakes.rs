// SPDX-License-Identifier: MIT OR Apache-2.0
//! Wakeups (policy/wake.h): a task that sleeps more than it runs does not wait for the slice of
//! another one, and gets no more than its share either.

mod common;

use common::*;
use sim::engine::Outcome;
use sim::policy_spec::{PolicySpec, simulate};
use sim::program::{Builder, Group, Step, Workload};
use sim::rng::Dist;
use sim::sched::lane::Wide;

/// The CPU that all are bound to, a scalar one.
const CPU: usize = 0;

/// Its clock is not the question here: cycles count as tasks do them.
fn sleeper(run_cycles: u64, sleep_ns: u64) -> Vec<Step> {
    let turn = Builder::new().work(0, Dist::Fixed(run_cycles)).sleep(Dist::Fixed(sleep_ns));
    turn.step(Step::Done).forever(0)
}

fn busy() -> Vec<Step> {
    Builder::new().work(0, Dist::Fixed(350_000)).step(Step::Done).forever(0)
}

/// Groups of so many tasks, that many of them bound to the CPU, with a program each.
fn outcome(groups: &[(&str, usize, bool, Vec<Step>)]) -> Outcome {
    let mut w = Workload::new();
    for (name, tasks, is_bound, steps) in groups {
        let program = w.program(steps.clone());
        let mut group = Group::new(name, *tasks, program);
        group.affinity = is_bound.then(|| vec![CPU]);
        group.scalar = true;
        w.group(group);
    }
    run(platform(), 1, w, lane(Wide::Cores(1)), secs(2))
}

fn done(out: &Outcome, group: &str) -> f64 {
    out.group(group).unwrap().completed as f64
}

/// 100 us of work, 200 us of sleep, beside one that never sleeps: it does what it does alone.
#[test]
fn a_task_that_sleeps_does_as_much_as_alone() {
    let alone = outcome(&[("sleeper", 1, true, sleeper(350_000, 200_000))]);
    let beside =
        outcome(&[("sleeper", 1, true, sleeper(350_000, 200_000)), ("hog", 1, true, busy())]);
    let part = done(&beside, "sleeper") / done(&alone, "sleeper");
    assert!(part > 0.95, "{part}");
    let hog = beside.group("hog").unwrap().cpu_ns as f64 / 2e9;
    assert!(hog > 0.6, "the other has the rest: {hog}");
}

/// Others are not bound, two for each CPU, and wait in another queue. The task sleeps for 600 us,
/// and it takes longer to work: the core's other CPU is busy, and the clock is lower.
#[test]
fn it_displaces_who_could_go_elsewhere() {
    let sleeper = || sleeper(350_000, 600_000);
    let alone = outcome(&[("sleeper", 1, true, sleeper())]);
    let beside = outcome(&[("sleeper", 1, true, sleeper()), ("hogs", 64, false, busy())]);
    let part = done(&beside, "sleeper") / done(&alone, "sleeper");
    assert!(part > 0.8, "{part}");
}

/// 300 us of work, 20 us of sleep: it wants more than its half, and gets no more.
#[test]
fn a_task_that_wakes_often_gets_its_share() {
    let out =
        outcome(&[("sleeper", 1, true, sleeper(1_050_000, 20_000)), ("hog", 1, true, busy())]);
    let share = |group: &str| out.group(group).unwrap().cpu_ns as f64 / 2e9;
    assert!((0.44..0.54).contains(&share("sleeper")), "{}", share("sleeper"));
    assert!((0.44..0.54).contains(&share("hog")), "{}", share("hog"));
}

/// The same beside others that are not bound: it wants nearly all, and is due a third of the CPU.
#[test]
fn it_gets_no_more_of_what_others_could_use() {
    let often = sleeper(1_050_000, 20_000);
    let out = outcome(&[("sleeper", 1, true, often), ("hogs", 64, false, busy())]);
    let share = out.group("sleeper").unwrap().cpu_ns as f64 / 2e9;
    assert!((0.27..0.4).contains(&share), "{share}");
}

/// Twenty that sleep, which want the CPU twice over, and one that does not: it gets no less.
#[test]
fn many_share() {
    let sleepers = sleeper(350_000, 900_000);
    let out = outcome(&[("sleepers", 20, true, sleepers), ("hog", 1, true, busy())]);
    let share = |group: &str| out.group(group).unwrap().cpu_ns as f64 / 2e9;
    let hog = share("hog") * 21.0;
    assert!((0.8..2.0).contains(&hog), "{hog} of an equal share");
}

/// Tasks that are not bound, on machines of one to eight cores with two busy tasks for each CPU, do
/// as much as under fair scheduling.
#[test]
fn nobody_waits_for_slices() {
    for cores in [1, 2, 4, 8] {
        let part = |policy: &str| {
            let run = |hogs: usize| {
                let mut w = Workload::new();
                let program = w.program(sleeper(350_000, 600_000));
                w.group(Group::new("sleepers", 2, program));
                let program = w.program(busy());
                w.group(Group::new("hogs", hogs, program));
                let policy: PolicySpec = policy.parse().unwrap();
                let finished = simulate(&part_of_a_platform(cores), 1, w, &policy, secs(2), None);
                done(&finished.unwrap().outcome, "sleepers")
            };
            run(4 * cores) / run(0)
        };
        let (fair, lane) = (part("fair"), part("lane:wide=1"));
        assert!(lane > 0.9 * fair, "{cores} cores: {lane} with, {fair} without the lane");
    }
}
