// SPDX-License-Identifier: MIT OR Apache-2.0
//! A pause of everything but the licences, as an overhead profiler makes it.

use super::{CpuState, Engine};
use crate::events::Sink;
use crate::sched::Scheduler;
use crate::timers::NEVER;

fn later(at_ns: u64, ns: u64) -> u64 {
    if at_ns == NEVER { NEVER } else { at_ns + ns }
}

impl<S: Scheduler, K: Sink> Engine<S, K> {
    /// The granted level of each core; `None` for one that idles.
    pub fn license_levels(&self) -> Vec<Option<u8>> {
        let level = |core: &super::Core| (core.nr_busy > 0).then(|| core.license.level());
        self.cores.iter().map(level).collect()
    }

    /// The granted level of each core.
    pub fn core_levels(&self) -> Vec<u8> {
        self.cores.iter().map(|core| core.license.level()).collect()
    }

    /// For so long no CPU executes anything, nothing arrives and no one wakes; only licences go on.
    ///
    /// The scheduler sees that time has passed and takes it for the running tasks': what follows is
    /// to be looked at for a moment, in a copy of the run.
    pub fn pause(&mut self, ns: u64) {
        let until_ns = self.sys.now_ns + ns;
        (0..self.cpus.len()).for_each(|cpu| self.sync(cpu));
        for core in 0..self.cores.len() {
            self.rest(core, until_ns);
        }
        self.sys.now_ns = until_ns;
        // nothing was done in the meantime
        self.cpus.iter_mut().for_each(|c| c.synced_ns = until_ns);
        for package in 0..self.packages.len() {
            let due_ns = self.package_timers.get(package);
            self.package_timers.set(package, later(due_ns, ns));
            if self.platform.level_is_package_wide {
                self.package_level_changed(package);
            }
        }
        self.agenda.delay(ns);
        for cpu in 0..self.cpus.len() {
            let c = &mut self.cpus[cpu];
            (c.tick_ns, c.resched_ns) = (later(c.tick_ns, ns), later(c.resched_ns, ns));
            c.alarm_ns = later(c.alarm_ns, ns);
            if c.state == CpuState::Busy {
                self.retime(cpu);
            } else {
                self.arm(cpu);
            }
        }
    }

    /// The core's licence until then, while no one asks for anything.
    fn rest(&mut self, core: usize, until_ns: u64) {
        let times = &self.platform.times;
        let license = &mut self.cores[core].license;
        let demand = license.demand();
        license.set_demand(0, self.sys.now_ns, times);
        while license.deadline_ns() <= until_ns {
            license.expire(license.deadline_ns(), times);
        }
        license.set_demand(demand, until_ns, times);
        self.sys.license_level[core] = license.level();
        let deadline_ns = license.deadline_ns();
        self.core_timers.set(core, deadline_ns);
    }
}
