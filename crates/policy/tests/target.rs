// SPDX-License-Identifier: MIT OR Apache-2.0
//! Performance targets: what is sent to a CPU's governor, and when it is sent again.

use policy::{TARGET_ONE, TARGET_REPEATS, Target};
use proptest::prelude::*;

/// A CPU on which nobody asks is left alone, at ticks too.
#[test]
fn who_asks_for_nothing_is_not_told_of() {
    let mut cpu = Target::default();
    for is_tick in [false, true] {
        assert_eq!(cpu.tell(0, is_tick), None);
    }
    assert_eq!(cpu, Target::default());
}

/// A target is told when it is new and at every tick; more than there is is all there is.
#[test]
fn a_target_is_told_and_told_again() {
    let mut cpu = Target::default();
    assert_eq!(cpu.tell(300, false), Some(300));
    assert_eq!(cpu.tell(300, false), None, "known");
    for _ in 0..3 * TARGET_REPEATS {
        assert_eq!(cpu.tell(300, true), Some(300), "the governor may not have listened");
    }
    assert_eq!(cpu.tell(301, true), Some(301));
    assert_eq!(cpu.tell(u32::MAX, false), Some(TARGET_ONE));
}

/// Behind the last that asks, the default is told, and told again at so many ticks; then the CPU is
/// one on which nobody has asked.
#[test]
fn the_default_comes_back() {
    for asked in [1, 300, TARGET_ONE] {
        let mut cpu = Target::default();
        cpu.tell(asked, false).unwrap();
        let first = cpu.tell(0, false);
        // the same number: nothing new, but it may not have been heard
        assert_eq!(first, (asked != TARGET_ONE).then_some(TARGET_ONE));
        assert_eq!(cpu.tell(0, false), None);
        for _ in 0..TARGET_REPEATS {
            assert_eq!(cpu.tell(0, true), Some(TARGET_ONE));
        }
        assert_eq!(cpu.tell(0, true), None);
        assert_eq!(cpu, Target { told_q10: 0, repeats: 0 });
    }
}

proptest! {
    /// Whoever takes turns there: what the governor was told last is what the last task asks for,
    /// or the default; and it is always something that the kernel takes.
    #[test]
    fn the_governor_knows_the_last(
        steps in prop::collection::vec((0u32..2000, any::<bool>()), 1..200),
    ) {
        let (mut cpu, mut heard) = (Target::default(), TARGET_ONE);
        for (asked, is_tick) in steps {
            let asked = if asked % 3 == 0 { 0 } else { asked };
            if let Some(told) = cpu.tell(asked, is_tick) {
                prop_assert!((1..=TARGET_ONE).contains(&told));
                heard = told;
            }
            let want = if asked == 0 { TARGET_ONE } else { asked.min(TARGET_ONE) };
            prop_assert_eq!(heard, want);
        }
    }
}
