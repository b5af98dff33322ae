// SPDX-License-Identifier: MIT OR Apache-2.0
//! The power limit of a package: one ceiling for the clocks of all its cores.
//!
//! Problem: turbo tables say what clock a core may have by its level and by the number of active
//! cores. On parts since about 2023 they promise more than the power limit (RAPL's PL1) lets a full
//! package have: two Xeon 6962P, both siblings of all cores busy with scalar code, run at 3.25 to
//! 3.3 GHz and 502 W per package, 3.6 GHz with one busy sibling per core (public measurement of
//! 2026-07-02). Where the limit rules, level 0 has less than its table says, so wide code costs
//! less than the tables say.
//!
//! Idea: once per period the power control unit compares what the cores used with what the limit
//! leaves them, and moves the ceiling. Dynamic power goes with the cube of the clock
//! ([`Platform::busy_core_w`]), so the ceiling moves by the cube root of the quotient: where it
//! holds for all busy cores one look is enough, where some are below it anyhow (those at a higher
//! level) a few are.
//!
//! ```text
//!   ceiling  <-  ceiling x cbrt((limit_w - idle_w) / power of the cores)     FLOOR_KHZ..=top
//!   clock    =   min(turbo table, ceiling)
//! ```
//!
//! A second busy sibling lets a core use more, as much as it lets it do more
//! (`Platform::smt_frac`): what the 6962P shows. With 1.25 the model says 3.35 GHz there.
//!
//! Limits: the ceiling follows the last period; hardware averages over its window, of a second or
//! more, and lets bursts pass that are shorter. It has no bins of 100 MHz, as if it were averaged
//! over them. Power of caches, memory controllers and links is part of `idle_w`, whatever they do.
//! The second limit (PL2), current and temperature limit nothing. The dim-silicon machine does not
//! have it.

use crate::Platform;

/// How often the power control unit looks at power: ten updates of RAPL's energy counters, which
/// come about each millisecond (Intel SDM 3B, "RAPL Interfaces").
pub const POWER_LOOK_NS: u64 = 10_000_000;
/// The lowest clock of Xeons since Skylake-SP: ratio 8.
const FLOOR_KHZ: f64 = 800_000.0;

/// The ceiling of one package.
#[derive(Clone, Debug)]
pub struct PowerLimit {
    /// What the limit leaves to the cores, W.
    cores_w: f64,
    /// The highest clock of any level.
    top_khz: f64,
    ceiling_khz: f64,
}

impl PowerLimit {
    /// Of a package of this platform; `None` if it has no limit.
    pub fn new(platform: &Platform) -> Option<Self> {
        let top_khz = platform.clock_khz[0].iter().copied().max().unwrap_or(0).into();
        let cores_w = (platform.limit_w? - platform.idle_w).max(0.0);
        Some(PowerLimit { cores_w, top_khz, ceiling_khz: top_khz })
    }

    /// No core's clock is above it.
    pub fn ceiling_khz(&self) -> u32 {
        self.ceiling_khz as u32
    }

    /// A period has passed in which the cores used so much, W, beyond the package's idle power.
    pub fn look(&mut self, used_w: f64) {
        // Cores that used nothing leave no reason for a ceiling.
        let more = (self.cores_w / used_w.max(1e-9)).cbrt();
        self.ceiling_khz = (self.ceiling_khz * more).min(self.top_khz).max(FLOOR_KHZ);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{CpuModel, Khz, Known, LicenseLevel, Sourced, Sureness, TurboBin};

    fn known<T>(value: T) -> Known<T> {
        Some(Sourced { value, source: "test".into(), sureness: Sureness::Verified })
    }

    /// 10 cores, 110 W, 10 of them asleep: 10 W for a core at 3 GHz, its all-core clock; 2.5 GHz at
    /// level 1, for as much.
    fn platform(limit_w: Option<f64>) -> Platform {
        let level = |mhz: &[(u32, u32)]| {
            let bins = mhz
                .iter()
                .map(|&(up_to_cores, mhz)| TurboBin { up_to_cores, clock: Khz::of_mega(mhz) });
            LicenseLevel { turbo: known(bins.collect()), ..Default::default() }
        };
        let mut model = CpuModel {
            nr_cores: known(10),
            levels: vec![level(&[(2, 4_000), (10, 3_000)]), level(&[(10, 2_500)])],
            ..Default::default()
        };
        model.power.tdp_w = known(110.0);
        model.power.idle_w = known(10.0);
        model.power.limit_w = limit_w.and_then(known);
        Platform::new(&model)
    }

    /// Power of so many cores at level 0 and so many at level 1, under a ceiling.
    fn used_w(platform: &Platform, ceiling_khz: u32, nr_cores: [f64; 2]) -> f64 {
        let of = |level: u8| {
            let khz = platform.clock_khz(level, 10).min(ceiling_khz);
            nr_cores[usize::from(level)] * platform.busy_core_w(level, khz)
        };
        of(0) + of(1)
    }

    fn settled_khz(limit_w: f64, nr_cores: [f64; 2]) -> u32 {
        let platform = platform(Some(limit_w));
        let mut limit = PowerLimit::new(&platform).unwrap();
        for _ in 0..20 {
            limit.look(used_w(&platform, limit.ceiling_khz(), nr_cores));
        }
        limit.ceiling_khz()
    }

    /// Without a limit there is no ceiling, and one that is not reached changes no clock.
    #[test]
    fn a_limit_that_is_not_reached_changes_nothing() {
        assert!(PowerLimit::new(&platform(None)).is_none());
        assert_eq!(settled_khz(110.1, [10.0, 0.0]), 4_000_000);
        assert_eq!(settled_khz(60.0, [0.0, 0.0]), 4_000_000);
    }

    /// All cores at level 0 with 90 of the 100 W: the cube root of 0.9 of 3 GHz.
    #[test]
    fn one_ceiling_for_all() {
        assert_eq!(settled_khz(100.0, [10.0, 0.0]) / 1_000, 2_896);
    }

    /// Those below the ceiling keep their clock and their power: five at level 1 use 50 W, which
    /// leaves 40 W to five at level 0, 8 W each: the cube root of 0.8 of 3 GHz.
    #[test]
    fn higher_levels_may_lie_below_the_ceiling() {
        let khz = settled_khz(100.0, [5.0, 5.0]);
        assert!((2_784..=2_786).contains(&(khz / 1_000)), "{khz}");
    }

    /// A limit below what the package uses asleep leaves the lowest clock, not none.
    #[test]
    fn no_limit_stops_a_package() {
        assert_eq!(settled_khz(5.0, [10.0, 0.0]), 800_000);
    }
}
