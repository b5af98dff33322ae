// SPDX-License-Identifier: MIT OR Apache-2.0
//! `lane.wide_samples_on_scalar_cpus`, over at least 20,000 samples for each source and ending,
//! and `lane.scalar_samples_on_wide_cpus_under_wide_load`.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use crate::lane::{Lane, set};
use crate::load::{self, Ending, Role, Source};
use crate::measure::{Figure, publish};
use crate::probe_site;
use crate::samples::{Phase, Samples};

const SAMPLES: u64 = 20_000;
const SETTLE: Duration = Duration::from_millis(500);
/// Each load goes on until it has its samples, and all of them together until then. A guest beside
/// others on a busy host is many times slower than one alone; one that has not got them by then
/// hangs.
const LIMIT: Duration = Duration::from_secs(3000);

/// Samples of this phase, and how many of them on `wrong` CPUs, until there are enough.
fn collect(
    phase: Phase,
    wrong: &[usize],
    roles: &[(Role, usize)],
    time: Duration,
    deadline: Instant,
) -> Result<(u64, u64)> {
    let (mut bad, mut all) = (0, 0);
    let start = Instant::now();
    while all < SAMPLES {
        let took = start.elapsed();
        let is_in_time = Instant::now() < deadline;
        ensure!(
            is_in_time,
            "{roles:?}: only {all} of {SAMPLES} samples in {took:.0?}, and {LIMIT:?} are over"
        );
        let samples = Samples::shared();
        load::run(samples, SETTLE, time, roles)?;
        bad += samples.on(phase, wrong);
        all += samples.total(phase);
    }
    println!("{roles:?}: {all} samples in {:.1?}", start.elapsed());
    Ok((bad, all))
}

/// Measure and publish.
pub fn run() -> Result<()> {
    let mark = probe_site::mark();
    let lane = Lane::start(&["--mode", "scx", "--wide-cpus", "2-3", "--mark", &mark])?;
    let deadline = Instant::now() + LIMIT;
    let mut figures = Vec::new();
    let (mut bad_sum, mut all_sum) = (0, 0);
    for source in [Source::Hint, Source::Mark] {
        for ending in Ending::ALL {
            set(&[&format!("remigrate={}", ending.flag())])?;
            let seconds = Duration::from_secs(5);
            let (bad, all) = collect(
                Phase::Wide,
                &[0, 1],
                &[(Role::Mixed(source, ending), 8)],
                seconds,
                deadline,
            )?;
            let name =
                format!("lane.wide_samples_on_scalar_cpus.{source:?}.{ending:?}").to_lowercase();
            figures.push(Figure::count(&name, bad, all));
            bad_sum += bad;
            all_sum += all;
        }
    }
    figures.push(Figure::count("lane.wide_samples_on_scalar_cpus", bad_sum, all_sum));
    set(&["remigrate=hint"])?;
    let (bad, all) = collect(
        Phase::Scalar,
        &[2, 3],
        &[
            (Role::WideHog, 6),
            (Role::ScalarHog, 4),
            (Role::Mixed(Source::Hint, Ending::Explicit), 2),
        ],
        Duration::from_secs(5),
        deadline,
    )?;
    figures.push(Figure::count("lane.scalar_samples_on_wide_cpus_under_wide_load", bad, all));
    lane.stop()?;
    publish("placement", &figures)
}
