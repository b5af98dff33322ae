// SPDX-License-Identifier: MIT OR Apache-2.0
//! The policy under the checkers on random machines, and the checkers under planted bugs.

use sim::crowd::run_crowd;
use sim::fuzz::{Failure, run_case};
use sim::sched::lane::Mutation;

/// Seeds that `cargo test` runs; `./x bench sim` runs as many as it is given time for.
const SEEDS: u64 = 400;

/// The same of crowds, each of which is 12 s long.
const CROWDS: u64 = 40;

/// A case in which kernel threads storm for long enough that everybody else would wait for too
/// long.
const STORM: u64 = 1140;

/// A case in which a kernel thread was taken for wide by its power score, and went first on a
/// scalar CPU.
const SCORED: u64 = 540;

/// Cases in which a side came back with more saved up than its tasks' slices, and a pinned task
/// waited for as long.
const SAVED: [u64; 2] = [913, 1387];

/// Cases in which a task that had never been in a queue kept its CPU from pinned ones: its turns
/// did not count.
const UNCOUNTED: [u64; 2] = [6292, 7955];

/// A crowd of light tasks that waited for half a second each after their first slices, since nobody
/// knew how fast the clock of their queue goes.
const LIGHT: u64 = 10_575;

/// No rule is broken, whatever the machine, the load and the settings.
#[test]
fn the_policy_keeps_its_promises() {
    let mut decisions = 0;
    for seed in (0..SEEDS).chain([SCORED, STORM]).chain(SAVED).chain(UNCOUNTED) {
        match run_case(seed, None) {
            Ok(checked) => decisions += checked.decisions,
            Err(failure) => panic!("{failure}"),
        }
    }
    assert!(decisions > 100_000, "{decisions} decisions are too few to show anything");
}

/// Nor in crowds of every weight: no task waits longer than a bound that knows no weights.
#[test]
fn crowds_are_served() {
    for seed in (0..CROWDS).chain([LIGHT]) {
        if let Err(failure) = run_crowd(seed, None) {
            panic!("{failure}");
        }
    }
}

/// Every planted bug is seen within the seeds that the sound policy passes.
#[test]
fn planted_bugs_are_seen() {
    for mutation in Mutation::ALL {
        let seen = [STORM]
            .into_iter()
            .chain(0..SEEDS)
            .find_map(|seed| run_case(seed, Some(mutation)).err())
            // starvation takes seconds
            .or_else(|| (0..CROWDS).find_map(|seed| run_crowd(seed, Some(mutation)).err()));
        match seen {
            Some(Failure::Broken { violation, .. }) => println!("{mutation:?}: {violation}"),
            other => panic!("{mutation:?} goes unseen: {other:?}"),
        }
    }
}

/// A case is its seed: run twice it checks the same.
#[test]
fn a_case_is_its_seed() {
    for seed in [1, 2, 3] {
        assert_eq!(run_case(seed, None), run_case(seed, None));
    }
}
