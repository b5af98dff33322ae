// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which cores are wide where tasks may not run everywhere: feeds policy/bound.h, as
//! crates/sched/src/bound.rs.

use policy::bound::{self, Order, Used};

use super::sizing::Sums;
use super::{Lane, Wide};
use crate::sys::{Sys, Tid};

/// How often the order is decided while wide code is kept apart, as in crates/sched.
const PERIOD_NS: u64 = 1_000_000_000;

/// CPU time, ns.
#[derive(Clone, Copy, Debug, Default)]
struct Ran {
    wide_ns: u64,
    all_ns: u64,
}

/// What bound tasks did since the last decision.
#[derive(Clone, Debug, Default)]
pub(super) struct Bound {
    /// By affinity ([`Sys::affinity_of`]); that of 0, every CPU, is not counted.
    ran: Vec<Ran>,
    /// Of all tasks, up to the last decision.
    before: Sums,
    since_ns: u64,
    pub(super) order: Order,
}

impl Bound {
    pub(super) fn new(sys: &Sys) -> Self {
        Bound { order: Order::of(default(sys)), ..Default::default() }
    }

    /// The task ran.
    #[inline(always)]
    pub(super) fn ran(&mut self, sys: &Sys, task: Tid, level: u8, used_ns: u64) {
        if !sys.reaches_everything(task) {
            self.bound_ran(sys.affinity_of(task).into(), level, used_ns);
        }
    }

    fn bound_ran(&mut self, affinity: usize, level: u8, used_ns: u64) {
        if self.ran.len() <= affinity {
            self.ran.resize(affinity + 1, Ran::default());
        }
        let ran = &mut self.ran[affinity];
        ran.all_ns += used_ns;
        if level > 0 {
            ran.wide_ns += used_ns;
        }
    }
}

impl Lane {
    /// Begin to count anew.
    fn count_bound_anew(&mut self, sys: &Sys) {
        self.bound.ran.fill(Ran::default());
        self.bound.before = self.sums;
        self.bound.since_ns = sys.now_ns;
    }

    /// Order the cores by what was counted, if it is time; true if other cores are to be wide.
    /// Counted is from a look on.
    pub(super) fn order_cores(&mut self, sys: &Sys, was_apart: bool) -> bool {
        let is_apart = self.watch.is_apart();
        if !is_apart && !self.watch.is_looking() {
            self.count_bound_anew(sys);
        }
        let elapsed_ns = sys.now_ns - self.bound.since_ns;
        let is_due = is_apart && (!was_apart || elapsed_ns >= PERIOD_NS);
        if self.config.wide != Wide::Auto || !is_due {
            return false;
        }
        let cpus = |ns: u64| ns * 1024 / elapsed_ns.max(1);
        let used = |ran: &Ran| Used {
            wide_q10: cpus(ran.wide_ns),
            rest_q10: cpus(ran.all_ns - ran.wide_ns),
        };
        let since = |kinds: std::ops::Range<usize>| -> u64 {
            kinds.map(|kind| self.sums.run_ns[kind] - self.bound.before.run_ns[kind]).sum()
        };
        let bound = &self.bound.ran;
        let wide_ns = since(policy::kind(policy::TYPE_WIDE as u8, 1)..policy::NR_KINDS);
        let others = Ran {
            wide_ns: wide_ns - bound.iter().map(|ran| ran.wide_ns).sum::<u64>(),
            all_ns: since(0..policy::NR_KINDS) - bound.iter().map(|ran| ran.all_ns).sum::<u64>(),
        };
        let ran = bound.iter().enumerate().filter(|(_, ran)| ran.all_ns > 0);
        let groups = ran.map(|(affinity, ran)| {
            let mask = sys.affinity_mask(affinity as u16);
            let cores = sys.layout.cores.iter();
            let cores = cores.map(|core| core.iter().map(|&cpu| usize::from(cpu)));
            (bound::shares(cores, |cpu| mask.has(cpu)), used(ran))
        });
        let wide =
            |core: &Vec<u16>| core.iter().any(|&cpu| (1..=3).contains(&self.class[cpu as usize]));
        let is_wide: Vec<bool> = sys.layout.cores.iter().map(wide).collect();
        let order = bound::order(&default(sys), groups.collect(), used(&others), &is_wide);
        let old = std::mem::replace(&mut self.bound.order, order);
        self.count_bound_anew(sys);
        let nr_wide = self.split.nr_wide();
        old.cores[..nr_wide] != self.bound.order.cores[..nr_wide]
    }
}

fn default(sys: &Sys) -> Vec<usize> {
    sys.layout.wide_order.iter().map(|&core| core.into()).collect()
}
