// SPDX-License-Identifier: MIT OR Apache-2.0
//! Rules that the user makes for tasks: policy/rule.h.

use policy::Event::{HintBegin, HintEnd, MarkEnter, Score, SwitchOut, Tick, Trap};
use policy::{Cfg, Event, Remigrate, Rule, TYPE_DEFAULT, TYPE_SCALAR, TYPE_WIDE, Task, party};
use proptest::prelude::*;

const CFG: Cfg = Cfg {
    slice_ns: 1,
    slice_wide_ns: 1,
    wide_timeout_ns: 1_000,
    remigrate_timeout_ns: 0,
    rest_below_ns: 0,
    remigrate: 0,
    unclassified: TYPE_DEFAULT,
    counts_q10: [0; 4],
};

const RULES: [Rule; 6] =
    [Rule::None, Rule::Wide(1), Rule::Wide(2), Rule::Wide(3), Rule::Scalar, Rule::Alone];

fn new_task() -> Task {
    Task::new(&CFG, TYPE_DEFAULT, 0, 0)
}

fn with_rule(rule: Rule) -> Task {
    let mut task = new_task();
    task.set_rule(rule);
    task
}

fn kind(task: &Task) -> (u32, u8) {
    (task.task_type.into(), task.level)
}

/// A wide rule holds without any evidence, and neither an end, a timeout nor a heuristic ends it;
/// evidence of a higher level counts while it is there.
#[test]
fn wide_rules_last() {
    let ends = Remigrate { context_switch: true, syscall_entry: true, ..Remigrate::default() };
    let cfg = Cfg { remigrate: ends.bits(), ..CFG };
    let mut task = with_rule(Rule::Wide(2));
    assert_eq!(kind(&task), (TYPE_WIDE, 2));
    assert!(task.event(&cfg, HintBegin, 3, 10));
    assert_eq!(kind(&task), (TYPE_WIDE, 3));
    task.event(&cfg, HintEnd, 0, 20);
    assert_eq!(kind(&task), (TYPE_WIDE, 2));
    task.event(&cfg, HintBegin, 1, 30);
    for event in [Tick, SwitchOut, Event::SyscallEntry, Event::SyscallReturn, HintEnd] {
        task.event(&cfg, event, 0, 1_000_000_000);
        assert_eq!(kind(&task), (TYPE_WIDE, 2), "{event:?}");
    }
}

/// Evidence of every kind counts for nothing with the rules scalar and alone, by whatever level;
/// such a task is of the party of tasks without wide code.
#[test]
fn deaf_rules_ignore_evidence() {
    for (rule, expected) in [(Rule::Scalar, TYPE_SCALAR), (Rule::Alone, TYPE_DEFAULT)] {
        let mut task = new_task();
        task.event(&CFG, HintBegin, 2, 5);
        task.ran(100_000_000, task.level);
        assert_ne!(party(&task, 0), 0, "it wants wide CPUs until it has the rule");
        task.set_rule(rule);
        assert_eq!(party(&task, task.level), 0, "{rule:?}, at once");
        assert_eq!(kind(&task), (expected, 0));
        for event in [HintBegin, MarkEnter, Trap, Score, HintEnd] {
            assert!(!task.event(&CFG, event, 3, 10), "{rule:?} {event:?}");
            assert_eq!(kind(&task), (expected, 0), "{rule:?} {event:?}");
            assert!(!task.classify_scalar());
            task.ran(1_000_000, task.level);
        }
        assert_eq!(party(&task, task.level), 0, "{rule:?}");
    }
    let mut hints = new_task();
    hints.event(&CFG, HintBegin, 3, 10);
    hints.event(&CFG, HintEnd, 0, 10);
    assert_ne!(party(&hints, hints.level), 0, "the same without a rule");
}

/// A task that no one classified is default again when its rule goes, unless it has shown wide code
/// meanwhile or was said to be scalar; a section that is open then counts at once.
#[test]
fn a_lifted_rule_leaves_no_trace() {
    for rule in RULES {
        let mut task = with_rule(rule);
        task.set_rule(Rule::None);
        task.comes(); // what it was on the CPU where it is until now, counts
        assert_eq!(task, new_task(), "{rule:?}");

        let mut task = with_rule(rule);
        task.event(&CFG, MarkEnter, 1, 10);
        task.set_rule(Rule::None);
        assert_eq!(kind(&task), (TYPE_WIDE, 1), "{rule:?}");

        let mut task = with_rule(rule);
        task.event(&CFG, HintBegin, 1, 10);
        task.event(&CFG, HintEnd, 0, 20);
        task.set_rule(Rule::None);
        assert_eq!(kind(&task), (TYPE_SCALAR, 0), "{rule:?}");

        let mut task = with_rule(rule);
        task.classify_scalar();
        task.set_rule(Rule::None);
        assert_eq!(kind(&task), (TYPE_SCALAR, 0), "{rule:?}");
    }
}

/// A child inherits what its parent would be without the rule: it has a rule of its own, or none.
#[test]
fn children_inherit_no_rule() {
    for rule in RULES {
        let mut task = with_rule(rule);
        assert_eq!(task.bequest(), (TYPE_DEFAULT, 0), "{rule:?}");
        task.event(&CFG, MarkEnter, 1, 10);
        assert_eq!(task.bequest(), (TYPE_WIDE, 1), "{rule:?}");
        task.event(&CFG, Event::MarkReturn, 0, 20);
        assert_eq!(task.bequest(), (TYPE_SCALAR, 0), "{rule:?}");
    }
}

/// The rule of a group counts before that of a name, and a name gives no rule but a wide one: any
/// user chooses the name of a task.
#[test]
fn names_give_no_more_than_hints_do() {
    for by_group in RULES {
        for by_name in RULES {
            let expected = match (by_group, by_name) {
                (Rule::None, Rule::Wide(_)) => by_name,
                _ => by_group,
            };
            assert_eq!(Rule::choose(by_group, by_name), expected, "{by_group:?} {by_name:?}");
        }
    }
}

proptest! {
    /// Whatever happens, and however rules come and go: type and level agree with the rule, an
    /// affinity without wide CPUs holds, and open sections count as soon as there is no rule.
    #[test]
    fn rules_hold_at_every_step(
        steps in proptest::collection::vec(
            (0usize..RULES.len(), 0usize..Event::ALL.len(), 0u32..4), 0..60
        ),
        caps in 1u8..16,
    ) {
        let (mut task, mut now_ns) = (Task { caps, ..new_task() }, 0);
        let mut free = task;
        for (rule, event, level) in steps {
            now_ns += 300;
            let before = kind(&task);
            let changed = task.set_rule(RULES[rule]);
            prop_assert_eq!(changed, before != kind(&task));
            let before = kind(&task);
            let changed = task.event(&CFG, Event::ALL[event], level, now_ns);
            prop_assert_eq!(changed, before != kind(&task));
            free.event(&CFG, Event::ALL[event], level, now_ns);
            match RULES[rule] {
                Rule::None => {}
                Rule::Wide(level) => prop_assert!(
                    task.task_type == TYPE_WIDE as u8 && task.level >= level
                ),
                Rule::Scalar => prop_assert_eq!(kind(&task), (TYPE_SCALAR, 0)),
                Rule::Alone => prop_assert_eq!(kind(&task), (TYPE_DEFAULT, 0)),
            }
            prop_assert!(caps >> task.need() & 1 == 1 || task.need() == 0);
            let mut lifted = task;
            lifted.set_rule(Rule::None);
            let open = |task: &Task| task.hint_level.max(task.mark_level);
            prop_assert_eq!(open(&lifted), open(&free));
            prop_assert!(lifted.level >= open(&free));
        }
    }
}
