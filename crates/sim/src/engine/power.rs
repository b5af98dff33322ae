// SPDX-License-Identifier: MIT OR Apache-2.0
//! The power limit of packages: [`cpumodel::PowerLimit`] on this engine's time, and what it does to
//! clocks, rates and power. A platform without a limit has no looks and no ceiling.

use cpumodel::{POWER_LOOK_NS, Platform, PowerLimit};

use super::rates::khz_to_rate_q;
use super::{Engine, Point, kind};
use crate::events::Sink;
use crate::sched::Scheduler;

/// One package.
#[derive(Clone, Debug)]
pub(super) struct PowerState {
    limit: Option<PowerLimit>,
    ceiling_khz: u32,
    /// What its CPUs had used at the last look, of the sums that are counted now: wraps.
    seen_mw_ns: u64,
}

impl PowerState {
    pub fn new(platform: &Platform) -> Self {
        let limit = PowerLimit::new(platform);
        let ceiling_khz = limit.as_ref().map_or(u32::MAX, PowerLimit::ceiling_khz);
        PowerState { limit, ceiling_khz, seen_mw_ns: 0 }
    }

    #[inline]
    pub fn ceiling_khz(&self) -> u32 {
        self.ceiling_khz
    }

    /// What a core does there that the turbo tables would let do `point`.
    #[inline]
    pub fn below(&self, point: Point) -> Point {
        if point.khz <= self.ceiling_khz {
            return point;
        }
        let frac = f64::from(self.ceiling_khz) / f64::from(point.khz);
        Point {
            rate_q: khz_to_rate_q(self.ceiling_khz),
            khz: self.ceiling_khz,
            mw: (f64::from(point.mw) * frac.powi(3)) as u32,
        }
    }
}

/// Power of a core with more than one busy sibling over that with one, 1024 = as much. As much as
/// it does more, where a limit makes the difference; other packages keep their TDP (platform.rs).
pub(super) fn siblings_power_q10(platform: &Platform) -> u32 {
    let frac = if platform.limit_w.is_some() { platform.smt_frac } else { 1.0 };
    (frac * 1024.0) as u32
}

impl<S: Scheduler, K: Sink> Engine<S, K> {
    pub(super) fn begin_power_looks(&mut self) {
        for package in 0..self.packages.len() {
            if self.packages[package].power.limit.is_some() {
                self.agenda.push(POWER_LOOK_NS, kind::CONTROL | (package as u32 + 1));
            }
        }
    }

    pub(super) fn power_look(&mut self, package: usize) {
        let used_mw_ns = self.used_mw_ns(package);
        let power = &mut self.packages[package].power;
        let Some(limit) = &mut power.limit else { return };
        let since_mw_ns = used_mw_ns.wrapping_sub(power.seen_mw_ns);
        power.seen_mw_ns = used_mw_ns;
        limit.look(since_mw_ns as f64 / POWER_LOOK_NS as f64 / 1e3);
        let before_khz = std::mem::replace(&mut power.ceiling_khz, limit.ceiling_khz());
        if power.ceiling_khz != before_khz {
            self.package_clocks_changed(package);
        }
        let next_ns = self.sys.now_ns + POWER_LOOK_NS;
        self.agenda.push(next_ns, kind::CONTROL | (package as u32 + 1));
    }

    /// The sums begin anew: what was used since the last look still counts at the next one.
    pub(super) fn keep_energy_since_looks(&mut self) {
        for package in 0..self.packages.len() {
            let used_mw_ns = self.used_mw_ns(package);
            let power = &mut self.packages[package].power;
            power.seen_mw_ns = power.seen_mw_ns.wrapping_sub(used_mw_ns);
        }
    }

    /// What the CPUs of a package have used by now.
    fn used_mw_ns(&mut self, package: usize) -> u64 {
        let mut sum = 0;
        for cpu in 0..self.cpus.len() {
            if usize::from(self.cpus[cpu].package) == package {
                self.sync(cpu);
                sum += self.cpus[cpu].sums.mw_ns;
            }
        }
        sum
    }
}
