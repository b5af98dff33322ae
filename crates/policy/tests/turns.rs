// SPDX-License-Identifier: MIT OR Apache-2.0
//! policy/turns.h: which of a CPU's queues goes first. What follows for tasks is in waits.rs.

use policy::{
    Cfg, SIDE_DEFAULT, SIDE_NONE, SIDE_OWN, SIDE_PINNED, Sides, Task, Turns, WEIGHT_NICE0,
    WEIGHT_UNIT,
};
use proptest::prelude::*;

const SLICE_NS: u64 = 1_000_000;
const LATE_NS: u64 = 200_000_000;

const CFG: Cfg = Cfg {
    slice_ns: SLICE_NS,
    slice_wide_ns: SLICE_NS,
    wide_timeout_ns: 0,
    rest_below_ns: 0,
    remigrate_timeout_ns: 0,
    remigrate: 0,
    unclassified: 0,
    counts_q10: [0; 4],
};

const NOW_NS: u64 = 1 << 40;

/// So many tasks on each side, all due now.
fn even(nr_tasks: [u32; 3]) -> Sides {
    Sides { key_ns: [NOW_NS; 3], nr_tasks }
}

/// A task on the clock with this id.
fn task(clock: u32) -> Task {
    Task { weight: WEIGHT_NICE0, clock, ..Task::default() }
}

/// Charge a turn of a side.
fn turn(turns: &mut Turns, side: u32, nr_tasks: u32, used_ns: u64) {
    turns.begin(side, 7, nr_tasks, 1);
    turns.charge(&mut task(7), &CFG, used_ns, false);
    turns.end();
}

/// Of nothing there is nothing to choose; of one side that side.
#[test]
fn who_is_alone_goes_first() {
    let mut turns = Turns::default();
    assert_eq!(turns.choose(&even([0; 3]), SLICE_NS, NOW_NS), SIDE_NONE);
    assert_eq!(turns.choose(&even([0, 0, 4]), SLICE_NS, NOW_NS), SIDE_PINNED);
    assert_eq!(turns.choose(&even([0, 1, 0]), SLICE_NS, NOW_NS), SIDE_DEFAULT);
    assert_eq!(turns.choose(&even([2, 1, 0]), SLICE_NS, NOW_NS), SIDE_OWN);
}

/// Sides take turns, by what each of their tasks has had.
#[test]
fn sides_share_by_their_tasks() {
    let mut turns = Turns::default();
    let sides = even([3, 1, 2]);
    let mut had = [0u32; 3];
    for _ in 0..600 {
        let side = turns.choose(&sides, SLICE_NS, NOW_NS);
        had[side as usize] += 1;
        turn(&mut turns, side, sides.nr_tasks[side as usize], SLICE_NS);
    }
    assert_eq!(had, [300, 100, 200]);
}

/// A side that had no tasks for a while has saved a slice, and no more.
#[test]
fn who_comes_back_saves_little() {
    let mut turns = Turns::default();
    for _ in 0..100 {
        let side = turns.choose(&even([1, 1, 0]), SLICE_NS, NOW_NS);
        turn(&mut turns, side, 1, SLICE_NS);
    }
    let mut pinned = 0;
    for _ in 0..50 {
        let side = turns.choose(&even([1, 1, 1]), SLICE_NS, NOW_NS);
        pinned += u32::from(side == SIDE_PINNED);
        turn(&mut turns, side, 1, SLICE_NS);
    }
    assert!((1 + 16..=1 + 17).contains(&pinned), "{pinned}");
}

/// Nor does one that comes back when the others have none, or after nobody had any.
#[test]
fn who_comes_back_alone_saves_little() {
    for idles in [false, true] {
        let mut turns = Turns::default();
        for _ in 0..100 {
            assert_eq!(turns.choose(&even([1, 0, 0]), SLICE_NS, NOW_NS), SIDE_OWN);
            turn(&mut turns, SIDE_OWN, 1, SLICE_NS);
        }
        if idles {
            turns.choose(&even([0; 3]), SLICE_NS, NOW_NS);
        }
        assert_eq!(turns.choose(&even([0, 1, 0]), SLICE_NS, NOW_NS), SIDE_DEFAULT);
        let mut own = 0;
        for _ in 0..50 {
            let side = turns.choose(&even([1, 1, 0]), SLICE_NS, NOW_NS);
            own += u32::from(side == SIDE_OWN);
            turn(&mut turns, side, 1, SLICE_NS);
        }
        assert!((24..=25).contains(&own), "{own}");
    }
}

/// A head that has been due for much longer goes first, whosever turn it is; by less it does not.
#[test]
fn who_is_late_goes_first() {
    let mut turns = Turns::default();
    turn(&mut turns, SIDE_DEFAULT, 1, SLICE_NS);
    let at = |late_ns: u64| Sides { key_ns: [NOW_NS, NOW_NS - late_ns, 0], nr_tasks: [1, 1, 0] };
    turns.choose(&at(0), SLICE_NS, NOW_NS);
    turn(&mut turns, SIDE_DEFAULT, 1, SLICE_NS);
    assert_eq!(turns.choose(&at(LATE_NS), SLICE_NS, NOW_NS), SIDE_OWN);
    assert_eq!(turns.choose(&at(LATE_NS + 1), SLICE_NS, NOW_NS), SIDE_DEFAULT);
    // as signed numbers: a key may be from before the clock's zero
    let early = Sides { key_ns: [5, 5u64.wrapping_sub(LATE_NS + 1), 0], nr_tasks: [1, 1, 0] };
    assert_eq!(turns.choose(&early, SLICE_NS, 5), SIDE_DEFAULT);
    // both have been due for long: as they were due, but for the same distance
    let both = at(LATE_NS + 1);
    assert_eq!(turns.choose(&both, SLICE_NS, NOW_NS + 9 * LATE_NS), SIDE_DEFAULT);
    assert_eq!(turns.choose(&at(LATE_NS), SLICE_NS, NOW_NS + 9 * LATE_NS), SIDE_OWN);
}

/// A side keeps its part of the CPU however far away the time is at which its head is due: the
/// clock of a queue that hardly gets a turn says little about that.
#[test]
fn who_is_due_later_keeps_its_turns() {
    let mut turns = Turns::default();
    let sides = Sides { key_ns: [NOW_NS + 5 * LATE_NS, NOW_NS, 0], nr_tasks: [1, 1, 0] };
    let mut had = [0u32; 3];
    for _ in 0..100 {
        let side = turns.choose(&sides, SLICE_NS, NOW_NS);
        had[side as usize] += 1;
        turn(&mut turns, side, 1, SLICE_NS);
    }
    assert_eq!(had, [50, 50, 0]);
    // whoever has been due for that long goes first all the same
    turn(&mut turns, SIDE_DEFAULT, 1, SLICE_NS);
    assert_eq!(turns.choose(&sides, SLICE_NS, NOW_NS + LATE_NS), SIDE_OWN);
    assert_eq!(turns.choose(&sides, SLICE_NS, NOW_NS + LATE_NS + 1), SIDE_DEFAULT);
}

/// Without a turn of its queue's, what a task uses is not counted.
#[test]
fn only_turns_count() {
    let mut turns = Turns::default();
    turns.charge(&mut task(7), &CFG, SLICE_NS, false);
    assert_eq!(turns.served_ns, [0; 3]);
    turns.begin(SIDE_DEFAULT, 8, 1, 1);
    turns.charge(&mut task(7), &CFG, SLICE_NS, false);
    assert_eq!(turns.served_ns, [0; 3], "another queue's task");
    turn(&mut turns, SIDE_OWN, 4, SLICE_NS);
    assert_eq!(turns.served_ns, [SLICE_NS / 4, 0, 0]);
    turns.charge(&mut task(7), &CFG, SLICE_NS, false);
    assert_eq!(turns.served_ns, [SLICE_NS / 4, 0, 0], "the turn has ended");
}

/// Tasks that always go first when they may get half of a CPU that others want too, and a slice or
/// two to begin with; on a CPU that nobody else wants they owe nothing afterwards.
#[test]
fn who_goes_first_gets_half() {
    let mut turns = Turns::default();
    let (mut first_ns, mut rest_ns) = (0, 0);
    for _ in 0..10_000 {
        let first = turns.goes_first(true, true, SLICE_NS);
        let used_ns = if first { SLICE_NS / 100 } else { SLICE_NS };
        turns.charge(&mut task(0), &CFG, used_ns, first);
        *(if first { &mut first_ns } else { &mut rest_ns }) += used_ns;
    }
    assert!(first_ns <= rest_ns + 2 * SLICE_NS, "{first_ns} {rest_ns}");
    assert!(first_ns * 10 >= rest_ns * 9, "{first_ns} {rest_ns}");
    turns.charge(&mut task(0), &CFG, 1000 * SLICE_NS, true);
    assert!(!turns.goes_first(true, true, SLICE_NS));
    turns.charge(&mut task(0), &CFG, SLICE_NS, false);
    assert!(turns.goes_first(true, true, SLICE_NS));
    assert!(!turns.goes_first(false, true, SLICE_NS) && !turns.goes_first(true, false, SLICE_NS));
}

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::with_cases(200)
    })]

    /// A lead is bounded by two slices of the task charged, and a charge takes nothing back.
    #[test]
    fn a_lead_is_bounded(charges in prop::collection::vec(
        (0u32..3, 1u32..10, 1u32..10_000 * WEIGHT_UNIT, 0u64..100 * SLICE_NS), 0..100)) {
        let mut turns = Turns::default();
        for (side, nr_tasks, weight, used_ns) in charges {
            turns.choose(&even([1; 3]), SLICE_NS, NOW_NS);
            let before = turns.served_ns;
            let least = *before.iter().min().unwrap();
            turns.begin(side, 7, nr_tasks, 1);
            turns.charge(&mut Task { weight, ..task(7) }, &CFG, used_ns, false);
            let limit_ns = 2 * SLICE_NS * u64::from(WEIGHT_NICE0) / u64::from(weight);
            for (i, (&before_ns, &after_ns)) in before.iter().zip(&turns.served_ns).enumerate() {
                let ahead_ns = if i == side as usize { least + limit_ns } else { 0 };
                let most_ns = before_ns.max(ahead_ns);
                prop_assert!(after_ns >= before_ns && after_ns <= most_ns);
            }
        }
    }
}
