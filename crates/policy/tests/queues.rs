// SPDX-License-Identifier: MIT OR Apache-2.0
//! Queues and classes: what every task and CPU can rely on, for all of them.

use policy::{
    Backlog, Cfg, Clock, LEVEL_MAX, NR_CLASSES, NR_QUEUES, QUEUE_DEFAULT, QUEUE_NONE, QUEUE_SCALAR,
    QUEUE_WIDE, Split, TYPE_DEFAULT, TYPE_SCALAR, TYPE_WIDE, Task, WEIGHT_NICE0, WEIGHT_UNIT,
};
use proptest::prelude::*;

/// Every type, level and affinity (as the classes it reaches; never none).
fn all_tasks() -> Vec<Task> {
    let mut tasks = Vec::new();
    for caps in 1..1u8 << NR_CLASSES {
        for task_type in [TYPE_DEFAULT, TYPE_SCALAR] {
            tasks.push(Task { task_type: task_type as u8, caps, ..Task::default() });
        }
        for level in 1..=LEVEL_MAX as u8 {
            tasks.push(Task { task_type: TYPE_WIDE as u8, level, caps, ..Task::default() });
        }
    }
    tasks
}

fn reaches(task: &Task, class: u32) -> bool {
    task.caps >> class & 1 == 1
}

/// Nobody is left without a CPU: some class that the affinity reaches serves the task's queue.
#[test]
fn every_task_has_a_cpu() {
    for task in all_tasks() {
        assert!((0..NR_CLASSES).any(|class| reaches(&task, class) && task.fits(class)), "{task:?}");
    }
}

/// A wide task fits no CPU below its level if its affinity reaches one at or above it; then it
/// needs the lowest of those.
#[test]
fn wide_tasks_need_their_level() {
    for task in all_tasks().into_iter().filter(|t| t.task_type == TYPE_WIDE as u8) {
        let level = u32::from(task.level);
        match (level..NR_CLASSES).find(|&class| reaches(&task, class)) {
            Some(lowest) => {
                assert_eq!(task.need(), lowest, "{task:?}");
                assert!((0..level).all(|class| !task.fits(class)), "{task:?}");
            }
            None => {
                let highest = (0..NR_CLASSES).rev().find(|&class| reaches(&task, class)).unwrap();
                assert_eq!(task.need(), highest, "{task:?}");
            }
        }
    }
}

/// SYSTOR 3.2: scalar tasks that reach wide CPUs only count as default; default tasks stay so.
#[test]
fn corner_cases_of_affinity() {
    for task in all_tasks() {
        let queue = task.queue();
        match u32::from(task.task_type) {
            TYPE_DEFAULT => assert_eq!(queue, QUEUE_DEFAULT),
            TYPE_SCALAR if task.caps & 1 == 1 => assert_eq!(queue, QUEUE_SCALAR),
            TYPE_SCALAR => assert_eq!(queue, QUEUE_DEFAULT),
            _ if task.need() > 0 => assert_eq!(queue, QUEUE_WIDE + task.need() - 1),
            _ => assert_eq!(
                queue, QUEUE_SCALAR,
                "a wide task on scalar CPUs waits with the scalar ones"
            ),
        }
    }
}

/// The steps of each class: wide queues from its own downwards, scalar last, default with the
/// first; each queue in at most one step, and `queue_step` agrees.
#[test]
fn order_of_steps() {
    for class in 0..NR_CLASSES {
        let steps = policy::nr_steps(class);
        let own: Vec<u32> = (0..steps).map(|step| policy::step_queue(class, step)).collect();
        let mut expected: Vec<u32> = (1..=class).rev().map(|c| QUEUE_WIDE + c - 1).collect();
        expected.push(QUEUE_SCALAR);
        assert_eq!(own, expected, "class {class}");
        for (step, &queue) in own.iter().enumerate() {
            assert_eq!(policy::queue_step(class, queue), step as u32);
            assert_eq!(policy::step_has_default(step as u32), step == 0);
        }
        for queue in 0..NR_QUEUES {
            let served = queue == QUEUE_DEFAULT || own.contains(&queue);
            assert_eq!(
                policy::queue_step(class, queue) < steps,
                served,
                "class {class}, queue {queue}"
            );
        }
    }
}

/// The class that is there for a queue serves it in its first step, and every task's queue has
/// one that the task can reach: so there is an LLC where it does not starve.
#[test]
fn every_queue_has_a_home() {
    for task in all_tasks() {
        let queue = task.queue();
        match policy::queue_class(queue) {
            NR_CLASSES => {
                assert!((0..NR_CLASSES).all(|class| policy::queue_step(class, queue) == 0))
            }
            class => {
                assert_eq!(policy::queue_step(class, queue), 0);
                assert!(reaches(&task, class), "{task:?}");
            }
        }
    }
}

/// Each class from the needed one upwards is looked at in each scope once: classified tasks go far
/// before they take a higher class, the others take any class before they go far.
#[test]
fn idle_looks_go_by_class_or_by_scope() {
    for task in all_tasks() {
        let looks: Vec<(u32, u32)> = (0..).map_while(|i| task.look(i)).collect();
        let mut wanted: Vec<(u32, u32)> = (task.need()..NR_CLASSES)
            .flat_map(|class| (0..3).map(move |scope| (class, scope)))
            .collect();
        if u32::from(task.task_type) == policy::TYPE_DEFAULT {
            wanted.sort_by_key(|&(class, scope)| (scope, class));
        }
        assert_eq!(looks, wanted, "{task:?}");
    }
}

fn backlog(key_ns: u64, nr_waiting: u32, nr_cpus: u32) -> Backlog {
    Backlog { key_ns, nr_waiting, nr_cpus, ..Backlog::default() }
}

/// A shard whose head is late by more than a slice is helped, whatever the numbers; one that has
/// nothing never is.
#[test]
fn who_is_late_is_helped() {
    let own = backlog(10_000, 20, 2);
    assert!(policy::helps(&own, &backlog(4_999, 1, 2), 5_000));
    assert!(!policy::helps(&own, &backlog(5_000, 1, 2), 5_000));
    assert!(!policy::helps(&own, &backlog(0, 0, 2), 5_000));
    assert!(policy::helps(&backlog(3, 20, 2), &backlog(3u64.wrapping_sub(5_001), 1, 2), 5_000));
}

/// A task that has a CPU to itself is not late, however far it is behind its clock.
#[test]
fn who_runs_is_not_late() {
    let now_ns = 1_000_000;
    assert_eq!(policy::running_key(400_000, now_ns), now_ns);
    assert_eq!(policy::running_key(1_400_000, now_ns), 1_400_000);
    assert_eq!(policy::running_key(7u64.wrapping_neg(), 5), 5);
    let alone = backlog(policy::running_key(400_000, now_ns), 1, 2);
    assert!(policy::helps(&alone, &backlog(900_000, 8, 2), 5_000_000));
}

/// Whose head is due first may be the same for ever, so a shard whose clock is much slower is
/// helped too: as long as that evens out, and not for what a measured pace may be off.
#[test]
fn slower_clocks_are_helped() {
    let paced = |backlog: Backlog, pace_q10| Backlog { pace_q10, ..backlog };
    let helps = |own: (u32, u32), other: (u32, u32)| {
        let own = paced(backlog(10, own.0, 2), own.1);
        policy::helps(&own, &paced(backlog(12, other.0, 2), other.1), 5_000)
    };
    assert!(helps((3, 2048), (6, 4096)));
    assert!(!helps((3, 2048), (6, 2048)), "few heavy tasks and many light ones are even");
    assert!(!helps((3, 2048), (6, 2048 + 256)) && helps((3, 2048), (6, 2048 + 257)));
    assert!(!helps((5, 2048), (4, 4096)), "it would not even out");
    assert!(helps((1, 4096), (3, 1024)), "a task that is alone");
    assert!(!helps((1, 0), (3, 0)), "nothing was measured");
}

/// Of equal tasks on two shards every distribution becomes even, to a task per CPU, and then no
/// task moves. The heads differ by less than a slice, and the other one is always due first.
#[test]
fn numbers_become_even() {
    for cpus in [[2, 2], [4, 2], [1, 8]] {
        for (nr, start) in (12..40).flat_map(|nr| (0..=nr).map(move |start| (nr, start))) {
            let mut tasks = [start, nr - start];
            let helps = |tasks: &[u32; 2], by: usize| {
                let other = 1 - by;
                let waits = |shard: usize, nr_running: u32, key_ns: u64| {
                    let nr_waiting = tasks[shard].saturating_sub(nr_running);
                    backlog(key_ns, nr_waiting, cpus[shard])
                };
                // the CPU that compares runs nothing at this moment
                let (own, theirs) = (waits(by, cpus[by] - 1, 11), waits(other, cpus[other], 10));
                own.nr_waiting > 0 && policy::helps(&own, &theirs, 5)
            };
            let mut moves = 0;
            while let Some(by) = (0..2).find(|&by| helps(&tasks, by)) {
                tasks[by] += 1;
                tasks[1 - by] -= 1;
                moves += 1;
                assert!(moves <= nr, "{nr} tasks on {cpus:?} CPUs do not settle: {tasks:?}");
            }
            let per_cpu = |shard: usize| f64::from(tasks[shard]) / f64::from(cpus[shard]);
            let least_step = 1.0 / f64::from(cpus[0]) + 1.0 / f64::from(cpus[1]);
            let busy = (0..2).all(|shard| tasks[shard] >= cpus[shard]);
            assert!(
                !busy || (per_cpu(0) - per_cpu(1)).abs() < least_step,
                "{nr} tasks on {cpus:?} CPUs stay at {tasks:?}"
            );
        }
    }
}

/// Victims: never for scalar work, never wide work, never a class too low; scalar guests before
/// default work; `victim_best` is reached and not exceeded.
#[test]
fn victims() {
    for need in 0..NR_CLASSES {
        let mut best = 0;
        for class in 0..NR_CLASSES {
            let rank = |queue| policy::victim_rank(need, class, queue, 1);
            for wide in 0..LEVEL_MAX {
                assert_eq!(rank(QUEUE_WIDE + wide), 0);
            }
            assert_eq!(rank(QUEUE_NONE), 0);
            let allowed = need > 0 && class >= need;
            assert_eq!(rank(QUEUE_SCALAR) > 0, allowed);
            assert_eq!(rank(QUEUE_DEFAULT) > 0, allowed);
            assert_eq!(policy::victim_rank(need, class, QUEUE_DEFAULT, 0), 0);
            assert_eq!(policy::victim_rank(need, class, QUEUE_SCALAR, 0), rank(QUEUE_SCALAR));
            if allowed {
                assert!(
                    rank(QUEUE_SCALAR)
                        > (need..NR_CLASSES)
                            .map(|c| policy::victim_rank(need, c, QUEUE_DEFAULT, 1))
                            .max()
                            .unwrap()
                );
            }
            best = best.max(rank(QUEUE_SCALAR));
        }
        if need > 0 {
            assert_eq!(best, policy::victim_best(need));
        }
    }
}

/// Guests are scalar tasks on wide CPUs, and only those that have scalar CPUs to go to.
#[test]
fn guests() {
    for task in all_tasks() {
        for class in 0..NR_CLASSES {
            assert_eq!(task.is_guest(class), class > 0 && task.queue() == QUEUE_SCALAR, "{task:?}");
        }
    }
}

/// Cores become wide from the end; the sets above the classes are nested, and a set as large as all
/// is no split.
#[test]
fn classes_of_cores() {
    let classes = |above: [u32; 3]| -> Vec<u32> {
        (0..8).map(|rank| Split { above }.core_class(rank)).collect()
    };
    assert_eq!(classes([0, 0, 0]), [0; 8]);
    assert_eq!(classes([1, 1, 1]), [3, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(Split::one_class(6).above, [6; 3]);
    assert_eq!(classes([6, 6, 6]), [3, 3, 3, 3, 3, 3, 0, 0]);
    assert_eq!(classes([6, 4, 6]), [3, 3, 3, 3, 1, 1, 0, 0]);
    assert_eq!(classes([6, 6, 2]), [3, 3, 2, 2, 2, 2, 0, 0]);
    assert_eq!(classes([6, 4, 1]), [3, 2, 2, 2, 1, 1, 0, 0]);
}

/// What applications see: the class, and that scalar code should leave if there is somewhere to go.
#[test]
fn flags_of_cpus() {
    assert_eq!(policy::cpu_flags(0, 4), 0);
    assert_eq!(policy::cpu_flags(3, 4), 0x83);
    assert_eq!(policy::cpu_flags(3, 0), 3);
}

proptest! {
    /// CPU time counts inversely to weight.
    #[test]
    fn charge_follows_weight(weight in 1u32..10_000 * WEIGHT_UNIT, used_ns in 0u64..1 << 40) {
        let mut task = Task { weight, vtime_ns: 7, ..Task::default() };
        task.charge(used_ns);
        prop_assert_eq!(task.vtime_ns, 7 + used_ns * u64::from(WEIGHT_NICE0) / u64::from(weight));
    }

    /// Entering a queue never carries more lag after its clock than that goes in an eighth of the
    /// longest wait, nor more than two slices of the task, by its weight, before it; within that
    /// the lag is kept.
    #[test]
    fn lag_is_kept_and_limited(
        (vtime_ns, old, new) in (0u64..1 << 50, 0u64..1 << 50, 0u64..1 << 50),
        slice_ns in 1u64..1 << 30,
        weight in 1u32..10_000 * WEIGHT_UNIT,
        id in 1u32..3,
        pace in 1u32..1 << 26,
        most_ns in 1u64..1 << 30,
    ) {
        let mut task = Task { vtime_ns, clock: 1, weight, ..Task::default() };
        let clock = Clock { vtime_ns: new, pace_q10: pace, ..Clock::default() };
        task.place(id, old, &clock, slice_ns, most_ns);
        let lag = vtime_ns as i64 - old as i64;
        let ahead = (2 * slice_ns * u64::from(WEIGHT_NICE0) / u64::from(weight)) as i64;
        let saved = (((most_ns / 8) << 10) / u64::from(pace)) as i64;
        prop_assert_eq!(task.vtime_ns.wrapping_sub(new) as i64, lag.clamp(-saved, ahead));
        prop_assert_eq!(task.clock, id);
    }

    /// What all tasks of a queue use by their weights moves its clock as far as each of them.
    #[test]
    fn clock_is_the_mean(weights in prop::collection::vec(1u32..1000, 1..20), rounds in 1u64..9) {
        let mut clock = Clock::default();
        for &weight in &weights {
            let mut task = Task { weight, ..Task::default() };
            let charged_ns = task.charge(rounds * 1000 * u64::from(weight));
            clock.advance(charged_ns, weights.len() as u32, 0, 1);
        }
        let mean_ns = rounds * 1000 * u64::from(WEIGHT_NICE0);
        prop_assert!(clock.vtime_ns <= mean_ns && clock.vtime_ns + weights.len() as u64 >= mean_ns);
    }
}

/// Wide tasks have a slice of their own.
#[test]
fn slices() {
    let cfg = Cfg { slice_ns: 5, slice_wide_ns: 9, ..Cfg::default() };
    for task in all_tasks() {
        assert_eq!(task.slice_ns(&cfg), if task.task_type == TYPE_WIDE as u8 { 9 } else { 5 });
    }
}
