// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which cores are wide where tasks may not run everywhere: feeds policy/bound.h with what the rows
//! of bpf/list.bpf.h say.

use std::collections::HashMap;
use std::io::{self, Read};
use std::time::Duration;

use cpumodel::{CpuSet, Topology};
use libbpf_rs::{Iter, Link};
use policy::bound::{self, Order, Used};

/// How often the order is decided while wide code is kept apart: an affinity is rarely changed, and
/// each change of the order moves tasks.
const PERIOD: Duration = Duration::from_secs(1);

/// Bytes of `struct tl_bound_row` (bpf/lane.h), and where its mask begins.
const ROW_BYTES: usize = 160;
const CPUS_AT: usize = 32;

/// CPU time, ns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ran {
    /// As a wide task.
    pub wide_ns: u64,
    /// In all.
    pub all_ns: u64,
}

impl Ran {
    fn since(self, before: Ran) -> Ran {
        Ran {
            wide_ns: self.wide_ns.saturating_sub(before.wide_ns),
            all_ns: self.all_ns.saturating_sub(before.all_ns),
        }
    }

    fn add(&mut self, other: Ran) {
        self.wide_ns += other.wide_ns;
        self.all_ns += other.all_ns;
    }

    fn used(self, elapsed: Duration) -> Used {
        let elapsed_ns = elapsed.as_nanos().max(1);
        let cpus = |ns: u64| (u128::from(ns) * 1024 / elapsed_ns) as u64;
        let rest_ns = self.all_ns.saturating_sub(self.wide_ns);
        Used { wide_q10: cpus(self.wide_ns), rest_q10: cpus(rest_ns) }
    }
}

/// A task that may not run everywhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BoundTask {
    /// Its number, and when it was forked: together they are no other's.
    id: (u32, u64),
    /// Since the scheduler first saw it.
    ran: Ran,
    /// Where it may run.
    cpus: CpuSet,
}

/// All of them.
pub(crate) fn list(link: &Link) -> io::Result<Vec<BoundTask>> {
    let mut iter = Iter::new(link).map_err(io::Error::other)?;
    let mut rows = Vec::new();
    iter.read_to_end(&mut rows)?;
    let (rows, _) = rows.as_chunks::<ROW_BYTES>();
    Ok(rows.iter().map(task_of).collect())
}

fn task_of(row: &[u8; ROW_BYTES]) -> BoundTask {
    let (words, _) = row.as_chunks::<8>();
    let word = |at: usize| u64::from_ne_bytes(words[at]);
    BoundTask {
        id: (word(3) as u32, word(0)),
        ran: Ran { all_ns: word(1), wide_ns: word(2) },
        cpus: CpuSet::of_words((CPUS_AT / 8..words.len()).map(word)),
    }
}

/// The order of the cores, and what it follows from.
pub struct Bound {
    order: Order,
    /// At the last reading, of each bound task and of all tasks.
    before: HashMap<(u32, u64), Ran>,
    all_before: Ran,
    /// Since then.
    elapsed: Duration,
}

impl Bound {
    /// The order without bound tasks.
    pub fn new(topology: &Topology) -> Self {
        Bound {
            order: Order::of(topology.wide_order()),
            before: HashMap::new(),
            all_before: Ran::default(),
            elapsed: Duration::ZERO,
        }
    }

    /// How many cores may become wide.
    pub fn nr_useful(&self) -> usize {
        self.order.nr_useful
    }

    /// So many cores, the first to become wide first.
    pub fn cores(&self, nr_wide: usize) -> Vec<usize> {
        self.order.cores.iter().take(nr_wide).copied().collect()
    }

    /// So much time has passed.
    pub fn pass(&mut self, elapsed: Duration) {
        self.elapsed += elapsed;
    }

    /// Whether to decide anew while wide code is kept apart.
    pub fn is_due(&self) -> bool {
        self.elapsed >= PERIOD
    }

    /// Begins to count; `all` is what all tasks have done.
    pub fn count_anew(&mut self, tasks: &[BoundTask], all: Ran) {
        self.before = tasks.iter().map(|task| (task.id, task.ran)).collect();
        self.all_before = all;
        self.elapsed = Duration::ZERO;
    }

    /// Orders the cores by what was counted since.
    pub fn decide(
        &mut self,
        topology: &Topology,
        tasks: &[BoundTask],
        all: Ran,
        wide_cores: &[usize],
    ) {
        let mut others = all.since(self.all_before);
        let mut groups: HashMap<CpuSet, Ran> = HashMap::new();
        let online = topology.online();
        for task in tasks.iter().filter(|task| !online.is_subset(&task.cpus)) {
            let ran = task.ran.since(self.before.get(&task.id).copied().unwrap_or_default());
            groups.entry(task.cpus & online).or_default().add(ran);
            others = others.since(ran);
        }
        groups.retain(|_, ran| ran.all_ns > 0);
        let cores = topology.cores();
        let shares = |mask: &CpuSet| {
            let cpus = cores.iter().map(|core| core.cpus.iter());
            bound::shares(cpus, |cpu| mask.contains(cpu))
        };
        let groups = groups.iter().map(|(mask, ran)| (shares(mask), ran.used(self.elapsed)));
        let mut is_wide = vec![false; cores.len()];
        for &core in wide_cores {
            is_wide[core] = true;
        }
        let others = others.used(self.elapsed);
        self.order = bound::order(&topology.wide_order(), groups.collect(), others, &is_wide);
        self.count_anew(tasks, all);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(tid: u32, all_ns: u64, wide_ns: u64, cpus: u64) -> [u8; ROW_BYTES] {
        let mut row = [0; ROW_BYTES];
        for (at, word) in [(0, 7), (1, all_ns), (2, wide_ns), (3, tid.into()), (4, cpus)] {
            row[at * 8..at * 8 + 8].copy_from_slice(&u64::to_ne_bytes(word));
        }
        row
    }

    fn all(all_ns: u64, wide_ns: u64) -> Ran {
        Ran { wide_ns, all_ns }
    }

    const S: u64 = 1_000_000_000;

    /// The fields lie where bpf/lane.h says.
    #[test]
    fn rows_are_understood() {
        let task = task_of(&row(9, 30, 20, 0b1001));
        assert_eq!((task.id, task.ran), ((9, 7), all(30, 20)));
        assert_eq!(task.cpus.iter().collect::<Vec<_>>(), [0, 3]);
    }

    /// A server that is bound to the first CPUs has its wide cores there; what it did before it
    /// was counted does not matter, nor does a CPU that is not there.
    #[test]
    fn wide_cores_go_where_wide_tasks_may_run() {
        let topology = Topology::uniform(8, 1);
        let mut bound = Bound::new(&topology);
        assert_eq!(bound.cores(2), [7, 6]);
        let tasks = |first, other| {
            [task_of(&row(1, first, first, 0b1111)), task_of(&row(2, other, other, !0b1111))]
        };
        bound.count_anew(&tasks(0, 50 * S), all(90 * S, 50 * S));
        assert!(!bound.is_due());
        bound.pass(PERIOD);
        assert!(bound.is_due());
        bound.decide(&topology, &tasks(2 * S, 50 * S), all(94 * S, 52 * S), &[7, 6]);
        assert_eq!(bound.cores(2), [3, 2]);
        assert_eq!(bound.nr_useful(), 4);
        assert!(!bound.is_due());
        // and it moves with the next one's demand
        bound.pass(PERIOD);
        bound.decide(&topology, &tasks(2 * S, 52 * S), all(98 * S, 54 * S), &[3, 2]);
        assert_eq!(bound.cores(2), [7, 6]);
    }

    /// Without bound tasks, or with masks that hold every CPU, it is the default order.
    #[test]
    fn free_tasks_change_nothing() {
        let topology = Topology::uniform(8, 1);
        let mut bound = Bound::new(&topology);
        bound.pass(PERIOD);
        let tasks = [task_of(&row(1, 2 * S, 2 * S, 0xff))];
        bound.decide(&topology, &tasks, all(4 * S, 2 * S), &[]);
        assert_eq!((bound.cores(8), bound.nr_useful()), (topology.wide_order(), 8));
    }
}
