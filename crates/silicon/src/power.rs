// SPDX-License-Identifier: MIT OR Apache-2.0
//! Energy of the package, and the registers by which software reads it (RAPL; SDM vol. 3, 15.10).
//!
//! Problem: `intel_rapl`, perf's `power` events and turbostat read energy from registers, and no
//! emulator has any. Energy is power times time, and a core's power changes with its clock, its
//! level and with whether it executes anything: a few times per millisecond. Its time changes with
//! every trace, some ten million times per second.
//!
//! Idea: a CPU keeps the time that it executes anyhow (`busy`). Its power is multiplied with what
//! was added to that time when the power changes, and when software reads it: nothing is done for a
//! trace.
//!
//! The model is `cpumodel::Platform`'s, which simulations and replays count energy with; where
//! software sets P-states, a busy core's power is `PstateModel::core_mw`'s instead:
//!
//! ```text
//!   package = idle_w                                  asleep: a fifth of the TDP
//!           + others x busy_core_w(0, clock)          cores that the guest does not have, always busy
//!           + sum over cores of busy_core_w(level, clock) while a CPU of it executes
//! ```
//!
//! | register | what |
//! |---|---|
//! | 606H MSR_RAPL_POWER_UNIT | 1/8 W, 2^-14 J (61 uJ), 1/1024 s: as Skylake-SP |
//! | 610H MSR_PKG_POWER_LIMIT | the TDP, enabled and locked: there is no limit to set |
//! | 611H MSR_PKG_ENERGY_STATUS | energy in 2^-14 J, 32 bits, then it begins again |
//! | 614H MSR_PKG_POWER_INFO | the TDP |
//! | 619H, 639H, 641H | 0: no energy of memory, of the cores alone or of graphics, as 639H on Skylake-SP; Linux leaves such domains out |
//!
//! Limits: **no figure of power here was measured on a real CPU** but the TDP, which is Intel's.
//! The rest is derived (dynamic power goes with the cube of the clock, `Platform::busy_core_w`). A
//! core that halts for a change of its clock, or whose CPUs sleep, uses nothing beyond `idle_w`.
//! Real parts update the register each millisecond, this one at each read. Siblings that execute at
//! the same time are one core's power together, not more.

use cpumodel::{Platform, PstateModel};

use crate::clocks::{Clocks, Time};

const POWER_UNIT: u32 = 0x606;
const POWER_LIMIT: u32 = 0x610;
const ENERGY_STATUS: u32 = 0x611;
const POWER_INFO: u32 = 0x614;
const DRAM_ENERGY: u32 = 0x619;
const PP0_ENERGY: u32 = 0x639;
const PP1_ENERGY: u32 = 0x641;

/// 2^-3 W, 2^-14 J, 2^-10 s.
const POWER_BITS: u32 = 3;
const ENERGY_BITS: u32 = 14;
const TIME_BITS: u64 = 10;

/// Of a power limit: in force, and not to be changed until reset.
const LIMIT_ENABLED: u64 = 1 << 15;
const LIMIT_LOCKED: u64 = 1 << 63;

/// Energy: microwatts times [`Time`].
pub(crate) type Energy = u128;

/// The package less the guest's cores, and the units of both.
pub(crate) struct Package {
    platform: Platform,
    /// Of a machine whose P-states software sets.
    pstates: Option<PstateModel>,
    /// Cores that the guest does not have.
    others: u64,
    /// What the package uses without the guest's cores.
    uw: u64,
    /// Until when `used` counts.
    since: Time,
    used: Energy,
}

impl Package {
    /// With so many active cores in all.
    pub(crate) fn new(
        platform: &Platform,
        pstates: Option<PstateModel>,
        others: u32,
        active: usize,
    ) -> Self {
        let (platform, others) = (platform.clone(), u64::from(others));
        let mut package = Package { platform, pstates, others, uw: 0, since: 0, used: 0 };
        package.follow(0, active);
        package
    }

    /// From this time on so many cores are active.
    pub(crate) fn follow(&mut self, now: Time, active: usize) {
        self.used = self.until(now);
        self.since = self.since.max(now);
        let khz = self.platform.clock_khz(0, active);
        self.uw = microwatts(self.platform.idle_w) + self.others * self.core_uw(0, khz);
    }

    /// What a core of the guest uses while it executes.
    pub(crate) fn core_uw(&self, level: u8, khz: u32) -> u64 {
        let by_pstate = self.pstates.as_ref().and_then(|model| model.core_mw(khz.into()));
        microwatts(match by_pstate {
            Some(mw) => mw / 1000.0,
            None => self.platform.busy_core_w(level, khz),
        })
    }

    /// What the package has used until then, without the guest's cores.
    pub(crate) fn until(&self, now: Time) -> Energy {
        self.used + Energy::from(self.uw) * Energy::from(now.saturating_sub(self.since))
    }

    /// A register; `None` if it is none of these. `used` is the energy of the package with its
    /// cores.
    pub(crate) fn read(&self, register: u32, clocks: &Clocks, used: Energy) -> Option<u64> {
        let tdp_w = self.platform.idle_w + self.platform.core_w * self.platform.nr_cores as f64;
        let tdp = (tdp_w * f64::from(1u32 << POWER_BITS)).round() as u64 & 0x7fff;
        Some(match register {
            POWER_UNIT => TIME_BITS << 16 | u64::from(ENERGY_BITS) << 8 | u64::from(POWER_BITS),
            POWER_LIMIT => LIMIT_LOCKED | LIMIT_ENABLED | tdp,
            POWER_INFO => tdp,
            ENERGY_STATUS => u64::from(((used << ENERGY_BITS) / joules(1, clocks)) as u32),
            DRAM_ENERGY | PP0_ENERGY | PP1_ENERGY => 0,
            _ => return None,
        })
    }
}

/// What one CPU of the guest has used.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Meter {
    uw: u64,
    /// The executed time that `used` counts.
    counted: Time,
    used: Energy,
}

impl Meter {
    /// From here on it uses so much while it executes; it has executed for `busy` so far.
    pub(crate) fn follow(&mut self, busy: Time, uw: u64) {
        self.used = self.at(busy);
        self.counted = busy;
        self.uw = uw;
    }

    /// What it has used when it has executed for so long.
    pub(crate) fn at(&self, busy: Time) -> Energy {
        self.used + Energy::from(self.uw) * Energy::from(busy - self.counted)
    }
}

/// An energy as microjoules.
pub(crate) fn microjoules(used: Energy, clocks: &Clocks) -> u64 {
    (used * 1_000_000 / joules(1, clocks)) as u64
}

/// So many joules.
fn joules(number: u64, clocks: &Clocks) -> Energy {
    let second = (u128::from(clocks.tsc_khz()) * 1_000) << 16;
    u128::from(number) * 1_000_000 * second
}

fn microwatts(watts: f64) -> u64 {
    (watts * 1e6).round() as u64
}

#[cfg(test)]
mod tests {
    use cpumodel::CpuModel;

    use super::*;

    fn gold(others: u32) -> (Package, Clocks) {
        let model = CpuModel::built_in("xeon-gold-6130").unwrap().unwrap();
        let platform = Platform::new(&model);
        (Package::new(&platform, None, others, 16), Clocks::new(&platform, Some(2_100_000)))
    }

    /// A Gold 6130 of which 16 cores are busy at the all-core clock uses its TDP, 125 W.
    #[test]
    fn a_full_package_uses_its_tdp() {
        let (package, clocks) = gold(16);
        let second = clocks.at_ns(1_000_000_000);
        let used_uj = microjoules(package.until(second), &clocks);
        assert!(used_uj.abs_diff(125_000_000) < 100, "{used_uj}");
        assert_eq!(package.core_uw(0, 2_800_000), package.core_uw(2, 1_900_000));
        assert_eq!(package.core_uw(0, 1_400_000), package.core_uw(0, 2_800_000) / 8);
    }

    /// Energy goes on from where it was when the power changes.
    #[test]
    fn a_change_of_power_counts_from_its_time() {
        let (mut package, clocks) = gold(0);
        let second = clocks.at_ns(1_000_000_000);
        package.follow(second, 3);
        assert_eq!(microjoules(package.until(2 * second), &clocks), 50_000_000);
        let mut meter = Meter::default();
        meter.follow(0, 4_000_000);
        meter.follow(second, 1_000_000);
        assert_eq!(microjoules(meter.at(3 * second), &clocks), 6_000_000);
    }

    /// Units as Linux decodes them, a counter of 32 bits, and a limit that cannot be set.
    #[test]
    fn registers_are_those_of_skylake_sp() {
        let (package, clocks) = gold(0);
        let read = |register, used| package.read(register, &clocks, used);
        assert_eq!(read(POWER_UNIT, 0), Some(0xa_0e03));
        assert_eq!(read(POWER_INFO, 0), Some(125 * 8));
        assert_eq!(read(POWER_LIMIT, 0).map(|limit| limit & 0x7fff), Some(125 * 8));
        assert_eq!(read(ENERGY_STATUS, joules(3, &clocks)), Some(3 << 14));
        assert_eq!(read(ENERGY_STATUS, joules(1 << 18, &clocks)), Some(0), "it begins again");
        assert_eq!(
            (read(PP0_ENERGY, 9), read(DRAM_ENERGY, 9), read(0x10, 9)),
            (Some(0), Some(0), None)
        );
    }
}
