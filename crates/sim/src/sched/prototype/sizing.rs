// SPDX-License-Identifier: MIT OR Apache-2.0
//! Automatic sizing as THESIS 4.2 and 4.3 describe it.
//!
//! Per CPU two moving averages, of all CPU time and of wide tasks', with every tick:
//!
//! ```text
//!   t = alpha * (time in the last tick) + (1 - alpha) * t        most = t_wide / t_all * CPUs
//! ```
//!
//! A CPU on which a wide instruction traps becomes wide if no CPU is, or fewer than `most` are. A
//! wide CPU on which no wide task runs at a tick becomes scalar again. The thesis names neither
//! alpha nor how often it looks; we look at every tick.

/// MuQSS's tick at 250 Hz, the engine's default.
pub(super) const TICK_NS: u64 = 4_000_000;

#[derive(Clone, Copy, Debug, Default)]
struct Averages {
    all_ns: f64,
    wide_ns: f64,
}

/// The averages.
#[derive(Clone, Debug)]
pub(super) struct Sizing {
    mean: Vec<Averages>,
    since_tick: Vec<Averages>,
}

impl Sizing {
    pub(super) fn new(nr_cpus: usize) -> Self {
        let none = vec![Averages::default(); nr_cpus];
        Sizing { mean: none.clone(), since_tick: none }
    }

    /// A task ran for so long.
    pub(super) fn ran(&mut self, cpu: usize, ns: u64, wide: bool) {
        let since = &mut self.since_tick[cpu];
        since.all_ns += ns as f64;
        since.wide_ns += if wide { ns as f64 } else { 0.0 };
    }

    pub(super) fn tick(&mut self, alpha: f64) {
        for (mean, since) in self.mean.iter_mut().zip(&mut self.since_tick) {
            mean.all_ns += alpha * (since.all_ns - mean.all_ns);
            mean.wide_ns += alpha * (since.wide_ns - mean.wide_ns);
            *since = Averages::default();
        }
    }

    /// Whether one more CPU than these may be wide.
    pub(super) fn may_grow(&self, nr_wide: usize, most: usize) -> bool {
        let all_ns: f64 = self.mean.iter().map(|mean| mean.all_ns).sum();
        let wide_ns: f64 = self.mean.iter().map(|mean| mean.wide_ns).sum();
        let limit = if all_ns > 0.0 { wide_ns / all_ns * self.mean.len() as f64 } else { 0.0 };
        nr_wide == 0 || (nr_wide < most && (nr_wide as f64) < limit)
    }
}
