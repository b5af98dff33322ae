// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the scheduler touches on a guest with 64 CPUs, counted by itself: an emulator's times say
//! nothing about cache lines that move between CPUs.
//!
//! `lane.switch_atomics`: atomic operations on lines that several CPUs write, per task started.
//! `lane.wide_enqueue_loop_cpus`: CPUs looked at per search for work that wide work can displace.

use std::time::Duration;

use anyhow::{Result, ensure};

use crate::lane::{Lane, stat, stats};
use crate::load::{self, Ending, Role, Source};
use crate::measure::{Figure, publish};
use crate::samples::Samples;

const ROUNDS: usize = 3;
const ROUND: Duration = Duration::from_secs(10);
/// More than the CPUs can run at a time, and wide sections that come and go.
const LOAD: [(Role, usize); 3] = [
    (Role::ScalarBursts, 48),
    (Role::DefaultHog, 24),
    (Role::Mixed(Source::Hint, Ending::Explicit), 24),
];

/// Measure and publish.
pub fn run() -> Result<()> {
    let lane = Lane::start(&["--mode", "scx", "--wide-cpus", "8"])?;
    let (mut atomics, mut looks) = (Vec::new(), Vec::new());
    let samples = Samples::shared();
    let workers = load::start(samples, &LOAD)?;
    for _ in 0..ROUNDS {
        let counted = || -> Result<[u64; 4]> {
            let counted = stats()?;
            let of = |key| stat(&counted, key);
            Ok([
                of("wide_runs")? + of("scalar_runs")? + of("default_runs")?,
                of("shared_atomics")?,
                of("preemption_searches")?,
                of("preemption_looks")?,
            ])
        };
        let before = counted()?;
        std::thread::sleep(ROUND);
        let after = counted()?;
        let [runs, shared, searches, looked] =
            std::array::from_fn(|i| (after[i] - before[i]) as f64);
        ensure!(runs >= 1000.0 && searches >= 100.0, "only {runs} starts, {searches} searches");
        atomics.push(shared / runs);
        looks.push(looked / searches);
    }
    drop(workers);
    lane.stop()?;
    publish(
        "large",
        &[
            Figure::of("lane.switch_atomics", "operations", "lower", &atomics)?,
            Figure::of("lane.wide_enqueue_loop_cpus", "CPUs", "lower", &looks)?,
        ],
    )
}
