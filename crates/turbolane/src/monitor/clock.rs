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

/// Least time for a rate: both clocks are read within a microsecond.
const RATE_AFTER: Duration = Duration::from_millis(2);

/// Ticks now.
#[inline(always)]
pub(crate) fn ticks() -> u64 {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every x86-64 CPU has it; it touches no memory.
    unsafe {
        std::arch::x86_64::_rdtsc()
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: the structure is valid.
        unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut time) };
        time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
    }
}

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
