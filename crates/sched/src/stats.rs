// SPDX-License-Identifier: MIT OR Apache-2.0
//! From the CPUs' counters to the statistics that are reported.

use report::lane::{CpuTimes, LaneStats};

use crate::scx::CpuCounters;

const DEFAULT: usize = policy::TYPE_DEFAULT as usize;
const SCALAR: usize = policy::TYPE_SCALAR as usize;

/// What was counted of wide tasks, whatever their level.
fn wide(by_kind: &[u64; policy::NR_KINDS]) -> u64 {
    by_kind[policy::TYPE_WIDE as usize..].iter().sum()
}

/// Statistics of all CPUs together over `interval_ns`, of which `wide_cpus` are wide.
pub fn lane_stats(counters: &[CpuCounters], interval_ns: u64, wide_cpus: usize) -> LaneStats {
    let sum = |field: fn(&CpuCounters) -> u64| Some(counters.iter().map(field).sum());
    LaneStats {
        interval_ns: Some(interval_ns),
        wide_cpus: Some(wide_cpus as u64),
        wide_run_ns: sum(|c| wide(&c.run_ns)),
        scalar_run_ns: sum(|c| c.run_ns[SCALAR]),
        default_run_ns: sum(|c| c.run_ns[DEFAULT]),
        wide_wait_ns: sum(|c| wide(&c.wait_ns)),
        scalar_wait_ns: sum(|c| c.wait_ns[SCALAR]),
        default_wait_ns: sum(|c| c.wait_ns[DEFAULT]),
        wide_runs: sum(|c| wide(&c.runs)),
        scalar_runs: sum(|c| c.runs[SCALAR]),
        default_runs: sum(|c| c.runs[DEFAULT]),
        degraded_ns: sum(|c| c.degraded_ns),
        leaving_ns: sum(|c| c.leaving_ns),
        guest_ns: sum(|c| c.guest_ns),
        migrations: sum(|c| c.migrations),
        migrations_to_wide: sum(|c| c.to_wide),
        migrations_from_wide: sum(|c| c.from_wide),
        misfits: sum(|c| c.misfits),
        type_changes: sum(|c| c.type_changes),
        hint_events: sum(|c| c.hint_events),
        mark_events: sum(|c| c.mark_events),
        trap_events: sum(|c| c.trap_events),
        score_events: sum(|c| c.score_events),
        heuristic_ends: sum(|c| c.heuristic_ends),
        preemptions: sum(|c| c.preemptions),
        preemption_searches: sum(|c| c.victim_walks),
        preemption_looks: sum(|c| c.victim_looks),
        steals: sum(|c| c.steals),
        // no CPU's doing: the lane's
        size_changes: None,
        standing_by: None,
        winnable_permille: None,
        probes_missed: None,
        marks_lost: None,
        overlooked: sum(|c| c.overlooked),
        target_changes: sum(|c| c.target_changes),
        wide_on_scalar_ticks: sum(|c| c.tick_wide_on_scalar),
        shared_atomics: sum(|c| c.shared_atomics),
        ticks: sum(|c| c.ticks),
    }
}

/// What one CPU did.
pub fn cpu_times(cpu: u32, counters: &CpuCounters) -> CpuTimes {
    CpuTimes {
        cpu,
        license_level: counters.class,
        wide_run_ns: wide(&counters.run_ns),
        scalar_run_ns: counters.run_ns[SCALAR],
        default_run_ns: counters.run_ns[DEFAULT],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every counter is a sum over the CPUs and lands in the field of its own name.
    #[test]
    fn sums_over_cpus() {
        let cpu = CpuCounters {
            run_ns: [1, 2, 0, 1, 1, 1, 0, 0],
            wait_ns: [4, 5, 0, 0, 6, 0, 0, 0],
            misfits: 7,
            ticks: 8,
            ..Default::default()
        };
        let stats = lane_stats(&[cpu, cpu], 9, 1);
        assert_eq!(
            (stats.default_run_ns, stats.scalar_run_ns, stats.wide_run_ns),
            (Some(2), Some(4), Some(6))
        );
        assert_eq!(
            (stats.default_wait_ns, stats.scalar_wait_ns, stats.wide_wait_ns),
            (Some(8), Some(10), Some(12))
        );
        assert_eq!((stats.misfits, stats.ticks, stats.interval_ns), (Some(14), Some(16), Some(9)));
    }
}
