// SPDX-License-Identifier: MIT OR Apache-2.0
//! Time of the machine, and what a cycle takes of it.
//!
//! Problem: local times are compared and added for every trace, some ten million times per second,
//! the emulator's timers count ticks of the time stamp counter, and licences count nanoseconds.
//!
//! Idea: a [`Time`] is a number of ticks of the time stamp counter times 2^16, so global time is a
//! shift away and a cycle of any clock is an integer. 64 bits last for 37 hours at 2.1 GHz.
//! Nanoseconds are computed only when a licence changes. A cycle of 2.8 GHz at a counter of
//! 2.1 GHz is 49,152 units: rounding changes a clock by less than 0.002 %.
//!
//! The time stamp counter runs at the base clock, as on real parts, in multiples of 100 MHz and at
//! most at 2.1 GHz: the emulator's clock parameter is a signed number of 32 bits.

use cpumodel::Platform;

/// Ticks of the time stamp counter times 2^16.
pub type Time = u64;

/// Later than everything.
pub const NEVER: Time = Time::MAX;

/// A step of P-states and turbo ratios.
pub(crate) const BIN_KHZ: u32 = 100_000;

/// See the essay.
const MAX_TSC_KHZ: u32 = 2_100_000;

/// Ratio below which no P-state goes, as MSR_PLATFORM_INFO says.
pub(crate) const MIN_RATIO: u8 = 8;

/// The clocks of one package.
#[derive(Debug, Clone)]
pub struct Clocks {
    tsc_khz: u32,
    /// `cycle[level][active]`: time of a cycle.
    cycle: Vec<Vec<Time>>,
    /// `cycle_of_ratio[ratio]`: the same at a P-state; index 0 is no time at all.
    cycle_of_ratio: Vec<Time>,
    /// Ratios of level 0 by active cores.
    turbo: Vec<u8>,
}

impl Clocks {
    /// Those of a CPU whose base clock may be unknown.
    #[must_use]
    pub fn new(platform: &Platform, base_khz: Option<u32>) -> Self {
        let tsc_khz = base_khz.unwrap_or(MAX_TSC_KHZ).min(MAX_TSC_KHZ) / BIN_KHZ * BIN_KHZ;
        let cycle_of =
            |khz: u32| ((u64::from(tsc_khz) << 16) + u64::from(khz) / 2) / u64::from(khz.max(1));
        let cycle = platform.clock_khz.iter();
        let cycle = cycle.map(|row| row.iter().map(|&khz| cycle_of(khz)).collect()).collect();
        let turbo: Vec<u8> =
            platform.clock_khz[0].iter().map(|&khz| (khz / BIN_KHZ).min(255) as u8).collect();
        let ratios = 1..=u32::from(turbo.iter().copied().max().unwrap_or(MIN_RATIO));
        let cycle_of_ratio =
            std::iter::once(0).chain(ratios.map(|ratio| cycle_of(ratio * BIN_KHZ))).collect();
        Clocks { tsc_khz, cycle, cycle_of_ratio, turbo }
    }

    /// Frequency of the time stamp counter.
    #[must_use]
    pub fn tsc_khz(&self) -> u32 {
        self.tsc_khz
    }

    /// The base clock as a ratio.
    #[must_use]
    pub fn base_ratio(&self) -> u8 {
        (self.tsc_khz / BIN_KHZ) as u8
    }

    /// The highest clock as a ratio.
    #[must_use]
    pub fn max_ratio(&self) -> u8 {
        (self.cycle_of_ratio.len() - 1) as u8
    }

    /// Ratios of level 0 by number of active cores.
    #[must_use]
    pub fn turbo_ratios(&self) -> &[u8] {
        &self.turbo
    }

    /// Time of a cycle: the slower of the level's clock and the requested P-state (0: none).
    #[must_use]
    #[inline]
    pub fn cycle(&self, level: u8, active: usize, ratio: u8) -> Time {
        let row = &self.cycle[level as usize];
        row[active.min(row.len() - 1)].max(self.cycle_of_ratio[ratio as usize])
    }

    /// Time of a cycle at a ratio that is not 0.
    #[must_use]
    pub(crate) fn cycle_at(&self, ratio: u8) -> Time {
        self.cycle_of_ratio[ratio as usize]
    }

    /// The clock of a level when no P-state is asked for.
    #[must_use]
    pub fn khz(&self, level: u8, active: usize) -> f64 {
        f64::from(self.tsc_khz) * 65536.0 / self.cycle(level, active, 0) as f64
    }

    /// The clock of which this is the time of a cycle.
    #[must_use]
    pub(crate) fn khz_of(&self, cycle: Time) -> u32 {
        (((u64::from(self.tsc_khz) << 16) + cycle / 2) / cycle) as u32
    }

    /// Nanoseconds since the start, rounded down.
    #[must_use]
    pub fn ns_of(&self, at: Time) -> u64 {
        ((u128::from(at) * 1_000_000) / (u128::from(self.tsc_khz) << 16)) as u64
    }

    /// The first time at which so many nanoseconds have passed; `NEVER` for `u64::MAX`.
    #[must_use]
    pub fn at_ns(&self, ns: u64) -> Time {
        let units = (u128::from(ns) * (u128::from(self.tsc_khz) << 16)).div_ceil(1_000_000);
        if ns == u64::MAX { NEVER } else { Time::try_from(units).unwrap_or(NEVER) }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use cpumodel::CpuModel;
    use proptest::prelude::*;

    use super::*;

    /// Those of a Gold 6130.
    pub(crate) fn gold() -> Clocks {
        let model = CpuModel::built_in("xeon-gold-6130").unwrap().unwrap();
        Clocks::new(&Platform::new(&model), Some(2_100_000))
    }

    /// The clocks of DIM 2 Table 1, all cores active and two, and a P-state below them.
    #[test]
    fn a_cycle_takes_what_the_cpu_file_says() {
        let clocks = gold();
        let khz = |level, active, ratio| {
            let cycle = clocks.cycle(level, active, ratio) as f64;
            2_100_000.0 * 65536.0 / cycle
        };
        for (level, active, ratio, want) in [
            (0, 16, 0, 2_800_000.0),
            (1, 16, 0, 2_400_000.0),
            (2, 16, 0, 1_900_000.0),
            (0, 2, 0, 3_700_000.0),
            (0, 99, 0, 2_800_000.0),
            (0, 16, 12, 1_200_000.0),
            (2, 16, 37, 1_900_000.0),
        ] {
            let error = (khz(level, active, ratio) / want - 1.0).abs();
            assert!(error < 2e-5, "{level} {active} {ratio}: {error}");
        }
        assert_eq!((clocks.base_ratio(), clocks.max_ratio()), (21, 37));
    }

    /// A base clock that the emulator cannot count is clipped.
    #[test]
    fn the_counter_is_not_too_fast() {
        let model = CpuModel::built_in("xeon-w-2104").unwrap().unwrap();
        assert_eq!(Clocks::new(&Platform::new(&model), Some(3_200_000)).tsc_khz(), 2_100_000);
    }

    proptest! {
        /// A deadline in nanoseconds has passed when its time has, and not one unit before.
        #[test]
        fn nanoseconds_survive_the_round_trip(ns in 0u64..100_000_000_000_000) {
            let clocks = gold();
            let at = clocks.at_ns(ns);
            prop_assert_eq!(clocks.ns_of(at), ns);
            prop_assert!(at == 0 || clocks.ns_of(at - 1) < ns);
        }
    }
}
