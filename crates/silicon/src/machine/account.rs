// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the machine writes to its log: what it is, marks of the guest, and the sums of each CPU.

use std::path::Path;

use super::Machine;
use crate::clocks::Time;
use crate::log::CpuTotals;
use crate::power;
use crate::settings::Settings;
use crate::truth::Truth;

impl Machine {
    /// Writes the log to this file from here on; see `truth.rs` for its form.
    ///
    /// # Errors
    /// When the file cannot be made.
    pub fn log_to(&mut self, path: &Path, settings: &Settings) -> std::io::Result<()> {
        self.truth = Truth::to_file(path)?;
        self.introduce(settings);
        Ok(())
    }

    pub(super) fn introduce(&mut self, settings: &Settings) {
        self.truth.machine(&format!(
            "cpu={} cpus={} threads={} others={} seed={} tsc_khz={}",
            settings.cpu,
            self.cpus.len(),
            self.threads,
            self.others,
            settings.seed,
            self.clocks.tsc_khz()
        ));
    }

    /// The guest marks this moment in the log.
    pub fn mark(&mut self, index: usize, value: u32) {
        let now = self.at[index];
        self.truth.mark(self.clocks.ns_of(now), value);
        self.totals(now);
    }

    /// Brings all licences up to the latest local time and ends the log.
    pub fn finish(&mut self) {
        let now = self.at.iter().copied().max().unwrap_or(0);
        for core in 0..self.cores.len() {
            while self.cores[core].deadline <= now {
                self.expire(core);
            }
        }
        self.totals(now);
    }

    fn totals(&mut self, now: Time) {
        let ns_of = |time: Time| self.clocks.ns_of(time);
        let t_ns = ns_of(now);
        for (index, cpu) in self.cpus.iter().enumerate() {
            let totals = CpuTotals {
                insns: cpu.insns,
                cycles: cpu.cycles_q16 >> 16,
                busy_ns: cpu.busy.iter().map(|&time| ns_of(time)).collect(),
                halted_ns: ns_of(cpu.halted),
                throttled_ns: ns_of(cpu.throttled),
                needed_ns: ns_of(cpu.needed),
                wide: cpu.wide.to_vec(),
            };
            self.truth.cpu(t_ns, index, &totals);
        }
        self.truth.package(t_ns, power::microjoules(self.energy(now), &self.clocks));
        self.truth.flush();
    }
}
