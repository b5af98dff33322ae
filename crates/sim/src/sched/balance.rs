// SPDX-License-Identifier: MIT OR Apache-2.0
//! When a busy CPU takes a waiting task from a busier one, in the kernel's fair scheduling
//! (kernel/sched/fair.c of Linux 6.12: `sched_balance_domains`, `sched_balance_rq`,
//! `calculate_imbalance`, `detach_tasks`).
//!
//! Where five tasks share four CPUs, two of them share one CPU. The kernel does not leave it at
//! that: each CPU looks now and then, in each of its domains, whether its group of CPUs is below
//! the average and another one is overloaded. One task more is too little for it to move a complete
//! task; but each time that it finds nothing small enough it accepts one twice as large. So after
//! a few looks the odd task goes to the next CPU, and over seconds all have the same.
//!
//! ```text
//! domain   groups   a busy CPU looks every
//! core     CPUs     16 ms * CPUs of the core
//! llc      cores    16 ms * CPUs of the cache; only the first CPU of each core does
//! ```
//!
//! Limits: all tasks are of nice 0's load; no domains beyond the cache, where the kernel tolerates
//! more.

use crate::sys::{Layout, Sys};
use crate::timers::NEVER;

/// A domain is looked at every so many ms per CPU in it, by a CPU that is busy: `sd->min_interval`
/// times `sd->busy_factor`.
const INTERVAL_NS: u64 = 16_000_000;
/// Load of a task, and of a CPU that runs one.
const LOAD: u64 = 1024;

/// A level of domains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Level {
    /// By how much a group must be busier than one that is overloaded itself: `imbalance_pct`.
    imbalance_pct: u64,
    /// After more failures than this a task moves whatever its load is: `cache_nice_tries` + 2.
    tries: u32,
}

/// Siblings, and cores that share a cache.
const LEVELS: [Level; 2] =
    [Level { imbalance_pct: 110, tries: 2 }, Level { imbalance_pct: 117, tries: 3 }];

/// What a CPU remembers of its domain at a level.
#[derive(Clone, Copy, Debug, Default)]
struct Domain {
    next_ns: u64,
    failed: u32,
}

/// The looks of all CPUs.
#[derive(Clone, Debug)]
pub(super) struct Balance {
    /// By CPU and level.
    domains: Vec<[Domain; LEVELS.len()]>,
}

/// CPUs that a domain balances among each other.
struct Group<'a> {
    cpus: &'a [u16],
    nr_tasks: u64,
}

impl Group<'_> {
    fn load_per_cpu(&self) -> u64 {
        self.nr_tasks * LOAD / self.cpus.len().max(1) as u64
    }

    fn is_overloaded(&self) -> bool {
        self.nr_tasks > self.cpus.len() as u64
    }
}

impl Balance {
    pub(super) fn new(layout: &Layout) -> Self {
        Balance { domains: vec![Default::default(); layout.nr_cpus] }
    }

    /// The CPU is busy, and a tick has come: which CPU it takes a waiting task from, if any.
    /// `nr_tasks` says how many a CPU runs and has waiting.
    pub(super) fn looks(
        &mut self,
        sys: &Sys,
        cpu: usize,
        nr_tasks: impl Fn(usize) -> usize,
    ) -> Option<usize> {
        for at in 0..LEVELS.len() {
            if self.domains[cpu][at].next_ns > sys.now_ns {
                continue;
            }
            let Some(groups) = groups(&sys.layout, cpu, at) else {
                self.domains[cpu][at].next_ns = NEVER;
                continue;
            };
            let nr_cpus: usize = groups.iter().map(|cpus| cpus.len()).sum();
            self.domains[cpu][at].next_ns = sys.now_ns + INTERVAL_NS * nr_cpus as u64;
            if let Some(busiest) = self.balances(cpu, at, &groups, &nr_tasks) {
                return Some(busiest);
            }
        }
        None
    }

    fn balances(
        &mut self,
        cpu: usize,
        at: usize,
        groups: &[&[u16]],
        nr_tasks: &impl Fn(usize) -> usize,
    ) -> Option<usize> {
        let of =
            |cpus: &&'_ [u16]| -> u64 { cpus.iter().map(|&cpu| nr_tasks(cpu.into()) as u64).sum() };
        let mut all: Vec<Group> =
            groups.iter().map(|cpus| Group { cpus, nr_tasks: of(cpus) }).collect();
        let mine = all.iter().position(|group| group.cpus.contains(&(cpu as u16)))?;
        let local = all.swap_remove(mine);
        if local.cpus[0] as usize != cpu {
            return None;
        }
        let domain = &mut self.domains[cpu][at];
        let busiest = all
            .iter()
            .filter(|group| group.is_overloaded())
            .max_by_key(|group| (group.load_per_cpu(), std::cmp::Reverse(group.cpus[0])));
        let imbalance = busiest.map_or(0, |busiest| imbalance(&local, busiest, &all, LEVELS[at]));
        let (Some(busiest), true) = (busiest, imbalance > 0) else {
            domain.failed = 0;
            return None;
        };
        let fits = LOAD >> domain.failed.min(10) <= imbalance;
        if !fits && domain.failed <= LEVELS[at].tries {
            domain.failed += 1;
            return None;
        }
        domain.failed = 0;
        let fullest = busiest.cpus.iter().max_by_key(|&&cpu| nr_tasks(cpu.into()));
        fullest.map(|&cpu| cpu.into())
    }
}

/// Load to be moved from the busiest group to the local one.
fn imbalance(local: &Group, busiest: &Group, others: &[Group], level: Level) -> u64 {
    let everyone = || others.iter().chain(std::iter::once(local));
    let nr_tasks: u64 = everyone().map(|group| group.nr_tasks).sum();
    let nr_cpus: u64 = everyone().map(|group| group.cpus.len() as u64).sum();
    let average = nr_tasks * LOAD / nr_cpus;
    let (here, there) = (local.load_per_cpu(), busiest.load_per_cpu());
    let is_close = local.is_overloaded() && 100 * there <= level.imbalance_pct * here;
    if here >= there || here >= average || is_close {
        return 0;
    }
    let above = there.saturating_sub(average) * busiest.cpus.len() as u64;
    let below = (average - here) * local.cpus.len() as u64;
    above.min(below)
}

/// The groups of a CPU's domain; `None` if there is but one.
fn groups(layout: &Layout, cpu: usize, at: usize) -> Option<Vec<&[u16]>> {
    let place = layout.place[cpu];
    let core = &layout.cores[place.core as usize];
    let groups: Vec<&[u16]> = match at {
        0 => core.chunks(1).collect(),
        _ => {
            let is_here = |core: &&Vec<u16>| layout.place[core[0] as usize].llc == place.llc;
            layout.cores.iter().filter(is_here).map(Vec::as_slice).collect()
        }
    };
    (groups.len() > 1).then_some(groups)
}
