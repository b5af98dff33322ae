// SPDX-License-Identifier: MIT OR Apache-2.0
//! Wakeups (policy/wake.h): a task that sleeps more than it runs does not wait for the slice of
//! another one, and gets no more than its share either.

mod common;

use common::*;
use cpumodel::InsnClass;
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

/// Two threads with sections of 20 us and as much scalar code between them, six that never sleep,
/// two scalar CPUs and a wide one, and further threads: the CPUs that each group had.
fn shares_of_commuters(hogs_are_scalar: bool, nr_wide_hogs: usize) -> [f64; 3] {
    let mut w = Workload::new();
    let heavy = w.code(InsnClass::Heavy512, 1.0);
    let commuter = Builder::new()
        .step(Step::WideBegin { level: 2 })
        .work(heavy, Dist::Fixed(40_000))
        .step(Step::WideEnd { rest_ns: 0 })
        .work(0, Dist::Fixed(50_000))
        .step(Step::Done)
        .forever(0);
    let commuter = w.program(commuter);
    w.group(Group::new("commuters", 2, commuter));
    let hog = w.program(busy());
    let mut hogs = Group::new("hogs", 6, hog);
    hogs.scalar = hogs_are_scalar;
    w.group(hogs);
    let wide = Builder::new().step(Step::WideBegin { level: 2 }).work(heavy, Dist::Fixed(100_000));
    let wide = w.program(wide.step(Step::Done).forever(1));
    w.group(Group::new("wide", nr_wide_hogs, wide));
    let mut platform = part_of_a_platform(3);
    (platform.threads_per_core, platform.smt_frac) = (1, 1.0);
    let out = run(platform, 1, w, lane(Wide::Cores(1)), secs(2));
    let cpus = |group: &str| out.group(group).map_or(0.0, |group| group.cpu_ns as f64 / 2e9);
    ["commuters", "hogs", "wide"].map(cpus)
}

/// Who comes back from the wide CPU does not wait until a slice of others ends, and has no more
/// than it is due.
#[test]
fn who_leaves_a_wide_cpu_does_not_wait_for_a_slice() {
    for hogs_are_scalar in [false, true] {
        let [commuters, hogs, _] = shares_of_commuters(hogs_are_scalar, 0);
        assert!((0.3..0.85).contains(&commuters), "{commuters} of the 0.75 CPUs that they are due");
        assert!((2.15..2.7).contains(&hogs), "{hogs} of 2.25");
    }
}

/// Nor where it waits for the wide CPU as well, beside a task that does not leave it: what it is
/// owed there is not repaid by the others.
#[test]
fn who_waits_for_a_wide_cpu_saves_up_nothing() {
    for hogs_are_scalar in [false, true] {
        let [commuters, hogs, wide] = shares_of_commuters(hogs_are_scalar, 1);
        assert!(commuters > 0.3, "{commuters} of 0.67");
        assert!(hogs > 1.7, "{hogs} of the 2 CPUs that the hogs can use and are due; wide {wide}");
    }
}
