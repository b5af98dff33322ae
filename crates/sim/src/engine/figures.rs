// SPDX-License-Identifier: MIT OR Apache-2.0
//! What follows from the counts: rates, shares, and which response times are whose.

use super::{CpuOutcome, GroupOutcome, Outcome};
use crate::histogram::Histogram;

/// A part of a whole; 0 if there is nothing.
fn fraction(part_ns: u64, whole_ns: u64) -> f64 {
    if whole_ns == 0 { 0.0 } else { part_ns as f64 / whole_ns as f64 }
}

impl Outcome {
    /// So many in the measured time, per second; 0 if nothing was measured.
    pub fn per_second(&self, count: u64) -> f64 {
        if self.measured_ns == 0 { 0.0 } else { count as f64 * 1e9 / self.measured_ns as f64 }
    }

    /// Completions of a group per second; `None` if it completed nothing.
    pub fn work_per_s(&self, group: &GroupOutcome) -> Option<f64> {
        (group.completed > 0).then(|| self.per_second(group.completed))
    }

    /// Response times of a group, by its index; `None` if it answers no source.
    pub fn latency(&self, group: usize) -> Option<&Histogram> {
        let mut sources = self.sources.iter();
        sources.find(|source| source.to_group == group).map(|source| &source.latency)
    }

    /// Busy time over that of all CPUs.
    pub fn busy_frac(&self) -> f64 {
        fraction(self.busy_ns(), self.measured_ns * self.cpus.len() as u64)
    }

    /// Busy time by licence level, over all busy time; sums up to 1, or to 0 if nothing ran.
    pub fn residency_frac(&self) -> Vec<f64> {
        let nr_levels = self.cpus.first().map_or(0, |cpu| cpu.level_ns.len());
        let level_ns = |level: usize| self.cpus.iter().map(|cpu| cpu.level_ns[level]).sum();
        (0..nr_levels).map(|level| fraction(level_ns(level), self.busy_ns())).collect()
    }

    fn busy_ns(&self) -> u64 {
        self.cpus.iter().map(|cpu| cpu.busy_ns).sum()
    }
}

impl GroupOutcome {
    /// CPU time of a completion, ns; `None` if there was none.
    pub fn cpu_per_work_ns(&self) -> Option<f64> {
        (self.completed > 0).then(|| self.cpu_ns as f64 / self.completed as f64)
    }

    /// Its CPU time at a level above 0, over its CPU time; 0 if it never ran.
    pub fn reduced_frac(&self) -> f64 {
        fraction(self.reduced_ns, self.cpu_ns)
    }
}

impl CpuOutcome {
    /// Busy time over the measured time.
    pub fn busy_frac(&self, measured_ns: u64) -> f64 {
        fraction(self.busy_ns, measured_ns)
    }

    /// Busy time by licence level, over its busy time; sums up to 1, or to 0 if it never was busy.
    pub fn residency_frac(&self) -> Vec<f64> {
        self.level_ns.iter().map(|&ns| fraction(ns, self.busy_ns)).collect()
    }
}
