// SPDX-License-Identifier: MIT OR Apache-2.0
//! How long a task that has trapped counts as wide (policy/stay.h): never paid more than twice,
//! whatever it does.

use policy::{Cfg, Event, FLAG_RAN_FIT, Stay, TYPE_SCALAR, TYPE_WIDE, Task, WIDE_TIMEOUT_NS};
use proptest::prelude::*;

const CFG: Cfg = Cfg {
    slice_ns: 5_000_000,
    slice_wide_ns: 5_000_000,
    wide_timeout_ns: WIDE_TIMEOUT_NS,
    remigrate_timeout_ns: 0,
    rest_below_ns: 0,
    remigrate: 0,
    unclassified: 0,
    counts_q10: [0; 4],
};

const LEAST: u64 = Stay::LEAST_NS;

/// A task on a CPU: it traps at wide code unless it counts as wide, and makes a system call after
/// each step.
struct Walk {
    task: Task,
    now_ns: u64,
    traps: u64,
    /// Scalar code that ran while it counted as wide.
    stayed_ns: u64,
}

impl Walk {
    fn new() -> Self {
        Walk { task: Task::new(&CFG, 0, 0, 0), now_ns: 1, traps: 0, stayed_ns: 0 }
    }

    fn is_wide(&self) -> bool {
        self.task.task_type == TYPE_WIDE as u8
    }

    fn step(&mut self, ns: u64, wide_code: bool) {
        if wide_code && !self.is_wide() {
            self.traps += 1;
            self.task.event(&CFG, Event::Trap, 2, self.now_ns);
            self.task.flags |= FLAG_RAN_FIT;
        }
        if !wide_code && self.is_wide() {
            self.stayed_ns += ns;
        }
        self.now_ns += ns;
        let level = self.task.level;
        self.task.ran(ns, level);
        self.task.event(&CFG, Event::SyscallEntry, 0, self.now_ns);
    }

    fn run(&mut self, ns: u64, wide_code: bool) {
        for _ in 0..ns / 10_000 {
            self.step(10_000, wide_code);
        }
    }
}

/// One short section is over at its system call, or without one after the break-even time, however
/// long it slept or waited in between.
#[test]
fn a_short_section_is_a_short_stay() {
    let mut walk = Walk::new();
    walk.step(5_000, true);
    assert_eq!(walk.task.task_type, TYPE_SCALAR as u8, "at the system call");
    let mut task = Task::new(&CFG, 0, 0, 0);
    task.event(&CFG, Event::Trap, 2, 1);
    task.event(&CFG, Event::SwitchOut, 0, 50_000_000);
    assert_eq!(task.task_type, TYPE_WIDE as u8, "time that it waits does not count");
    task.ran(LEAST, 2);
    task.event(&CFG, Event::SwitchOut, 0, 50_000_000);
    assert_eq!(task.task_type, TYPE_WIDE as u8, "nor the kernel's on its way to a wide CPU");
    task.flags |= FLAG_RAN_FIT;
    task.ran(LEAST, 2);
    task.event(&CFG, Event::SwitchOut, 0, 50_000_001);
    assert_eq!(task.task_type, TYPE_SCALAR as u8, "after the break-even time");
}

/// A web server's worker, 20 us of wide code in each millisecond, is wide for less than a tenth of
/// its time.
#[test]
fn a_worker_is_hardly_ever_wide() {
    let mut walk = Walk::new();
    for _ in 0..1000 {
        walk.step(20_000, true);
        walk.run(980_000, false);
    }
    assert_eq!((walk.traps, walk.stayed_ns), (1000, 0));
    for _ in 0..1000 {
        walk.step(20_000, true); // a response ...
        walk.run(30_000, false);
        walk.step(5_000, true); // ... and the next request, too early for a stay to be over
        walk.run(980_000, false);
    }
    assert_eq!((walk.traps, walk.stayed_ns), (3000, 0));
}

/// A loop that is wide throughout traps a dozen times, then once in each wide timeout.
#[test]
fn a_wide_loop_is_left_alone() {
    let mut walk = Walk::new();
    walk.run(10_000_000_000, true);
    assert!(walk.traps <= 2 * 10_000_000_000 / WIDE_TIMEOUT_NS + 20, "{} traps", walk.traps);
}

/// The timer's time is the one at which the stay ends, to the nanosecond, and there is none for a
/// task that has not reached a wide CPU, or has a section open.
#[test]
fn the_timer_knows_when_a_stay_is_over() {
    for early in 0..=Stay::EARLY_MOST {
        let mut task = Task::new(&CFG, 0, 0, 0);
        assert_eq!(task.stays_ns(&CFG), 0, "no trap");
        task.event(&CFG, Event::Trap, 2, 1);
        task.stay.early = early;
        assert_eq!(task.stays_ns(&CFG), 0, "on its way");
        task.flags |= FLAG_RAN_FIT;
        let left_ns = task.stays_ns(&CFG);
        assert!((LEAST..=WIDE_TIMEOUT_NS).contains(&left_ns), "{left_ns} after {early}");
        task.ran(left_ns - 1, 2);
        assert_eq!(task.stays_ns(&CFG), 1);
        assert!(!task.event(&CFG, Event::Tick, 0, 2), "too early");
        task.ran(1, 2);
        assert_eq!(task.stays_ns(&CFG), 0);
        assert!(task.event(&CFG, Event::Tick, 0, 2) && task.stays_ns(&CFG) == 0, "over");
        task.event(&CFG, Event::Trap, 2, 1);
        task.event(&CFG, Event::MarkEnter, 2, 1);
        assert_eq!(task.stays_ns(&CFG), 0, "a section has no such end");
    }
}

/// What it learned in such a loop is forgotten after a few short sections.
#[test]
fn long_stays_are_unlearned() {
    let mut walk = Walk::new();
    walk.run(1_000_000_000, true);
    walk.run(300_000_000, false);
    assert!(walk.task.stay.early >= 8 && !walk.is_wide());
    for _ in 0..5 {
        walk.step(20_000, true);
        walk.run(300_000_000, false);
    }
    assert_eq!(walk.task.stay.early, 0);
}

/// A timeout of 0 is never; a short one bounds every stay.
#[test]
fn the_timeout_bounds_stays() {
    for (wide_timeout_ns, after_ns, wide) in
        [(0, u64::MAX, true), (20_000, 20_000, false), (20_000, 19_999, true)]
    {
        let cfg = Cfg { wide_timeout_ns, ..CFG };
        let mut task = Task::new(&cfg, 0, 0, 0);
        task.event(&cfg, Event::Trap, 2, 1);
        task.flags |= FLAG_RAN_FIT;
        task.ran(after_ns, 2);
        task.event(&cfg, Event::SwitchOut, 0, 2);
        assert_eq!(task.task_type == TYPE_WIDE as u8, wide, "{wide_timeout_ns} {after_ns}");
    }
}

/// Who inherits a level stays for the wide timeout: it has not trapped.
#[test]
fn heirs_stay_for_the_timeout() {
    let mut child = Task::new(&CFG, TYPE_WIDE, 2, 1);
    child.flags |= FLAG_RAN_FIT;
    child.ran(WIDE_TIMEOUT_NS - 1, 2);
    assert!(!child.event(&CFG, Event::SwitchOut, 0, 2));
    child.ran(1, 2);
    assert!(child.event(&CFG, Event::SwitchOut, 0, 2));
}

proptest! {
    /// Whatever a task does: the scalar code of a stay is never more than that stay, and stays grow
    /// only where the wide code came back at once. So each doubled stay follows one that ended too
    /// early.
    #[test]
    fn stays_are_paid_for(phases in prop::collection::vec((0u64..400, 1u64..4000), 1..60)) {
        let mut walk = Walk::new();
        for (wide, scalar) in phases {
            let (before, early) = (walk.stayed_ns, walk.task.stay.early);
            walk.run(wide * 10_000, true);
            walk.run(scalar * 10_000, false);
            let doubled = walk.task.stay.early.max(early).saturating_sub(Stay::CALLS);
            let most = (LEAST << doubled).min(WIDE_TIMEOUT_NS);
            prop_assert!(walk.stayed_ns - before <= most, "one phase of scalar code, one stay");
        }
    }
}
