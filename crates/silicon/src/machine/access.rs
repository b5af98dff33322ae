// SPDX-License-Identifier: MIT OR Apache-2.0
//! What software reads and writes of the machine: which register is whose.

use super::{Machine, ONE, Written};
use crate::clocks::Time;
use crate::dim::{self, Order};
use crate::power::Energy;
use crate::pstates::Now;
use crate::registers::{self, View};

impl Machine {
    /// As RDMSR; `None` if the register is none of this machine's.
    #[must_use]
    pub fn read_register(&self, index: usize, register: u32) -> Option<u64> {
        let cpu = &self.cpus[index];
        let awake = cpu.busy.iter().sum::<Time>() + cpu.halted;
        let cycles = cpu.cycles_q16 >> 16;
        let current = (u64::from(self.clocks.base_ratio()) * ONE + cpu.cycle / 2) / cpu.cycle;
        let current = current.min(255) as u8;
        if let (Some(pstates), Some(request)) = (&self.pstates, &cpu.request) {
            return pstates.read(register, request, &Now { awake, cycles, ratio: current });
        }
        let energy = || self.package.read(register, &self.clocks, self.energy(self.at[index]));
        let license = || {
            let core = &self.cores[cpu.core];
            dim::read(register, &core.license, &self.times, cpu.busy.len())
        };
        let notice = || cpu.notice.read(register);
        cpu.pmu.read(register).or_else(energy).or_else(license).or_else(notice).or_else(|| {
            let (clocks, mperf, ratio) = (&self.clocks, awake >> 16, cpu.ratio);
            View { clocks, aperf: cycles, mperf, ratio, current }.read(register)
        })
    }

    /// What the package has used until then.
    pub(super) fn energy(&self, now: Time) -> Energy {
        let cpus = self.cpus.iter().map(|cpu| cpu.meter.at(cpu.powered()));
        self.package.until(now) + cpus.sum::<Energy>()
    }

    /// As WRMSR.
    pub fn write_register(&mut self, index: usize, register: u32, value: u64) -> Written {
        if self.pstates.is_some() {
            return self.request_pstate(index, register, value);
        }
        let levels = self.cpus[index].busy.len();
        match dim::order(register, value, levels) {
            Some(Ok(order)) => {
                self.obey(index, order);
                return Written::Done;
            }
            Some(Err(())) => return Written::Refused,
            None => {}
        }
        let (cpu, now) = (&mut self.cpus[index], self.at[index]);
        if let Some(good) = cpu.notice.write(register, value, cpu.demand, now, &self.clocks) {
            return if good { Written::Done } else { Written::Refused };
        }
        if let Some(ratio) = registers::requested_ratio(&self.clocks, register, value) {
            cpu.ratio = ratio;
            self.retime();
            return Written::Done;
        }
        if cpu.pmu.write(register, value) { Written::Done } else { Written::Unknown }
    }

    /// A write to a register of a machine whose P-states are by number.
    fn request_pstate(&mut self, index: usize, register: u32, value: u64) -> Written {
        self.catch_up(index);
        let (cpu, now) = (&mut self.cpus[index], self.at[index]);
        let (Some(pstates), Some(request)) = (&self.pstates, &mut cpu.request) else {
            return Written::Unknown;
        };
        let Some(held) = pstates.write(request, register, value, now) else {
            return Written::Unknown;
        };
        cpu.halted += held;
        self.at[index] += held;
        self.set_deadline(self.cpus[index].core);
        self.retime();
        Written::Done
    }

    /// Does to the licence of a CPU's core what software orders.
    fn obey(&mut self, index: usize, order: Order) {
        self.catch_up(index);
        let core = self.cpus[index].core;
        let now_ns = self.clocks.ns_of(self.at[index]);
        let license = &mut self.cores[core].license;
        let changed = match order {
            Order::Hold(hold_ns) => {
                license.set_delay(hold_ns, now_ns, &self.times);
                false
            }
            Order::Force(to) => license.force(to, now_ns, &self.times),
        };
        self.truth.order(now_ns, core, order);
        self.follow(core, now_ns, changed);
    }

    /// As RDPMC.
    #[must_use]
    pub fn read_counter(&self, index: usize, counter: u32) -> u64 {
        self.cpus[index].pmu.read_counter(counter)
    }
}
