// SPDX-License-Identifier: MIT OR Apache-2.0
//! Automatic sizing: feeds policy/tiers.h with what the CPUs counted, and says which cores are
//! wide and how they are split. The decision is the policy's; this only keeps the books.

use std::time::Duration;

use machine::Topology;
use policy::{NR_KINDS, Split, Tiers, TiersInput, WIDE_AUTO};

use crate::config::{Config, WideCpus};
use crate::scx::CpuCounters;

/// How often the size is decided. Well below the averages' time constant (200 ms), so that they
/// are smooth; well above a scheduling slice.
pub const PERIOD: Duration = Duration::from_millis(50);

/// Sums over all CPUs that the decision needs, ns by kind.
#[derive(Clone, Copy, Default)]
struct Totals {
    run_ns: [u64; NR_KINDS],
    wait_ns: [u64; NR_KINDS],
    mix_wait_ns: u64,
}

impl Totals {
    fn of(counters: &[CpuCounters]) -> Self {
        let mut totals = Totals::default();
        for cpu in counters {
            totals.mix_wait_ns += cpu.mix_wait_ns;
            for kind in 0..NR_KINDS {
                totals.run_ns[kind] += cpu.run_ns[kind];
                totals.wait_ns[kind] += cpu.wait_ns[kind];
            }
        }
        totals
    }
}

/// State of the automatic sizing.
pub struct AutoSize {
    tiers: Tiers,
    before: Totals,
}

impl AutoSize {
    /// Whether there is anything to choose under these settings.
    pub fn is_asked(config: &Config) -> bool {
        config.wide_cpus == WideCpus::Auto || config.tiers
    }

    /// Start with this many wide cores, in one class, and these counters.
    pub fn new(nr_wide: usize, counters: &[CpuCounters]) -> Self {
        AutoSize { tiers: Tiers::start(nr_wide), before: Totals::of(counters) }
    }

    /// The wide cores and their classes as they should be after `elapsed` more time; `None` if that
    /// has not changed. `nr_wide` are wide now.
    pub fn update(
        &mut self,
        config: &Config,
        topology: &Topology,
        nr_wide: usize,
        counters: &[CpuCounters],
        elapsed: Duration,
    ) -> Option<Split> {
        let now = Totals::of(counters);
        let before = std::mem::replace(&mut self.before, now);
        let since = |now: &[u64; NR_KINDS], before: &[u64; NR_KINDS]| {
            std::array::from_fn(|kind| now[kind].saturating_sub(before[kind]))
        };
        let nr_cores = topology.cores().len().max(1);
        let is_auto = config.wide_cpus == WideCpus::Auto;
        let input = TiersInput {
            elapsed_ns: elapsed.as_nanos() as u64,
            run_ns: since(&now.run_ns, &before.run_ns),
            wait_ns: since(&now.wait_ns, &before.wait_ns),
            mix_wait_ns: now.mix_wait_ns.saturating_sub(before.mix_wait_ns),
            nr_cores: nr_cores as u32,
            nr_cpus_per_core: (topology.cpus().len() / nr_cores).max(1) as u32,
            nr_wide: if is_auto { WIDE_AUTO } else { nr_wide as u32 },
            tiers: u32::from(config.tiers),
        };
        self.tiers.update(&input).then_some(self.tiers.split)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Counters of so much time, of default tasks and of wide ones by level.
    fn counters(rest_ns: u64, wide_ns: [u64; 3]) -> Vec<CpuCounters> {
        let [one, two, three] = wide_ns;
        let run_ns = [rest_ns, 0, 0, one, two, three, 0, 0];
        vec![CpuCounters { run_ns, ..Default::default() }]
    }

    const PERIOD_NS: u64 = PERIOD.as_nanos() as u64;

    /// Wide work that fills three of eight CPUs gets them, and the one that nobody else needs.
    #[test]
    fn follows_the_demand() {
        let (topology, config) = (Topology::uniform(8, 1), Config::default());
        let mut auto = AutoSize::new(1, &counters(0, [0; 3]));
        let (mut wide_ns, mut rest_ns, mut split) = (0, 0, Split::one_class(1));
        for _ in 0..100 {
            wide_ns += 3 * PERIOD_NS;
            rest_ns += 4 * PERIOD_NS;
            let counted = counters(rest_ns, [wide_ns, 0, 0]);
            let new = auto.update(&config, &topology, split.nr_wide(), &counted, PERIOD);
            split = new.unwrap_or(split);
        }
        assert_eq!(split, Split::one_class(4));
    }

    /// A number of cores that was asked for stays, and is split where two levels need cores; when one
    /// of them ends, so does the split.
    #[test]
    fn splits_what_was_asked_for() {
        let topology = Topology::uniform(8, 1);
        let config = Config { wide_cpus: WideCpus::Cores(6), tiers: true, ..Config::default() };
        assert!(AutoSize::is_asked(&config));
        let mut auto = AutoSize::new(6, &counters(0, [0; 3]));
        let (mut wide_ns, mut splits) = ([0; 3], vec![Split::one_class(6)]);
        for period in 0..200 {
            wide_ns[0] += if period < 100 { 2 * PERIOD_NS } else { 0 };
            wide_ns[1] += 2 * PERIOD_NS;
            let counted = counters(0, wide_ns);
            splits.extend(auto.update(&config, &topology, 6, &counted, PERIOD));
        }
        assert_eq!(splits[1], Split { above: [6, 3, 6] });
        assert_eq!(splits.last(), Some(&Split::one_class(6)));
        assert!(splits.len() <= 4, "{splits:?}");
    }

    /// More is wanted than there is, and everybody waits for the same: how much of that is for wide code
    /// decides, not the queues.
    #[test]
    fn shares_by_what_the_waits_are_for() {
        let (topology, config) = (Topology::uniform(8, 1), Config::default());
        for (wide_percent, cores) in [(5, 1), (50, 4), (75, 6)] {
            let mut auto = AutoSize::new(2, &counters(0, [0; 3]));
            let (mut sums, mut split) = (CpuCounters::default(), Split::one_class(2));
            for _ in 0..200 {
                let cores = split.nr_wide() as u64;
                sums.run_ns[3] += cores * PERIOD_NS;
                sums.run_ns[0] += (8 - cores) * PERIOD_NS;
                sums.wait_ns[3] += 4 * PERIOD_NS;
                sums.wait_ns[0] += 28 * PERIOD_NS;
                sums.mix_wait_ns += 32 * PERIOD_NS * wide_percent / 100;
                let new = auto.update(&config, &topology, split.nr_wide(), &[sums], PERIOD);
                split = new.unwrap_or(split);
            }
            assert_eq!(split, Split::one_class(cores), "{wide_percent} % for wide code");
        }
    }

    /// A restarted scheduler counts from zero again; that is not negative time.
    #[test]
    fn survives_a_restart_of_the_counters() {
        let (topology, config) = (Topology::uniform(4, 1), Config::default());
        let mut auto = AutoSize::new(1, &counters(1 << 40, [1 << 40, 0, 0]));
        assert_eq!(auto.update(&config, &topology, 1, &counters(0, [0; 3]), PERIOD), None);
    }
}
