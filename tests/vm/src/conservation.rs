// SPDX-License-Identifier: MIT OR Apache-2.0
//! Work conservation: with more runnable tasks than CPUs that may run them, no such CPU idles. The
//! loads and the measurement, for a test and a benchmark.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::lane::read;
use crate::load::{self, Ending, Role, Source};
use crate::samples::Samples;

/// Name, workers, CPUs that the load can keep busy.
pub type Load = (&'static str, &'static [(Role, usize)], &'static [usize]);

/// CPUs 2 and 3 are wide.
pub const LOADS: [Load; 5] = [
    ("scalar-only", &[(Role::ScalarHog, 8)], &[0, 1, 2, 3]),
    ("default-only", &[(Role::DefaultHog, 8)], &[0, 1, 2, 3]),
    ("wide-only", &[(Role::WideHog, 6)], &[2, 3]),
    ("mixed", &[(Role::WideHog, 4), (Role::ScalarHog, 4)], &[0, 1, 2, 3]),
    (
        "bursts",
        &[(Role::ScalarBursts, 16), (Role::Mixed(Source::Hint, Ending::Explicit), 8)],
        &[0, 1, 2, 3],
    ),
];

/// Idle time of these CPUs together since boot, seconds. Idle time is exact; of busy time an
/// emulated machine loses ticks, so it is not used.
fn idle_s(cpus: &[usize]) -> Result<f64> {
    const TICKS_PER_S: f64 = 100.0;
    let text = read("/proc/stat");
    let mut ticks = 0.0;
    for cpu in cpus {
        let line = text
            .lines()
            .find(|l| l.starts_with(&format!("cpu{cpu} ")))
            .context("CPU not in /proc/stat")?;
        let fields: Vec<f64> =
            line.split_whitespace().skip(1).filter_map(|f| f.parse().ok()).collect();
        ticks += fields[3] + fields[4];
    }
    Ok(ticks / TICKS_PER_S)
}

/// Share of time that these CPUs idle under the load, %.
pub fn idle_pct(roles: &[(Role, usize)], cpus: &[usize], time: Duration) -> Result<f64> {
    let samples = Samples::shared();
    let _workers = load::start(samples, roles)?;
    std::thread::sleep(Duration::from_secs(1));
    let (start, before) = (Instant::now(), idle_s(cpus)?);
    std::thread::sleep(time);
    let idle = idle_s(cpus)? - before;
    Ok(100.0 * idle / (start.elapsed().as_secs_f64() * cpus.len() as f64))
}
