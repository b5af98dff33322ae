// SPDX-License-Identifier: MIT OR Apache-2.0
//! Marks: which calls count, and that the return of an ignored call is ignored.

use policy::{CALLS_MAX, Calls, Cfg, Event, MarkRule, TYPE_SCALAR, TYPE_WIDE, Task};
use proptest::prelude::*;

/// Without an argument every call counts; with one, those whose lower half is large enough.
#[test]
fn rules_compare_the_lower_half() {
    assert!(MarkRule::new(2, 0, 0).counts(0));
    let rule = MarkRule::new(2, 5, 1024);
    assert_eq!(rule.level(), 2);
    for (value, counts) in [
        (0, false),
        (5, false),
        (1023, false),
        (1024, true),
        (16384, true),
        // what is above an int is rubbish
        (0xdead_beef_0000_0005, false),
        (0xdead_beef_0000_0400, true),
        (u64::from(u32::MAX), true),
    ] {
        assert_eq!(rule.counts(value), counts, "{value:#x}");
    }
    let numbered = rule.numbered(u16::MAX);
    assert_eq!((numbered.level(), numbered.number(), rule.number()), (2, 65535, 0));
    assert!(numbered.counts(1024) && !numbered.counts(1023));
    let most = MarkRule::new(3, 6, u32::MAX);
    assert_eq!((most.level(), most.counts(u64::MAX), most.counts(u64::MAX - 1)), (3, true, false));
}

/// A return of a call that nobody saw counts, and takes nothing with it.
#[test]
fn a_return_without_its_call() {
    let mut calls = Calls::default();
    assert!(calls.leave());
    assert!(!calls.enter(false) && !calls.leave() && calls.leave());
    assert_eq!(calls, Calls::default());
}

/// Calls beyond what the kernel follows are ignored, and leave the others as they are.
#[test]
fn recursion_beyond_the_limit_is_ignored() {
    let mut calls = Calls::default();
    for depth in 0..CALLS_MAX + 40 {
        assert_eq!(calls.enter(true), depth < CALLS_MAX);
    }
    for _ in 0..CALLS_MAX {
        assert!(calls.leave());
    }
    assert_eq!(calls, Calls::default());
}

/// A task that goes deeper than that into marked functions is scalar again once the kernel has
/// reported all returns that it does report.
#[test]
fn deep_recursion_ends() {
    let cfg = Cfg::default();
    let mut task = Task::new(&cfg, 0, 0, 0);
    for _ in 0..CALLS_MAX + 40 {
        task.event(&cfg, Event::MarkEnter, 2, 1);
    }
    assert_eq!(u32::from(task.task_type), TYPE_WIDE);
    for _ in 0..CALLS_MAX {
        task.event(&cfg, Event::MarkReturn, 0, 2);
    }
    assert_eq!(u32::from(task.task_type), TYPE_SCALAR);
}

proptest! {
    /// Whatever is called and returns, each return is told if its own call was: a list of all calls
    /// says the same.
    #[test]
    fn returns_belong_to_their_calls(
        steps in prop::collection::vec(any::<Option<bool>>(), 0..400),
    ) {
        let (mut calls, mut list) = (Calls::default(), Vec::new());
        for step in steps {
            match step {
                Some(counts) if (list.len() as u32) < CALLS_MAX => {
                    prop_assert_eq!(calls.enter(counts), counts);
                    list.push(counts);
                }
                Some(counts) => prop_assert!(!calls.enter(counts)),
                None => prop_assert_eq!(calls.leave(), list.pop().unwrap_or(true)),
            }
            prop_assert_eq!(calls.depth as usize, list.len());
        }
    }
}

/// At the end of its section a task stays on the wide CPU as a guest unless something wants the CPU
/// or a scalar one is idle; a wide task leaves a scalar CPU in any case, and nobody leaves a CPU
/// that it belongs on.
#[test]
fn the_end_of_a_section_is_no_reason_to_leave() {
    let cfg = Cfg::default();
    let mut task = Task::new(&cfg, 0, 0, 0);
    task.event(&cfg, Event::MarkEnter, 2, 1);
    for wanted in [false, true] {
        assert!(task.must_leave(0, wanted), "wide code on a scalar CPU");
        assert!(!task.must_leave(3, wanted), "wide code on a wide CPU");
    }
    task.event(&cfg, Event::MarkReturn, 0, 2);
    assert_eq!(u32::from(task.task_type), TYPE_SCALAR);
    for wanted in [false, true] {
        assert_eq!(task.must_leave(3, wanted), wanted, "a guest");
        assert!(!task.must_leave(0, wanted), "scalar code on a scalar CPU");
    }
}
