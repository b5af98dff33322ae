// SPDX-License-Identifier: MIT OR Apache-2.0
//! Automatic sizing: feeds policy/sizing.h with what the CPUs counted, and says how many cores
//! should be wide. The decision is the policy's; this only keeps the books.

use std::time::Duration;

use machine::Topology;

use crate::scx::CpuCounters;

/// How often the size is decided. Well below the averages' time constant (200 ms), so that they
/// are smooth; well above a scheduling slice.
pub const PERIOD: Duration = Duration::from_millis(50);

/// Sums over all CPUs that the decision needs, ns.
#[derive(Clone, Copy, Default)]
struct Totals {
    wide_run_ns: u64,
    wide_wait_ns: u64,
    rest_run_ns: u64,
    rest_wait_ns: u64,
}

impl Totals {
    fn of(counters: &[CpuCounters]) -> Self {
        const WIDE: usize = policy::TYPE_WIDE as usize;
        let mut totals = Totals::default();
        for cpu in counters {
            totals.wide_run_ns += cpu.run_ns[WIDE];
            totals.wide_wait_ns += cpu.wait_ns[WIDE];
            totals.rest_run_ns += cpu.run_ns[..WIDE].iter().sum::<u64>();
            totals.rest_wait_ns += cpu.wait_ns[..WIDE].iter().sum::<u64>();
        }
        totals
    }
}

/// State of the automatic sizing.
pub struct AutoSize {
    sizing: policy::Sizing,
    before: Totals,
}

impl AutoSize {
    /// Start with this many wide cores and these counters.
    pub fn new(nr_wide: usize, counters: &[CpuCounters]) -> Self {
        let sizing = policy::Sizing { nr_wide: nr_wide as u32, ..Default::default() };
        AutoSize { sizing, before: Totals::of(counters) }
    }

    /// Number of cores that should be wide after `elapsed` more time.
    pub fn update(
        &mut self,
        topology: &Topology,
        counters: &[CpuCounters],
        elapsed: Duration,
    ) -> usize {
        let now = Totals::of(counters);
        let nr_cores = topology.cores().len().max(1);
        let input = policy::SizingInput {
            elapsed_ns: elapsed.as_nanos() as u64,
            wide_run_ns: now.wide_run_ns.saturating_sub(self.before.wide_run_ns),
            wide_wait_ns: now.wide_wait_ns.saturating_sub(self.before.wide_wait_ns),
            rest_run_ns: now.rest_run_ns.saturating_sub(self.before.rest_run_ns),
            rest_wait_ns: now.rest_wait_ns.saturating_sub(self.before.rest_wait_ns),
            nr_cores: nr_cores as u32,
            nr_cpus_per_core: (topology.cpus().len() / nr_cores).max(1) as u32,
        };
        self.before = now;
        self.sizing.update(&input) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counters(wide_ns: u64, rest_ns: u64) -> Vec<CpuCounters> {
        vec![CpuCounters { run_ns: [rest_ns, 0, wide_ns], ..Default::default() }]
    }

    /// Wide work that fills three of eight CPUs gets them, and the one that nobody else needs.
    #[test]
    fn follows_the_demand() {
        let topology = Topology::uniform(8, 1);
        let mut auto = AutoSize::new(1, &counters(0, 0));
        let (mut wide_ns, mut rest_ns, mut size) = (0, 0, 1);
        for _ in 0..100 {
            wide_ns += 3 * PERIOD.as_nanos() as u64;
            rest_ns += 4 * PERIOD.as_nanos() as u64;
            size = auto.update(&topology, &counters(wide_ns, rest_ns), PERIOD);
        }
        assert_eq!(size, 4);
    }

    /// A restarted scheduler counts from zero again; that is not negative time.
    #[test]
    fn survives_a_restart_of_the_counters() {
        let topology = Topology::uniform(4, 1);
        let mut auto = AutoSize::new(1, &counters(1 << 40, 1 << 40));
        assert_eq!(auto.update(&topology, &counters(0, 0), PERIOD), 1);
    }
}
