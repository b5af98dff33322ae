// SPDX-License-Identifier: MIT OR Apache-2.0
//! Automatic sizing: feeds policy/sizing.h with what was counted, as crates/sched/src/autosize.rs.

use super::{Lane, Sums, Wide};
use crate::sys::Sys;
use crate::timers::NEVER;
use crate::trace::Sink;

/// How often the size is decided, as in crates/sched.
const PERIOD_NS: u64 = 50_000_000;

/// State between two decisions.
#[derive(Clone, Debug, Default)]
pub(super) struct AutoSize {
    sizing: policy::Sizing,
    before: Sums,
}

impl AutoSize {
    fn update(&mut self, now: &Sums, nr_cores: usize, nr_cpus_per_core: usize) -> usize {
        let wide = policy::TYPE_WIDE as usize;
        let since = |all: &[u64; 3], before: &[u64; 3]| -> (u64, u64) {
            let diff: Vec<u64> = all.iter().zip(before).map(|(a, b)| a - b).collect();
            (diff[wide], diff[..wide].iter().sum())
        };
        let (wide_run_ns, rest_run_ns) = since(&now.run_ns, &self.before.run_ns);
        let (wide_wait_ns, rest_wait_ns) = since(&now.wait_ns, &self.before.wait_ns);
        self.before = *now;
        self.sizing.update(&policy::SizingInput {
            elapsed_ns: PERIOD_NS,
            wide_run_ns,
            wide_wait_ns,
            rest_run_ns,
            rest_wait_ns,
            nr_cores: nr_cores as u32,
            nr_cpus_per_core: nr_cpus_per_core as u32,
        }) as usize
    }
}

impl Lane {
    /// At 0: put the classes into force. Then, if sizing is automatic, decide it periodically.
    pub(super) fn on_control(&mut self, sys: &mut Sys, sink: &mut impl Sink) -> u64 {
        let cores: Vec<&Vec<u16>> = sys
            .layout
            .cores
            .iter()
            .filter(|core| core.iter().any(|&cpu| sys.online.has(cpu as usize)))
            .collect();
        let (nr_cores, nr_online) = (cores.len().max(1), sys.online.len());
        if sys.now_ns == 0 {
            let first = match &self.config.wide {
                Wide::Cores(cores) => *cores,
                Wide::Cpus(_) => nr_cores,
                Wide::Auto => 1,
            };
            self.sizing.sizing.nr_wide = first as u32;
            self.apply_size(sys, first, sink);
            return if self.config.wide == Wide::Auto { PERIOD_NS } else { NEVER };
        }
        let size = self.sizing.update(&self.sums.clone(), nr_cores, (nr_online / nr_cores).max(1));
        if size != self.nr_wide_cores {
            self.apply_size(sys, size, sink);
        }
        sys.now_ns + PERIOD_NS
    }
}
