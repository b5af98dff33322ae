// SPDX-License-Identifier: MIT OR Apache-2.0
//! Gaps (policy/gap.h): a task that says nothing about its scalar code commutes where its gaps are
//! long, and stays where they are short.

mod common;

use common::*;
use policy::{Gap, Remigrate};
use sim::engine::{Engine, Outcome};
use sim::events::Quiet;
use sim::sched::lane::{Detect, Lane, Wide};

/// The load of [`alternating`].
fn run_with(detect: Detect, gap: bool, scalar_cycles: u64, rest_ns: u64) -> Outcome {
    run_and_ask(detect, gap, scalar_cycles, rest_ns).0
}

/// The same, and what the task has learned.
fn run_and_ask(detect: Detect, gap: bool, scalar_cycles: u64, rest_ns: u64) -> (Outcome, Gap) {
    let mut config = lane(Wide::Cores(1));
    config.detect = detect;
    config.cfg.remigrate = Remigrate { gap, ..Remigrate::default() }.bits();
    let (platform, sys) = machine_of(platform(), 1);
    let sched = Lane::new(&sys, config);
    let mut engine =
        Engine::new(platform, sys, sched, Quiet, alternating(rest_ns, scalar_cycles), secs(1));
    let out = engine.run().expect("a run that ends");
    (out, engine.sched().task(0).gap)
}

/// Gaps of 2 us: the task commuted in each, and does not now, however its sections are seen.
#[test]
fn short_gaps_are_spent_where_they_are() {
    for detect in [Detect::Hint, Detect::Mark] {
        let (with, without) = (run_with(detect, true, 6_000, 0), run_with(detect, false, 6_000, 0));
        assert!(without.migrations > rounds(&without), "there and back in each round");
        assert!(with.migrations < rounds(&with) / 10, "{} in {}", with.migrations, rounds(&with));
        assert!(rounds(&with) > rounds(&without), "{} {}", rounds(&with), rounds(&without));
    }
}

/// Gaps of 1 ms: leaving at once is right, and is done, after a few.
#[test]
fn long_gaps_are_left_for_at_once() {
    for detect in [Detect::Hint, Detect::Mark] {
        let (out, gap) = run_and_ask(detect, true, 3_000_000, 0);
        assert!(out.migrations >= rounds(&out), "{} in {}", out.migrations, rounds(&out));
        assert!(gap.past == 7 && gap.lean[7] > 0 && gap.spent == 0, "{gap:?}");
        let (_, gap) = run_and_ask(detect, true, 6_000, 0);
        assert!(gap.past == 0 && gap.lean[0] < 0, "as it would not be with short ones: {gap:?}");
    }
}

/// Gaps of 20 ms, longer than all slices: a stay ends by the timer, to the moment, and the next
/// ones are not begun. So the tasks that need the wide CPUs get what they got.
#[test]
fn stays_end_by_the_timer() {
    let wide_ns = |out: &Outcome| out.group("wide").unwrap().cpu_ns as f64;
    for detect in [Detect::Hint, Detect::Mark] {
        let (with, without) =
            (run_with(detect, true, 70_000_000, 0), run_with(detect, false, 70_000_000, 0));
        assert!(wide_ns(&with) > 0.99 * wide_ns(&without), "{detect:?}");
    }
}

/// A gap that is announced to be long is left for at once, where the task would have stayed: its
/// program knows better.
#[test]
fn announced_gaps_are_left_for() {
    let (told, untold) =
        (run_with(Detect::Hint, true, 6_000, 60_000), run_with(Detect::Hint, true, 6_000, 0));
    assert!(told.migrations > rounds(&told), "{} in {}", told.migrations, rounds(&told));
    assert!(untold.migrations < rounds(&untold) / 10);
}
