// SPDX-License-Identifier: MIT OR Apache-2.0
//! Last system calls of sections, policy/last.h: where a task leaves, against what it really does.

use policy::{Cfg, Event, Last, Remigrate, TYPE_SCALAR, TYPE_WIDE, Task};
use proptest::prelude::*;

/// The break-even time, of which an eighth is a short tail.
const EVEN: u64 = 16_000;
const SHORT: u64 = EVEN / 8;
const CFG: Cfg = Cfg {
    slice_ns: 5_000_000,
    slice_wide_ns: 5_000_000,
    wide_timeout_ns: 100_000_000,
    remigrate_timeout_ns: 0,
    rest_below_ns: EVEN,
    remigrate: 1 << 5,
    unclassified: 0,
    counts_q10: [0; 4],
};

/// A task whose sections hold system calls. Where it is away, the ends of its hints are seen when
/// it next does something.
#[derive(Clone)]
struct Walk {
    task: Task,
    by_hints: bool,
    /// Calls that were left in; and long tails that the task ran in as a scalar one.
    nr_left: u32,
    nr_leaked: u32,
}

impl Walk {
    fn new(by_hints: bool) -> Self {
        Walk { task: Task::new(&CFG, TYPE_SCALAR, 0, 0), by_hints, nr_left: 0, nr_leaked: 0 }
    }

    fn tell(&mut self, event: Event) {
        self.task.event(&CFG, event, 2, 1);
    }

    fn is_wide(&self) -> bool {
        self.task.task_type == TYPE_WIDE as u8
    }

    fn ran(&mut self, ns: u64) {
        self.task.ran(ns, self.task.level);
    }

    fn begin(&mut self) {
        self.tell(if self.by_hints { Event::HintBegin } else { Event::MarkEnter });
        assert!(self.is_wide(), "a begin is evidence");
        self.ran(3_000);
    }

    /// A system call in the open section, and what follows it there.
    fn call(&mut self, tail_ns: u64) {
        self.tell(Event::SyscallEntry);
        let left = !self.is_wide();
        self.nr_left += u32::from(left);
        self.ran(10 * EVEN);
        self.tell(Event::SyscallReturn);
        assert_eq!(left, !self.is_wide(), "a return changes nothing");
        self.ran(tail_ns);
        self.nr_leaked += u32::from(left && tail_ns >= SHORT);
    }

    /// The section ends, and scalar code follows. `seen`: where the task is away, its hint is read
    /// now, not later.
    fn end(&mut self, seen: bool) {
        match self.by_hints {
            true => {
                let away = self.task.last.is_away();
                if away && !seen {
                    self.ran(100 * EVEN);
                }
                self.tell(Event::HintEnd);
            }
            false => self.tell(Event::MarkReturn),
        }
        assert!(!self.is_wide());
        self.ran(100 * EVEN);
    }

    fn section(&mut self, tails_ns: &[u64]) {
        self.begin();
        tails_ns.iter().for_each(|&tail_ns| self.call(tail_ns));
        self.end(false);
    }
}

fn both() -> [Walk; 2] {
    [Walk::new(true), Walk::new(false)]
}

/// A section that ends with a call is left in it from the fourth on; by hints, whose ends are not
/// seen then, in all but each fourteenth or so.
#[test]
fn last_calls_are_left_in() {
    for mut walk in both() {
        (0..6).for_each(|_| walk.section(&[0]));
        assert!(walk.nr_left <= 3, "it learns first, and in each place: {}", walk.nr_left);
        walk.nr_left = 0;
        (0..1400).for_each(|_| walk.section(&[SHORT - 1]));
        let most = if walk.by_hints { 1400 - 1400 / 14 } else { 1400 };
        assert!((most - 5..=most).contains(&walk.nr_left), "{}", walk.nr_left);
    }
}

/// A section that goes on with wide code after its call is never left in it.
#[test]
fn calls_before_wide_code_are_not_left_in() {
    for mut walk in both() {
        (0..1000).for_each(|_| walk.section(&[SHORT]));
        assert_eq!((walk.nr_left, walk.nr_leaked), (0, 0));
    }
}

/// A web server's worker: a read with a header, one with a record that is decrypted, one without
/// data; two writes. Each is treated as it should be.
#[test]
fn a_pattern_is_learned() {
    let request = |walk: &mut Walk| {
        walk.section(&[0, 10 * EVEN]);
        (0..3).for_each(|_| walk.section(&[0]));
    };
    for mut walk in both() {
        (0..10).for_each(|_| request(&mut walk));
        (walk.nr_left, walk.nr_leaked) = (0, 0);
        (0..140).for_each(|_| request(&mut walk));
        assert_eq!(walk.nr_leaked, 0);
        assert!(walk.nr_left >= 4 * 140 * 13 / 15, "{} of {}", walk.nr_left, 4 * 140);
    }
}

/// When wide code begins to follow, no more sections run with it where they should not than there
/// may be between two looks; where the kernel comes by, or a trap does, the first one is the last.
#[test]
fn changes_are_noticed() {
    for walk in both() {
        for (event, most) in [
            (None, if walk.by_hints { 14 } else { 1 }),
            (Some(Event::Tick), 1),
            (Some(Event::SwitchOut), 1),
            (Some(Event::Trap), 1),
        ] {
            let mut walk = walk.clone();
            (0..20).for_each(|_| walk.section(&[0]));
            walk.nr_leaked = 0;
            for _ in 0..20 {
                walk.begin();
                walk.call(10 * EVEN);
                let away = walk.task.last.is_away();
                event.into_iter().for_each(|event| walk.tell(event));
                assert!(event.is_none() || walk.is_wide() || !away, "{event:?} brings it back");
                if event == Some(Event::Trap) {
                    walk.task.loose_level = 0;
                }
                walk.end(false);
            }
            // the places of long tails are others: each has its own trust
            assert!(walk.nr_leaked <= most, "{event:?} {}", walk.nr_leaked);
        }
    }
}

/// Nothing of the kind without the setting, without an open section, or with a break-even time of
/// 0.
#[test]
fn who_leaves_has_a_reason() {
    let off = Cfg { remigrate: 0, ..CFG };
    let never = Cfg { rest_below_ns: 0, ..CFG };
    for (cfg, in_section, leaves) in
        [(CFG, true, true), (off, true, false), (never, true, false), (CFG, false, false)]
    {
        let mut task = Task::new(&cfg, TYPE_WIDE, 1, 0);
        for _ in 0..10 {
            if in_section {
                task.event(&cfg, Event::MarkEnter, 2, 1);
            }
            task.event(&cfg, Event::SyscallEntry, 0, 2);
            task.event(&cfg, Event::SyscallReturn, 0, 3);
            task.event(&cfg, Event::MarkReturn, 0, 4);
        }
        task.event(&cfg, Event::MarkEnter, 2, 5);
        if !in_section {
            task.event(&cfg, Event::MarkReturn, 0, 5);
        }
        task.event(&cfg, Event::SyscallEntry, 0, 6);
        assert_eq!(task.last.is_away(), leaves, "{cfg:?} {in_section}");
    }
}

/// A child of a task that is away inherits the section's level, and a call whose end nobody saw
/// does not last for ever.
#[test]
fn away_is_not_over() {
    let mut walk = Walk::new(false);
    (0..20).for_each(|_| walk.section(&[0]));
    walk.begin();
    walk.tell(Event::SyscallEntry);
    assert_eq!((walk.is_wide(), walk.task.bequest()), (false, (TYPE_WIDE, 2)));
    walk.ran(CFG.wide_timeout_ns - 1);
    walk.tell(Event::Tick);
    assert!(!walk.is_wide());
    walk.ran(1);
    walk.tell(Event::Tick);
    assert!(walk.is_wide());
}

/// After a task that was away, a gap is none to stay for: it is not on a wide CPU.
#[test]
fn who_has_left_does_not_stay() {
    let cfg = Cfg {
        remigrate: Remigrate { gap: true, last_syscall: true, ..Remigrate::default() }.bits(),
        ..CFG
    };
    let mut task = Task::new(&cfg, TYPE_SCALAR, 0, 0);
    for round in 0..20 {
        task.event(&cfg, Event::MarkEnter, 2, 1);
        task.flags |= policy::FLAG_RAN_FIT;
        task.event(&cfg, Event::SyscallEntry, 0, 2);
        let away = task.last.is_away();
        task.event(&cfg, Event::SyscallReturn, 0, 3);
        task.event(&cfg, Event::MarkReturn, 0, 4);
        assert_eq!(task.task_type == TYPE_WIDE as u8, !away, "{round}");
    }
    assert_eq!(task.task_type, TYPE_SCALAR as u8, "it has learned");
}

proptest! {
    /// Whatever tails follow each other, and whenever their ends are seen: a task leaves only after
    /// three short tails, and of those that it is wrong about no more than thirteen follow each
    /// other.
    #[test]
    fn mistakes_are_bounded(
        tails in prop::collection::vec(
            (prop::sample::select(&[0, SHORT - 1, SHORT, 10 * EVEN]), any::<bool>()),
            1..400,
        ),
        by_hints: bool,
    ) {
        let (mut walk, mut leaked, mut short) = (Walk::new(by_hints), 0, 0);
        for (tail_ns, seen) in tails {
            let before = walk.nr_leaked;
            let left = walk.nr_left;
            walk.begin();
            walk.call(tail_ns);
            prop_assert!(walk.nr_left == left || short >= 3);
            walk.end(seen);
            leaked = if walk.nr_leaked > before { leaked + 1 } else { 0 };
            short += u32::from(tail_ns < SHORT);
            prop_assert!(leaked <= 13 * 4, "each place by itself");
            prop_assert!(walk.task.last.sure.iter().all(|&sure| sure <= Last::SURE_MOST));
        }
    }

    /// A task that is away is not wide for its sections, one that stays after a section is wide:
    /// after any events.
    #[test]
    fn states_agree_with_types(
        events in prop::collection::vec(
            (prop::sample::select(&Event::ALL[..]), 0u32..4, 0u64..3 * EVEN),
            1..200,
        ),
        remigrate in 0u32..64,
    ) {
        let cfg = Cfg { remigrate, remigrate_timeout_ns: 5, ..CFG };
        let mut task = Task::new(&cfg, TYPE_SCALAR, 0, 0);
        for (at, (event, level, ran_ns)) in events.into_iter().enumerate() {
            let was = (task.task_type, task.level);
            let changed = task.event(&cfg, event, level, at as u64);
            prop_assert_eq!(changed, was != (task.task_type, task.level));
            if task.task_type == TYPE_WIDE as u8 {
                task.flags |= policy::FLAG_RAN_FIT;
            }
            let hints = task.flags & policy::FLAG_HINTS != 0;
            let others = task.loose_level.max(if hints { 0 } else { task.score.level });
            let section = task.hint_level.max(task.mark_level);
            let sections = if task.last.is_away() { 0 } else { section };
            let gap = if task.gap.stays() { task.gap.level } else { 0 };
            prop_assert_eq!(task.level, others.max(sections).max(gap));
            let is_wide = task.task_type == TYPE_WIDE as u8;
            prop_assert!(!task.gap.stays() || task.gap.level > 0 && is_wide);
            task.ran(ran_ns, task.level);
        }
    }
}
