// SPDX-License-Identifier: MIT OR Apache-2.0
//! Licences, clocks, rates, and the work that was done at them.

use cpumodel::{MAX_LEVELS, Phase};

use super::{CpuState, Engine, Load, Point, Q};
use crate::events::{Happened, Sink};
use crate::sched::Scheduler;
use crate::timers::NEVER;

impl<S: Scheduler, K: Sink> Engine<S, K> {
    /// Count what the CPU did since the last time, at the rate that it had.
    #[inline]
    pub(super) fn sync(&mut self, cpu: usize) {
        let c = &mut self.cpus[cpu];
        let elapsed_ns = self.sys.now_ns - c.synced_ns;
        if elapsed_ns == 0 {
            return;
        }
        c.synced_ns = self.sys.now_ns;
        if c.state != CpuState::Busy {
            return;
        }
        c.left_q = c.left_q.saturating_sub(elapsed_ns * c.now.rate_q);
        c.sums.busy_ns += elapsed_ns;
        c.sums.khz_ns += elapsed_ns * u64::from(c.now.khz);
        c.sums.mw_ns += elapsed_ns * u64::from(c.now.mw);
        c.sums.level_ns[c.level as usize % MAX_LEVELS] += elapsed_ns;
    }

    /// The work changed, and perhaps the rate: say when the work ends now. Counted is already.
    #[inline]
    pub(super) fn reload(&mut self, cpu: usize) {
        let now_ns = self.sys.now_ns;
        let c = &mut self.cpus[cpu];
        if !c.rate_holds {
            return self.retime(cpu);
        }
        c.work_end_ns = end_ns(now_ns, c.left_q, c.now.rate_q);
        self.arm(cpu);
    }

    /// The rate changed, or the work: count, and say when the work ends now.
    pub(super) fn retime(&mut self, cpu: usize) {
        self.sync(cpu);
        let c = &self.cpus[cpu];
        if c.state != CpuState::Busy {
            return;
        }
        let core = &self.cores[c.core as usize];
        let package = &self.packages[c.package as usize];
        let level =
            if self.platform.level_is_package_wide { package.level } else { core.license.level() };
        let row = level as usize * (self.platform.nr_cores + 1);
        let mut now = package.power.below(self.points[row + package.applied as usize]);
        if !self.memory.is_empty() && c.load == Load::Work {
            let group = self.tasks[c.curr as usize].group;
            now.rate_q = waiting_rate_q(now.rate_q, self.memory[usize::from(group)]);
        }
        if core.nr_busy > 1 {
            now.rate_q = (now.rate_q * u64::from(self.share_q10[core.nr_busy as usize])) >> 10;
            now.mw = ((now.mw * self.siblings_power_q10) >> 10) / u32::from(core.nr_busy);
        }
        match core.license.phase() {
            Phase::Steady => {}
            Phase::Halted => now = Point::default(),
            Phase::Throttled if core.license.is_throttled(c.asks) => {
                now.rate_q = (now.rate_q * u64::from(self.throttle_q10)) >> 10;
            }
            Phase::Throttled => {}
        }
        let now_ns = self.sys.now_ns;
        let c = &mut self.cpus[cpu];
        c.level = core.license.level();
        c.now = now;
        c.rate_holds = true;
        c.work_end_ns = end_ns(now_ns, c.left_q, now.rate_q);
        self.arm(cpu);
    }

    /// Set the CPU's timer to what comes first.
    #[inline]
    pub(super) fn arm(&mut self, cpu: usize) {
        let c = &self.cpus[cpu];
        let at_ns = match c.state {
            CpuState::Busy => c.work_end_ns.min(c.tick_ns).min(c.resched_ns).min(c.alarm_ns),
            CpuState::Waking => c.resched_ns,
            CpuState::Idle | CpuState::Offline => NEVER,
        };
        self.cpu_timers.set(cpu, at_ns);
    }

    /// The same for all busy CPUs of a core.
    pub(super) fn retime_core(&mut self, core: usize) {
        for i in 0..self.cores[core].cpus.len() {
            let cpu = self.cores[core].cpus[i] as usize;
            self.retime(cpu);
        }
    }

    /// The CPU executes code that asks for this level from now on. Its own rate is the caller's.
    #[inline(always)]
    pub(super) fn asks(&mut self, cpu: usize, level: u8) {
        if self.cpus[cpu].asks != level {
            self.asks_anew(cpu, level);
        }
    }

    fn asks_anew(&mut self, cpu: usize, level: u8) {
        self.cpus[cpu].asks = level;
        self.cpus[cpu].rate_holds = false;
        if K::WANTED {
            let what = Happened::Asks { cpu: cpu as u16, level };
            self.sink.happened(self.sys.now_ns, &what);
        }
        let core = self.cpus[cpu].core as usize;
        let cpus = &self.cpus;
        let demand = self.cores[core].cpus.iter().map(|&c| cpus[c as usize].asks).max();
        let demand = demand.unwrap_or(0);
        let license = &mut self.cores[core].license;
        if license.demand() == demand {
            return;
        }
        let (now_ns, times) = (self.sys.now_ns, &self.platform.times);
        let before_ns = license.deadline_ns();
        let changed = license.set_demand(demand, now_ns, times);
        let deadline_ns = license.deadline_ns();
        if deadline_ns != before_ns {
            self.core_timers.set(core, deadline_ns);
        }
        if changed {
            self.license_changed(core);
        }
    }

    /// A core's transition or hold has come to an end.
    pub(super) fn core_event(&mut self, core: usize) {
        let now_ns = self.sys.now_ns;
        let license = &mut self.cores[core].license;
        let old = license.level();
        let changed = license.expire(now_ns, &self.platform.times);
        let (new, deadline_ns) = (license.level(), license.deadline_ns());
        self.core_timers.set(core, deadline_ns);
        if !changed {
            return;
        }
        if new != old {
            self.sys.license_level[core] = new;
            if self.platform.level_is_package_wide {
                self.package_level_changed(self.cores[core].package as usize);
            }
        }
        self.license_changed(core);
    }

    pub(super) fn package_level_changed(&mut self, package: usize) {
        let cores = &self.packages[package].cores;
        let level = cores.iter().map(|&core| self.cores[core as usize].license.level()).max();
        self.packages[package].level = level.unwrap_or(0);
        self.retime_package(package);
    }

    fn license_changed(&mut self, core: usize) {
        self.retime_core(core);
        if K::WANTED {
            self.tell_license(core);
        }
    }

    pub(super) fn tell_license(&mut self, core: usize) {
        let c = &self.cores[core];
        let package = &self.packages[c.package as usize];
        let level =
            if self.platform.level_is_package_wide { package.level } else { c.license.level() };
        let khz = match c.license.phase() {
            Phase::Halted => 0,
            _ => {
                let table_khz = self.platform.clock_khz(level, package.applied as usize);
                table_khz.min(package.power.ceiling_khz())
            }
        };
        let throttled = c.license.phase() == Phase::Throttled;
        let what =
            Happened::License { core: core as u16, level: c.license.level(), khz, throttled };
        self.sink.happened(self.sys.now_ns, &what);
    }

    /// A core became active or inactive. The clocks follow at the power control unit's next look,
    /// if they change at all.
    pub(super) fn active_changed(&mut self, package: usize) {
        let p = &self.packages[package];
        let (active, applied) = (p.nr_active as usize, p.applied as usize);
        let same = self.platform.clock_khz.iter().all(|row| row[active] == row[applied]);
        let due_ns = self.package_timers.get(package);
        if !same && due_ns == NEVER {
            let period_ns = self.platform.pcu_period_ns;
            let at_ns = (self.sys.now_ns / period_ns + 1) * period_ns;
            self.package_timers.set(package, at_ns);
        }
    }

    pub(super) fn package_event(&mut self, package: usize) {
        self.package_timers.set(package, NEVER);
        let p = &mut self.packages[package];
        if p.applied == p.nr_active {
            return;
        }
        p.applied = p.nr_active;
        self.package_clocks_changed(package);
    }

    pub(super) fn package_clocks_changed(&mut self, package: usize) {
        self.retime_package(package);
        if K::WANTED {
            for i in 0..self.packages[package].cores.len() {
                self.tell_license(self.packages[package].cores[i] as usize);
            }
        }
    }

    fn retime_package(&mut self, package: usize) {
        for i in 0..self.packages[package].cores.len() {
            let core = self.packages[package].cores[i] as usize;
            self.retime_core(core);
        }
    }

    /// Work of the kernel that takes this long at the reference clock.
    #[inline]
    pub(super) fn cost_q(&self, ns: u64) -> u64 {
        ns * self.reference_q
    }
}

/// When work is done at a rate.
#[inline]
pub(super) fn end_ns(now_ns: u64, left_q: u64, rate_q: u64) -> u64 {
    if rate_q == 0 { NEVER } else { now_ns + left_q.div_ceil(rate_q) }
}

/// The rate of work of which so many 1,024ths follow the clock (`rate_q`), and the others one that
/// was measured with them: see [`crate::program::Memory`].
fn waiting_rate_q(rate_q: u64, (sensitive_q10, reference_q): (u64, u64)) -> u64 {
    let shared = sensitive_q10 * reference_q + (1024 - sensitive_q10) * rate_q;
    // Rates are below 2^23, so products are far below 2^64.
    ((rate_q * reference_q) << 10).checked_div(shared).unwrap_or(0)
}

/// kHz as work per nanosecond.
pub(super) fn khz_to_rate_q(khz: u32) -> u64 {
    (u64::from(khz) << Q) / 1_000_000
}
