// SPDX-License-Identifier: MIT OR Apache-2.0
//! The clock of regions: the time stamp counter, and its rate by comparison with the system's
//! clock.
//!
//! A region of 100 ns cannot afford `clock_gettime` twice. The counter costs a few ns where it is
//! not trapped; the length of a tick is computed when results are requested, from both clocks at
//! the start and now. So nothing is calibrated at start-up, and the error shrinks with time: 1 us
//! of reading both over a second is one part in a million.
//!
//! Limits: assumes a counter that is constant and the same on all CPUs, as on every x86-64 CPU of
//! the last 15 years; a negative difference counts as 0. Elsewhere the ticks are nanoseconds of
//! `CLOCK_MONOTONIC`.

use std::time::{Duration, Instant};

pub(crate) use locks::sys::ticks;

/// Least time for a rate: both clocks are read within a microsecond.
const RATE_AFTER: Duration = Duration::from_millis(2);

/// Both clocks at one moment.
#[derive(Debug)]
pub(crate) struct Epoch {
    ticks: u64,
    time: Instant,
}

impl Epoch {
    pub fn now() -> Self {
        Epoch { ticks: ticks(), time: Instant::now() }
    }

    /// Nanoseconds per tick since then; waits if that was a moment ago.
    pub fn ns_per_tick(&self) -> f64 {
        if let Some(wait) = RATE_AFTER.checked_sub(self.time.elapsed()) {
            std::thread::sleep(wait);
        }
        let passed = ticks().saturating_sub(self.ticks);
        self.time.elapsed().as_nanos() as f64 / (passed.max(1)) as f64
    }
}
