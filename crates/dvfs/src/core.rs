// SPDX-License-Identifier: MIT OR Apache-2.0
//! One core as a replay needs it: clocks by level, times of a change, and what a change costs.
//!
//! Everything comes from a [`Platform`]; the number of active cores of the package is fixed for a
//! replay, as in the simulation of DIM 6.2.2 ("we assume that most of the cores are active").
//!
//! What a change costs is CPU time lost, measured as DIM 4.1 does: the difference between the same
//! work with and without the change.
//!
//! ```text
//!   to a lower clock (high -> low):   throttle * (1 - frac * f_high / f_low) + halt
//!   to a higher clock:                halt
//! ```
//!
//! While it waits for its licence, wide code does `frac` of what it would do at the clock of the
//! moment, which is still the high one; so the loss is a little smaller than throttle * (1 - frac).

use cpumodel::{CpuModel, MAX_LEVELS, Platform, Times};

/// One core.
#[derive(Clone, Debug, PartialEq)]
pub struct Core {
    /// Clock by level.
    pub clock_khz: Vec<u32>,
    /// Times of a change. The hold in it is the hardware's own; policies have theirs.
    pub times: Times,
    /// Dispatch rate that is left to wide code until its licence is granted, 0..=1.
    pub throttle_frac: f64,
    /// Throughput of the core with two busy siblings over that with one.
    pub smt_frac: f64,
    /// Power of the busy core by level, W: an estimate, see [`Platform::busy_core_w`].
    pub busy_w: Vec<f64>,
}

impl Core {
    /// A core of the platform while `active` cores of its package are active.
    pub fn new(platform: &Platform, active: usize) -> Core {
        let levels = 0..platform.nr_levels().min(MAX_LEVELS) as u8;
        let clock_khz: Vec<u32> =
            levels.clone().map(|level| platform.clock_khz(level, active)).collect();
        let busy_w = levels.map(|level| platform.busy_core_w(level, clock_khz[level as usize]));
        Core {
            busy_w: busy_w.collect(),
            clock_khz,
            times: platform.times,
            throttle_frac: platform.throttle_frac,
            smt_frac: platform.smt_frac,
        }
    }

    /// The same with turbo switched off: every level at its base clock, whoever is active. `None`
    /// if the model does not know them all.
    pub fn at_base(platform: &Platform, model: &CpuModel) -> Option<Core> {
        let levels = model.levels.iter().take(platform.nr_levels());
        let clock_khz: Option<Vec<u32>> =
            levels.map(|level| Some(level.base.as_ref()?.value.0)).collect();
        let clock_khz = clock_khz?;
        let busy_w = (0..).zip(&clock_khz).map(|(level, khz)| platform.busy_core_w(level, *khz));
        let busy_w = busy_w.collect();
        Some(Core { clock_khz, busy_w, ..Core::new(platform, platform.nr_cores) })
    }

    /// Number of its levels.
    pub fn nr_levels(&self) -> usize {
        self.clock_khz.len()
    }

    /// Cycles per ns at a level.
    pub fn cycles_per_ns(&self, level: u8) -> f64 {
        f64::from(self.clock_khz[level as usize]) / 1e6
    }

    /// Clock of the level over that of another.
    pub(crate) fn clock_ratio(&self, level: u8, over: u8) -> f64 {
        self.cycles_per_ns(level) / self.cycles_per_ns(over)
    }

    /// CPU time that a change to a lower clock costs, ns: from level `high` to `low`, where level
    /// numbers grow as clocks fall.
    pub fn lower_cost_ns(&self, high: u8, low: u8) -> f64 {
        let done_frac = self.throttle_frac * self.clock_ratio(high, low);
        self.times.throttle_ns as f64 * (1.0 - done_frac) + self.times.halts_ns(high, low) as f64
    }

    /// CPU time that a change to a higher clock costs, ns.
    pub fn raise_cost_ns(&self) -> f64 {
        self.times.halt_ns as f64
    }

    /// Both changes: what raising the clock and lowering it again costs, ns.
    pub fn round_trip_ns(&self, high: u8, low: u8) -> f64 {
        (self.raise_cost_ns() + self.lower_cost_ns(high, low)).max(0.0)
    }
}
