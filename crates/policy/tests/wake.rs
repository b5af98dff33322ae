// SPDX-License-Identifier: MIT OR Apache-2.0
//! policy/wake.h: which task is displaced by one that wakes. What follows for tasks is in
//! crates/sim/tests/wakes.rs.

use policy::{
    Cfg, Comer, Event, FLAG_WAS_WIDE, Run, SIDE_OWN, SIDE_PINNED, Sides, TYPE_DEFAULT, TYPE_SCALAR,
    TYPE_WIDE, Task, Turns, WEIGHT_NICE0, WEIGHT_UNIT, WakeFrom, pinned_id, queue_id,
};
use proptest::prelude::*;

/// What the other must have had more.
const WAKE_NS: u64 = 1_000_000;
const SLICE_NS: u64 = 20_000_000;
const NOW_NS: u64 = 1 << 40;
const OTHER: u32 = 7;

fn cfg() -> Cfg {
    Cfg { slice_ns: SLICE_NS, slice_wide_ns: SLICE_NS, ..Cfg::default() }
}

fn task(clock: u32, weight: u32, vtime_ns: u64) -> Task {
    Task { weight, clock, vtime_ns, ..Task::default() }
}

/// What runs: it began a second ago, and was charged up to now.
fn run(task: &Task) -> Run {
    let mut run = Run::default();
    run.begins(task, NOW_NS - 1_000_000_000);
    run.note(task, NOW_NS);
    run
}

/// It has slept.
fn woken(task: &Task, side: u32) -> Comer<'_> {
    Comer { task, clock_ns: 0, wakes: true, side }
}

fn displaces(run: &Run, t: &Task, later_ns: u64) -> bool {
    run.is_displaced_by(&Turns::default(), &woken(t, SIDE_PINNED), SLICE_NS, NOW_NS + later_ns)
}

/// In one queue virtual time counts, what was used since the last charge included.
#[test]
fn who_has_had_a_millisecond_more_is_displaced() {
    let clock = pinned_id(3);
    let wakes = task(clock, WEIGHT_NICE0, 5_000_000);
    let running = |ahead_ns: u64| run(&task(clock, WEIGHT_NICE0, 5_000_000 + ahead_ns));
    assert!(!displaces(&running(0), &wakes, WAKE_NS - 1));
    assert!(displaces(&running(0), &wakes, WAKE_NS));
    assert!(!displaces(&running(WAKE_NS - 2), &wakes, 1));
    assert!(displaces(&running(WAKE_NS - 1), &wakes, 1));
    // who is ahead itself displaces nobody
    let ahead = task(clock, WEIGHT_NICE0, 50_000_000);
    assert!(!displaces(&running(0), &ahead, 40_000_000));
    // clocks begin below zero
    let below = task(clock, WEIGHT_NICE0, 0u64.wrapping_sub(WAKE_NS));
    assert!(displaces(&run(&task(clock, WEIGHT_NICE0, 0)), &below, 0));
}

/// A heavy task is displaced later by the same CPU time, and a light one waits for longer.
#[test]
fn weights_count() {
    let clock = pinned_id(0);
    let at = |weight| task(clock, weight, 0);
    let (heavy, light) = (10 * WEIGHT_NICE0, WEIGHT_NICE0 / 10);
    assert!(!displaces(&run(&at(heavy)), &at(WEIGHT_NICE0), 10 * WAKE_NS - 10));
    assert!(displaces(&run(&at(heavy)), &at(WEIGHT_NICE0), 10 * WAKE_NS + 10));
    assert!(!displaces(&run(&at(WEIGHT_NICE0)), &at(light), 10 * WAKE_NS - 10));
    assert!(displaces(&run(&at(WEIGHT_NICE0)), &at(light), 10 * WAKE_NS + 10));
}

/// Where the running task's side is not counted, because it came past the queues, it is left for a
/// millisecond.
#[test]
fn who_came_past_the_queues_has_a_millisecond() {
    let wakes = task(pinned_id(0), WEIGHT_NICE0, 0);
    let mut running = Run::default();
    running.begins(&task(OTHER, WEIGHT_NICE0, 0), NOW_NS);
    assert!(!displaces(&running, &wakes, WAKE_NS - 1));
    assert!(displaces(&running, &wakes, WAKE_NS));
    // and a charge, at a tick, is no beginning
    running.note(&task(OTHER, WEIGHT_NICE0, 0), NOW_NS + WAKE_NS / 2);
    assert!(displaces(&running, &wakes, WAKE_NS));
}

/// A task of a shared queue runs, in its turn, on a CPU whose own queue is empty. Whoever wakes
/// there and has had less displaces it, within what its side saves.
#[test]
fn sides_are_compared() {
    let wakes = task(pinned_id(0), WEIGHT_NICE0, 0);
    let mut other = task(OTHER, WEIGHT_NICE0, 0);
    let alone = Sides { key_ns: [NOW_NS; 3], nr_tasks: [4, 0, 0] };
    let mut turns = Turns::default();
    assert_eq!(turns.choose(&alone, SLICE_NS, NOW_NS), SIDE_OWN);
    turns.begin(SIDE_OWN, OTHER, 4, 2);
    let displaces = |turns: &Turns, other: &Task, later_ns| {
        run(other).is_displaced_by(turns, &woken(&wakes, SIDE_PINNED), SLICE_NS, NOW_NS + later_ns)
    };
    // two tasks for each CPU: half of what the CPU gives is a task's
    assert!(!displaces(&turns, &other, 2 * WAKE_NS - 2));
    assert!(displaces(&turns, &other, 2 * WAKE_NS));
    turns.charge(&mut other, &cfg(), 2 * WAKE_NS, false);
    assert!(displaces(&turns, &other, 0));
    // the pinned side has its millisecond, and sleeps
    assert_eq!(
        turns.choose(&Sides { nr_tasks: [4, 0, 1], ..alone }, SLICE_NS, NOW_NS),
        SIDE_PINNED
    );
    turns.begin(SIDE_PINNED, pinned_id(0), 1, 1);
    turns.charge(&mut task(pinned_id(0), WEIGHT_NICE0, 0), &cfg(), WAKE_NS, false);
    assert_eq!(turns.choose(&alone, SLICE_NS, NOW_NS), SIDE_OWN);
    turns.begin(SIDE_OWN, OTHER, 4, 2);
    assert!(!displaces(&turns, &other, 2 * WAKE_NS - 2));
    assert!(displaces(&turns, &other, 2 * WAKE_NS));
}

proptest! {
    /// Whatever a task does, it displaces others for no more than its share and what is saved: of
    /// a CPU that a busy side of two tasks for it wants, a third.
    #[test]
    fn nobody_takes_more_by_waking(
        steps in prop::collection::vec((1u64..5_000_000, 0u64..5_000_000), 50..400),
    ) {
        let mut turns = Turns::default();
        let mut pinned = task(pinned_id(0), WEIGHT_NICE0, 0);
        let mut other = task(OTHER, WEIGHT_NICE0, 0);
        let (mut now_ns, mut pinned_ns, mut other_ns, mut longest_ns) = (NOW_NS, 0, 0, 0);
        let sides = |nr_pinned| Sides { key_ns: [NOW_NS; 3], nr_tasks: [2, 0, nr_pinned] };
        for (work_ns, sleep_ns) in steps {
            // asleep: the other side has the CPU
            prop_assert_eq!(turns.choose(&sides(0), SLICE_NS, NOW_NS), SIDE_OWN);
            turns.begin(SIDE_OWN, OTHER, 2, 1);
            let mut run = Run::default();
            run.begins(&other, now_ns);
            now_ns += sleep_ns;
            // awake: it displaces the other, or waits until it would
            let mut waited_ns = 0;
            let comer = woken(&pinned, SIDE_PINNED);
            while !run.is_displaced_by(&turns, &comer, SLICE_NS, now_ns + waited_ns) {
                waited_ns += 100_000;
            }
            turns.charge(&mut other, &cfg(), sleep_ns + waited_ns, false);
            now_ns += waited_ns;
            other_ns += sleep_ns + waited_ns;
            longest_ns = longest_ns.max(waited_ns);
            prop_assert_eq!(turns.choose(&sides(1), SLICE_NS, NOW_NS), SIDE_PINNED);
            turns.begin(SIDE_PINNED, pinned_id(0), 1, 1);
            turns.charge(&mut pinned, &cfg(), work_ns, false);
            now_ns += work_ns;
            pinned_ns += work_ns;
            let most_ns = other_ns / 2 + SLICE_NS + 5_000_000;
            prop_assert!(pinned_ns <= most_ns, "{} {}", pinned_ns, other_ns);
        }
        // what it had more at once, twice, since the others are two, and the millisecond
        prop_assert!(longest_ns <= 2 * (5_000_000 + WAKE_NS) + 100_000, "{}", longest_ns);
    }

    /// No numbers make it panic, and what has had nothing is never displaced at once.
    #[test]
    fn any_numbers_will_do(
        vtime_ns: u64,
        since_ns: u64,
        weight in 1..10_000 * WEIGHT_UNIT,
        now_ns: u64,
    ) {
        let mut running = Run::default();
        let t = task(OTHER, weight, vtime_ns);
        running.begins(&t, since_ns);
        let turns = Turns::default();
        let pinned = task(pinned_id(1), weight, 0);
        running.is_displaced_by(&turns, &woken(&pinned, SIDE_PINNED), SLICE_NS, now_ns);
        prop_assert!(!running.is_displaced_by(&turns, &woken(&t, SIDE_OWN), SLICE_NS, since_ns));
    }
}

/// Where a task looks for something to displace that waits now, and came so long ago to the CPU of
/// this class where it was.
fn looks_at(t: &Task, class: u32, wakes: bool, ran_ns: u64) -> Option<usize> {
    let from = WakeFrom { cpu: 3, class, shard: 0, scalar_cpu: 1, began_ns: NOW_NS - ran_ns };
    t.wake_cpu(&from, wakes, NOW_NS)
}

/// A task of this type and level, in its queue.
fn waits(task_type: u32, level: u8) -> Task {
    let t = Task { task_type: task_type as u8, level, caps: 7, ..Task::default() };
    Task { clock: queue_id(0, t.queue()), ..t }
}

#[test]
fn who_comes_back_from_a_wide_cpu_looks_at_its_last_scalar_one() {
    let scalar = waits(TYPE_SCALAR, 0);
    let was_wide = Task { flags: FLAG_WAS_WIDE, ..scalar };
    assert_eq!(looks_at(&was_wide, 1, false, WAKE_NS - 1), Some(1));
    assert_eq!(looks_at(&was_wide, 1, false, WAKE_NS), None, "it may have had a slice");
    assert_eq!(looks_at(&scalar, 1, false, 0), None, "it was a guest, and had to go");
    assert_eq!(looks_at(&scalar, 1, true, 10 * WAKE_NS), Some(1), "it slept");
    // where its CPU serves its queue, only a wakeup displaces
    assert_eq!(looks_at(&was_wide, 0, false, 0), None);
    assert_eq!(looks_at(&was_wide, 0, true, 0), Some(3));
    // others are no guests: they look where they were, if they wake
    for (t, class) in
        [(waits(TYPE_WIDE, 2), 1), (waits(TYPE_WIDE, 1), 0), (waits(TYPE_DEFAULT, 0), 1)]
    {
        let t = Task { flags: FLAG_WAS_WIDE, ..t };
        assert_eq!(looks_at(&t, class, false, 0), None, "{t:?} {class}");
    }
    // it has been on no scalar CPU yet
    let from = WakeFrom { cpu: 3, class: 1, scalar_cpu: -1, began_ns: NOW_NS, shard: 0 };
    assert_eq!(was_wide.wake_cpu(&from, true, NOW_NS), None);
}

/// What was wide before a task came to its CPU says nothing about its time there.
#[test]
fn a_task_was_wide_since_it_came() {
    let mut t = waits(TYPE_SCALAR, 0);
    let was_wide = |t: &Task| t.flags & FLAG_WAS_WIDE != 0;
    t.comes();
    assert!(!was_wide(&t));
    t.event(&cfg(), Event::HintBegin, 1, NOW_NS);
    assert!(was_wide(&t), "a section has begun here");
    t.comes();
    assert!(was_wide(&t), "it goes on here");
    t.event(&cfg(), Event::HintEnd, 0, NOW_NS);
    assert!(was_wide(&t), "it has ended here");
    t.comes();
    assert!(!was_wide(&t));
}

/// Where others have had more than who comes back, only those count that are ahead of the queue.
#[test]
fn who_comes_back_has_saved_up_nothing() {
    let clock = pinned_id(0);
    let (owed, running) =
        (task(clock, WEIGHT_NICE0, 5_000_000), task(clock, WEIGHT_NICE0, 7_000_000));
    let displaces = |wakes, clock_ns| {
        let comer = Comer { task: &owed, clock_ns, wakes, side: SIDE_PINNED };
        run(&running).is_displaced_by(&Turns::default(), &comer, SLICE_NS, NOW_NS)
    };
    assert!(displaces(true, 6_500_000));
    assert!(!displaces(false, 6_500_000));
    assert!(displaces(false, 6_000_000));
    assert!(displaces(false, 0), "it is ahead of the clock itself");
}
