// SPDX-License-Identifier: MIT OR Apache-2.0
//! Gaps between sections, policy/gap.h: what staying and leaving cost, against the best in
//! hindsight.

use policy::{Cfg, Event, FLAG_RAN_FIT, Gap, Remigrate, TYPE_SCALAR, TYPE_WIDE, Task};
use proptest::prelude::*;

/// The break-even time.
const EVEN: u64 = 16_000;
const CFG: Cfg = Cfg {
    slice_ns: 5_000_000,
    slice_wide_ns: 5_000_000,
    wide_timeout_ns: 100_000_000,
    remigrate_timeout_ns: 0,
    rest_below_ns: EVEN,
    remigrate: 1 << 4,
    unclassified: 0,
    counts_q10: [0; 4],
};

/// A task that goes from section to section, and what its gaps cost: what it stays, and the
/// break-even time for each time that it leaves. What the policy itself keeps of that is not looked
/// at.
struct Walk {
    task: Task,
    begin: Event,
    end: Event,
    cost_ns: u64,
    best_ns: u64,
    nr_left: u32,
}

impl Walk {
    fn new(begin: Event, end: Event) -> Self {
        let task = Task::new(&CFG, TYPE_SCALAR, 0, 0);
        Walk { task, begin, end, cost_ns: 0, best_ns: 0, nr_left: 0 }
    }

    fn tell(&mut self, event: Event) {
        self.task.event(&CFG, event, 2, 1);
        // as the adapters do, on a wide CPU
        if self.task.task_type == TYPE_WIDE as u8 {
            self.task.flags |= FLAG_RAN_FIT;
        }
    }

    fn is_wide(&self) -> bool {
        self.task.task_type == TYPE_WIDE as u8
    }

    /// A section, and a gap of so many ns; looked at when the stay is over, at the latest.
    fn round(&mut self, gap_ns: u64) {
        self.tell(self.begin);
        self.task.ran(3_000, 2);
        self.tell(self.end);
        let mut ran_ns = 0;
        while self.is_wide() && ran_ns < gap_ns {
            let step_ns = self.task.stays_ns(&CFG).clamp(1, gap_ns - ran_ns);
            self.task.ran(step_ns, 2);
            ran_ns += step_ns;
            self.tell(Event::Tick);
        }
        let left = !self.is_wide();
        self.cost_ns += ran_ns + if left { EVEN } else { 0 };
        self.best_ns += gap_ns.min(EVEN);
        self.nr_left += u32::from(left);
        self.task.ran(gap_ns - ran_ns, 0);
    }

    fn rounds(&mut self, gaps_ns: &[u64]) {
        gaps_ns.iter().for_each(|&gap_ns| self.round(gap_ns));
    }

    /// Twice the best, and the slack.
    fn is_bounded(&self) -> bool {
        self.cost_ns <= 2 * self.best_ns + EVEN * u64::from(Gap::SLACK) / u64::from(Gap::EVEN)
    }
}

fn hints() -> Walk {
    Walk::new(Event::HintBegin, Event::HintEnd)
}

fn marks() -> Walk {
    Walk::new(Event::MarkEnter, Event::MarkReturn)
}

/// Every sequence of ten gaps that are nothing, below half of the break-even time, just below it,
/// or long: never worse than twice the best in hindsight, but for the slack, at any of its ends.
#[test]
fn no_sequence_costs_more_than_twice_the_best() {
    const GAPS: [u64; 4] = [0, EVEN / 2 - 1, EVEN - 1, EVEN];
    for sequence in 0..4u32.pow(10) {
        let mut walk = marks();
        for at in 0..10 {
            walk.round(GAPS[(sequence >> (2 * at) & 3) as usize]);
            assert!(walk.is_bounded(), "{sequence:#x}: {} {}", walk.cost_ns, walk.best_ns);
        }
    }
}

/// The adversary that knows the rule: whatever the task does next is wrong.
#[test]
fn who_knows_the_rule_gains_no_more_than_the_slack() {
    let mut walk = hints();
    for _ in 0..100_000 {
        let mut probe = Walk { task: walk.task, ..hints() };
        probe.round(0);
        // it leaves at once: the next section comes at once; it stays: the gap is long
        walk.round(if probe.nr_left > 0 { 0 } else { EVEN });
        assert!(walk.is_bounded(), "{} {}", walk.cost_ns, walk.best_ns);
    }
    assert!(walk.cost_ns > 3 * walk.best_ns / 2, "it was one");
}

/// Long gaps are left for at once, after a few; what that saves is nearly all of what staying costs
/// beyond the best.
#[test]
fn long_gaps_are_left_for_at_once() {
    for mut walk in [hints(), marks()] {
        walk.rounds(&[10 * EVEN; 1000]);
        assert!(walk.cost_ns < walk.best_ns + 10 * EVEN, "{} {}", walk.cost_ns, walk.best_ns);
    }
}

/// Short gaps are stayed for, each of them, and again soon after long ones.
#[test]
fn short_gaps_are_stayed_for() {
    for mut walk in [hints(), marks()] {
        walk.rounds(&[EVEN / 4; 1000]);
        assert_eq!((walk.nr_left, walk.cost_ns), (0, walk.best_ns));
        walk.rounds(&[10 * EVEN; 1000]);
        walk.nr_left = 0;
        walk.rounds(&[EVEN / 4; 1000]);
        assert!(walk.nr_left < 30, "{}", walk.nr_left);
    }
}

/// A web server's worker: in each request one long gap between three short ones. Each is soon
/// treated as it should be.
#[test]
fn a_pattern_is_learned() {
    let request = [EVEN / 8, 100 * EVEN, EVEN / 8, EVEN / 8];
    let mut walk = hints();
    (0..20).for_each(|_| walk.rounds(&request));
    (walk.cost_ns, walk.best_ns, walk.nr_left) = (0, 0, 0);
    (0..100).for_each(|_| walk.rounds(&request));
    assert_eq!((walk.cost_ns, walk.nr_left), (walk.best_ns, 100));
}

/// A gap that is known to be long is left for at once, whatever was learned, and changes nothing of
/// that.
#[test]
fn announced_gaps_are_left_for() {
    let mut walk = hints();
    walk.rounds(&[EVEN / 4; 100]);
    let learned = walk.task.gap;
    for _ in 0..100 {
        walk.tell(Event::HintBegin);
        walk.tell(Event::HintAway);
        assert!(!walk.is_wide());
        walk.task.ran(10 * EVEN, 0);
    }
    walk.tell(Event::HintBegin);
    let gap = walk.task.gap;
    assert_eq!((gap.lean, gap.spent, gap.past), (learned.lean, learned.spent, learned.past));
}

/// A section of hints that nobody saw begin is seen at its end: the gap before it was short, and
/// the task stays again.
#[test]
fn unseen_sections_count() {
    let mut walk = hints();
    walk.tell(Event::HintBegin);
    for _ in 0..100 {
        walk.tell(Event::HintEnd);
        assert!(walk.is_wide());
        walk.task.ran(EVEN / 2, 2);
    }
    assert_eq!(walk.task.gap.past, 0);
}

/// Nobody stays without the setting, with a break-even time of 0, where no CPU is wide, in a
/// section that has not reached a wide CPU, or after a heuristic has ended the section.
#[test]
fn who_stays_has_a_reason() {
    let off = Cfg { remigrate: 0, ..CFG };
    let never = Cfg { rest_below_ns: 0, ..CFG };
    let syscalls = Remigrate { gap: true, syscall_entry: true, ..Remigrate::default() };
    let ended = Cfg { remigrate: syscalls.bits(), ..CFG };
    let cases =
        [(CFG, 15, 1, true), (off, 15, 1, false), (never, 15, 1, false), (CFG, 1, 1, false)];
    let cases = cases.into_iter().chain([(CFG, 15, 0, false), (ended, 15, 1, false)]);
    for (cfg, caps, ran_fit, stays) in cases {
        let mut task = Task { caps, ..Task::new(&cfg, TYPE_SCALAR, 0, 0) };
        task.event(&cfg, Event::HintBegin, 2, 1);
        task.flags |= ran_fit * FLAG_RAN_FIT;
        task.event(&cfg, Event::SyscallEntry, 0, 2);
        task.event(&cfg, Event::HintEnd, 0, 3);
        assert_eq!(task.task_type == TYPE_WIDE as u8, stays, "{cfg:?} {caps} {ran_fit}");
    }
}

/// A child of a task that stays is scalar: the gap is its parent's. In a section it inherits the
/// level.
#[test]
fn children_inherit_no_gap() {
    let mut walk = hints();
    walk.tell(Event::HintBegin);
    assert_eq!(walk.task.bequest(), (TYPE_WIDE, 2));
    walk.tell(Event::HintEnd);
    assert!(walk.is_wide());
    assert_eq!(walk.task.bequest(), (TYPE_SCALAR, 0));
}

/// A stay ends with the wide timeout too, and a nested section neither ends nor begins one.
#[test]
fn stays_end_and_nest() {
    let cfg = Cfg { wide_timeout_ns: 50, ..CFG };
    let mut task = Task::new(&cfg, TYPE_SCALAR, 0, 0);
    task.event(&cfg, Event::HintBegin, 2, 1);
    task.flags |= FLAG_RAN_FIT;
    task.event(&cfg, Event::MarkEnter, 1, 2);
    task.event(&cfg, Event::HintEnd, 0, 3);
    assert_eq!((task.level, task.stays_ns(&cfg)), (1, 0), "the mark's");
    task.event(&cfg, Event::MarkReturn, 0, 4);
    assert_eq!((task.level, task.stays_ns(&cfg)), (1, EVEN));
    assert!(!task.event(&cfg, Event::Tick, 0, 51));
    assert!(task.event(&cfg, Event::Tick, 0, 52), "of the last begin, at 2");
    assert_eq!(task.task_type, TYPE_SCALAR as u8);
}

proptest! {
    /// Any gaps, and any moments in between at which the kernel looks: the bound holds.
    #[test]
    fn any_gaps_are_bounded(gaps in prop::collection::vec(0u64..3 * EVEN, 1..200), by_hints: bool) {
        let mut walk = if by_hints { hints() } else { marks() };
        for gap_ns in gaps {
            walk.round(gap_ns);
            prop_assert!(walk.is_bounded(), "{} {}", walk.cost_ns, walk.best_ns);
            prop_assert!(walk.task.gap.spent <= Gap::SLACK);
            prop_assert!(walk.task.gap.lean.iter().all(|lean| lean.unsigned_abs() <= Gap::SLACK));
        }
    }
}
