// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which clock each CPU has: licences that move, active cores, P-states.
//!
//! - A core asks for the highest of its CPUs' demands; a CPU that sleeps demands nothing.
//! - While the core halts for a change of its clock, none of its CPUs executes anything: their
//!   local times move to the halt's end.
//! - Siblings share one clock: the core's P-state is the highest that one of them asks for.
//! - Clocks follow the number of active cores at the power control unit's next look, a multiple of
//!   `pcu_period_ns`, as in the simulator. A core is active while one of its CPUs is awake.
//! - Where P-states are by number (`pstates.rs`), a CPU's goes to the one that it asks for step by
//!   step.
//! - A licence is brought up to date when one of its core's CPUs executes or wakes up. What
//!   happened before is processed with the times at which it was due.

use cpumodel::Phase;

use super::{Core, Machine};
use crate::clocks::{NEVER, Time};

impl Machine {
    /// Processes what was due on a CPU's core until its local time.
    pub(super) fn catch_up(&mut self, index: usize) {
        if self.at[index] >= self.look {
            self.look_at_activity(self.at[index]);
        }
        let core = self.cpus[index].core;
        while self.cores[core].deadline <= self.at[index] {
            self.expire(core);
        }
    }

    /// The power control unit looked at all its times up to now; nothing has changed since the
    /// first of them.
    pub(super) fn look_at_activity(&mut self, now: Time) {
        if now < self.look {
            return;
        }
        let active = self.awake + self.others;
        if active != self.applied {
            self.applied = active;
            self.truth.turbo(self.clocks.ns_of(self.look), active);
            self.package.follow(self.look, active);
            self.retime();
        }
        let next = self.clocks.ns_of(now) / self.pcu_period_ns + 1;
        self.look = self.clocks.at_ns(next * self.pcu_period_ns);
    }

    /// The deadline of a core has come.
    pub(super) fn expire(&mut self, core: usize) {
        let due_ns = self.cores[core].license.deadline_ns();
        if self.cores[core].deadline < self.clocks.at_ns(due_ns) {
            self.step(core);
            return;
        }
        let changed = self.cores[core].license.expire(due_ns, &self.times);
        self.follow(core, due_ns, changed);
    }

    /// The licence of a core was moved, and may have changed its phase.
    pub(super) fn follow(&mut self, core: usize, now_ns: u64, changed: bool) {
        self.set_deadline(core);
        if changed {
            self.truth.license(now_ns, core, &self.cores[core].license);
            self.stand_still(core);
            self.retime();
        }
    }

    /// When something of a core is due next.
    pub(super) fn set_deadline(&mut self, core: usize) {
        let license = self.clocks.at_ns(self.cores[core].license.deadline_ns());
        let requests = self.cpus[core * self.threads..(core + 1) * self.threads].iter();
        let steps = requests.filter_map(|cpu| Some(cpu.request.as_ref()?.due()));
        self.cores[core].deadline = steps.min().unwrap_or(NEVER).min(license);
    }

    /// P-states of a core's CPUs go one step further, where that is due.
    fn step(&mut self, core: usize) {
        let now = self.cores[core].deadline;
        for cpu in &mut self.cpus[core * self.threads..(core + 1) * self.threads] {
            if let Some(request) = cpu.request.as_mut().filter(|request| request.due() <= now) {
                request.step();
            }
        }
        self.set_deadline(core);
        self.retime();
    }

    /// The clocks may have changed.
    pub(super) fn retime(&mut self) {
        for index in 0..self.cpus.len() {
            let core = self.cpus[index].core;
            let (level, ratio) = (self.level(core), self.ratio(core));
            let cpu = &mut self.cpus[index];
            cpu.level = level;
            cpu.cycle = self.clocks.cycle(level, self.applied, ratio);
            let uw = self.package.core_uw(level, self.clocks.khz_of(cpu.cycle));
            cpu.meter.follow(cpu.powered(), uw);
        }
    }

    /// While a core halts, its CPUs do nothing.
    fn stand_still(&mut self, core: usize) {
        let Core { license, deadline, .. } = &self.cores[core];
        if license.phase() != Phase::Halted {
            return;
        }
        for index in core * self.threads..(core + 1) * self.threads {
            let (cpu, at) = (&mut self.cpus[index], &mut self.at[index]);
            if cpu.is_awake && *at < *deadline {
                cpu.halted += *deadline - *at;
                *at = *deadline;
            }
        }
    }

    pub(super) fn set_demand(&mut self, index: usize, demand: u8, now: Time) {
        self.cpus[index].demand = demand;
        self.cpus[index].notice.follow(demand, now, &self.clocks);
        let core = self.cpus[index].core;
        let siblings = &self.cpus[core * self.threads..(core + 1) * self.threads];
        let demand = siblings.iter().map(|cpu| cpu.demand).max().unwrap_or(0);
        let entry = &mut self.cores[core];
        if demand == entry.license.demand() {
            return;
        }
        let now_ns = self.clocks.ns_of(now);
        let changed = entry.license.set_demand(demand, now_ns, &self.times);
        self.set_deadline(core);
        if changed {
            self.truth.license(now_ns, core, &self.cores[core].license);
        }
    }

    /// The level whose clock is in force.
    fn level(&self, core: usize) -> u8 {
        if self.is_package_wide {
            self.cores.iter().map(|core| core.license.level()).max().unwrap_or(0)
        } else {
            self.cores[core].license.level()
        }
    }

    /// The P-state of a core: the highest that one of its CPUs asks for; 0 if one asks for none.
    fn ratio(&self, core: usize) -> u8 {
        let siblings = &self.cpus[core * self.threads..(core + 1) * self.threads];
        let ratios = siblings.iter().map(|cpu| match (&self.pstates, &cpu.request) {
            (Some(pstates), Some(request)) => pstates.ceiling(request),
            _ => cpu.ratio,
        });
        if ratios.clone().any(|ratio| ratio == 0) { 0 } else { ratios.max().unwrap_or(0) }
    }
}
