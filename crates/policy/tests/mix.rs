// SPDX-License-Identifier: MIT OR Apache-2.0
//! The mix of a task's work: what its waits are for.

use policy::Mix;
use proptest::prelude::*;

#[test]
fn a_wait_is_divided_as_the_cpu_time_was() {
    let mut mix = Mix::default();
    for _ in 0..10 {
        mix.ran(3_000_000, 0);
        mix.ran(1_000_000, 2);
    }
    assert_eq!(mix.wide_ns(8_000_000, 0), 2_000_000, "as a scalar task");
    assert_eq!(mix.wide_ns(8_000_000, 2), 2_000_000, "as a wide one");
}

#[test]
fn who_has_not_run_wants_what_it_is() {
    assert_eq!(Mix::default().wide_ns(5000, 0), 0);
    assert_eq!(Mix::default().wide_ns(5000, 1), 5000);
}

/// A phase that is over is forgotten by half with each 0.2 s of CPU time.
#[test]
fn forgets() {
    let mut mix = Mix::default();
    let run = |mix: &mut Mix, ms: u64, level: u8| (0..ms).for_each(|_| mix.ran(1_000_000, level));
    run(&mut mix, 1000, 1);
    assert_eq!(mix.wide_ns(1024, 0), 1024);
    run(&mut mix, 200, 0);
    assert_eq!(mix.wide_ns(1024, 0), 512);
    run(&mut mix, 600, 0);
    assert_eq!(mix.wide_ns(1024, 0), 64);
}

/// Where nothing ticks a task may run for minutes before it is counted.
#[test]
fn a_long_run_is_no_more_than_what_is_remembered() {
    let mut mix = Mix::default();
    mix.ran(u64::MAX, 1);
    let half_ns = Mix::NS as u32 / 2;
    assert_eq!((mix.run_ns, mix.wide_ns), (half_ns, half_ns));
    mix.ran(60_000_000_000, 0);
    assert_eq!(mix.wide_ns(3072, 0), 1023, "a third, rounded down");
}

proptest! {
    /// No more than was waited, no less than nothing; the sums stay within their bounds.
    #[test]
    fn is_a_share(
        runs in prop::collection::vec((0u64..1 << 50, 0u8..4), 0..60),
        waited in 0u64..1 << 50,
    ) {
        let mut mix = Mix::default();
        for (used_ns, level) in runs {
            mix.ran(used_ns, level);
            prop_assert!(mix.wide_ns <= mix.run_ns && u64::from(mix.run_ns) < Mix::NS);
        }
        prop_assert!(mix.wide_ns(waited, 0) <= waited);
    }
}
