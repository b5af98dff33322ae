// SPDX-License-Identifier: MIT OR Apache-2.0
//! `lib.monitor_read_ns`: begin and end of a region together, on this machine, by both ABIs, beside
//! two readings of the system's clock, which is what a program would do by itself. And
//! `lib.hint_ns`, which is `lane.hint_ns` (`hints.rs`) under the name of this group.
//!
//! A repetition is 100,000 regions in a row (some ms): most are not interrupted, and the median is
//! one of these. Whether cycles are read by `rdpmc` as well is this machine's to say, and is
//! printed: without a PMU the figure is the time stamp counter's.

use std::ffi::CString;
use std::hint::black_box;
use std::time::Instant;

use anyhow::{Result, ensure};
use turbolane::{Monitor, tl_close, tl_open, tl_region, tl_region_begin, tl_region_end};

use super::hints;
use crate::measure::{Figure, median, publish};

const REPETITIONS: usize = 101;
const REGIONS: u32 = 100_000;

/// Measure and publish.
pub fn run() -> Result<()> {
    let rust = in_rust()?;
    let c = in_c()?;
    let clock = median(&times(|| {
        black_box(Instant::now().elapsed());
    }));
    let slower = if median(&rust) > median(&c) { &rust } else { &c };
    let figures = [
        Figure::of("lib.monitor_read_ns", "ns", "lower", slower)?
            .against("clock_gettime twice", clock),
        Figure::of("lib.monitor_read_ns.rust", "ns", "lower", &rust)?,
        Figure::of("lib.monitor_read_ns.c", "ns", "lower", &c)?,
        Figure { name: "lib.hint_ns".to_string(), ..hints::nothing_to_move()? },
    ];
    publish("lib-monitor", &figures)
}

fn in_rust() -> Result<Vec<f64>> {
    let monitor = Monitor::new();
    let region = monitor.region("empty")?;
    let times = times(|| {
        monitor.begin(region);
        let _ = black_box(monitor.end(region));
    });
    let stats = monitor.stats(region);
    ensure!(stats.count == REPETITIONS as u64 * u64::from(REGIONS), "lost regions: {stats:?}");
    println!("cycles by rdpmc: {}", if stats.cycles.is_some() { "yes" } else { "no" });
    Ok(times)
}

fn in_c() -> Result<Vec<f64>> {
    let name = CString::new("empty")?;
    let mut session = std::ptr::null_mut();
    // SAFETY: a NULL root is this machine; the handle has a place.
    let opened = unsafe { tl_open(std::ptr::null(), turbolane::TL_WAY_NONE, &mut session) };
    ensure!(opened == 0, "tl_open: {opened}");
    // SAFETY: the name is a string.
    let region = u32::try_from(unsafe { tl_region(session, name.as_ptr()) })?;
    let times = times(|| {
        black_box(tl_region_begin(session, region));
        black_box(tl_region_end(session, region));
    });
    ensure!(tl_close(session) == 0, "tl_close");
    Ok(times)
}

/// ns per call of each repetition.
fn times(mut body: impl FnMut()) -> Vec<f64> {
    let mut repetition = || {
        let start = Instant::now();
        for _ in 0..REGIONS {
            body();
        }
        start.elapsed().as_nanos() as f64 / f64::from(REGIONS)
    };
    (0..REPETITIONS).map(|_| repetition()).collect()
}
