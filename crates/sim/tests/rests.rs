// SPDX-License-Identifier: MIT OR Apache-2.0
//! Rests (policy/rest.h): a task that says how long it stays scalar is not moved for a moment, and
//! not trusted for longer.

mod common;

use common::*;
use sim::engine::Outcome;
use sim::sched::lane::Wide;

/// The load of [`alternating`].
fn run_with(rest_ns: u64, scalar_cycles: u64) -> Outcome {
    run(platform(), 1, alternating(rest_ns, scalar_cycles), lane(Wide::Cores(1)), secs(1))
}

/// Scalar code of 2 us that is announced as 3 us is spent on the wide CPU: next to no migration,
/// and more rounds than with a way there and back in each.
#[test]
fn short_phases_are_spent_where_they_are() {
    let (told, untold) = (run_with(3_000, 6_000), run_with(0, 6_000));
    assert!(rounds(&untold) > 100, "{}", rounds(&untold));
    assert!(untold.migrations > rounds(&untold), "there and back in each round");
    assert!(told.migrations < rounds(&told) / 10, "{} in {}", told.migrations, rounds(&told));
    assert!(rounds(&told) > rounds(&untold), "{} {}", rounds(&told), rounds(&untold));
}

/// A phase as long as the way there and back is left for, announced or not: the same run.
#[test]
fn long_phases_are_left_for() {
    let (told, untold) = (run_with(15_000, 60_000), run_with(0, 60_000));
    assert_eq!((told.migrations, rounds(&told)), (untold.migrations, rounds(&untold)));
}

/// Scalar code of 20 ms that was announced as 3 us is sent away when somebody looks: it does not
/// keep a wide CPU from those who need it.
#[test]
fn a_wrong_word_is_not_trusted() {
    let (lying, honest) = (run_with(3_000, 70_000_000), run_with(0, 70_000_000));
    assert!(lying.migrations >= rounds(&lying), "{} {}", lying.migrations, rounds(&lying));
    let wide_ns = |out: &Outcome| out.group("wide").unwrap().cpu_ns as f64;
    assert!(wide_ns(&lying) > 0.9 * wide_ns(&honest), "{} {}", wide_ns(&lying), wide_ns(&honest));
}
