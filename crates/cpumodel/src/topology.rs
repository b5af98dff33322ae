// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where each CPU sits: package, node, last-level cache, core.
//!
//! Linux's own numbers are kept for packages and nodes. Its core numbers repeat in every package
//! and its caches have none that can be relied on, so cores and llcs are numbered here: densely,
//! from 0, in **topology order** (package, node, llc, lowest CPU). Everything that chooses cores
//! (`--wide-cpus N`, automatic sizing) walks them in that order, so that a choice of n+1 cores
//! contains the choice of n and neighbours in the choice share caches.

use crate::CpuSet;

/// Why a description is no topology.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TopologyError {
    /// No CPU is online.
    #[error("no CPU is online")]
    NoCpu,
    /// A file of the tree is missing or does not hold what Linux writes there.
    #[error("{path}: {why}")]
    BadFile {
        /// Path in the tree, without the leading slash.
        path: String,
        /// What is wrong with it.
        why: String,
    },
    /// There are CPUs that no set can hold.
    #[error("{path}: {why}")]
    TooMany {
        /// Path in the tree, without the leading slash.
        path: String,
        /// Which CPU.
        why: String,
    },
    /// One CPU is described twice.
    #[error("CPU {cpu} is described twice")]
    Twice {
        /// The CPU.
        cpu: usize,
    },
    /// The CPUs of one core do not share a package, node or last-level cache.
    #[error("CPUs {first} and {second} share a core but not their {level}")]
    Torn {
        /// One CPU of the core.
        first: usize,
        /// Another one.
        second: usize,
        /// What they do not share.
        level: &'static str,
    },
}

/// Where one CPU sits. `core` and `llc` may be any numbers when a topology is built: they only
/// say which CPUs belong together. In a built [`Topology`] they are indices in topology order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuPlace {
    /// The logical CPU, Linux's number.
    pub cpu: usize,
    /// Linux's package number.
    pub package: usize,
    /// Linux's NUMA node number.
    pub node: usize,
    /// Which CPUs share a last-level cache.
    pub llc: usize,
    /// Which CPUs are SMT siblings.
    pub core: usize,
}

/// A physical core.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Core {
    /// Its CPUs: SMT siblings of each other.
    pub cpus: CpuSet,
    /// Linux's package number.
    pub package: usize,
    /// Linux's NUMA node number.
    pub node: usize,
    /// Index of its last-level cache.
    pub llc: usize,
    /// How fast it is, to compare with others: kHz, 0 = not known ([`Topology::set_speeds`]).
    pub speed: u32,
}

/// The online CPUs of a machine and how they hang together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Topology {
    possible: CpuSet,
    online: CpuSet,
    places: Vec<CpuPlace>,
    cores: Vec<Core>,
    llcs: Vec<CpuSet>,
}

/// Favoured cores are a little faster than others (Core i9-7940X: 4.4 and 4.3 GHz), E-cores have
/// three quarters of the clock of P-cores (Core i9-12900K: 3.9 and 5.1 GHz); by ark.intel.com.
const SAME_KIND_Q10: u64 = 896;

impl Topology {
    /// A topology of the given online CPUs. `possible` are the CPUs that may ever be online;
    /// the given ones are added to it.
    pub fn new(possible: CpuSet, cpus: &[CpuPlace]) -> Result<Self, TopologyError> {
        if cpus.is_empty() {
            return Err(TopologyError::NoCpu);
        }
        let mut given = cpus.to_vec();
        given.sort_by_key(|place| place.cpu);
        if let Some(pair) = given.windows(2).find(|pair| pair[0].cpu == pair[1].cpu) {
            return Err(TopologyError::Twice { cpu: pair[0].cpu });
        }
        check_cores_are_whole(&given)?;
        let online: CpuSet = given.iter().map(|place| place.cpu).collect();
        let (places, cores, llcs) = number_in_topology_order(given);
        Ok(Topology { possible: possible | online, online, places, cores, llcs })
    }

    /// A machine with one package, one node and one last-level cache: `cores` cores of
    /// `threads` siblings each, numbered as Linux does (first siblings first). For tests and
    /// for tools that need some machine.
    pub fn uniform(cores: usize, threads: usize) -> Self {
        let places: Vec<CpuPlace> = (0..cores * threads)
            .map(|cpu| CpuPlace { cpu, package: 0, node: 0, llc: 0, core: cpu % cores })
            .collect();
        Topology::new(CpuSet::new(), &places).expect("a uniform machine is consistent")
    }

    /// CPUs that may ever be online.
    pub fn possible(&self) -> CpuSet {
        self.possible
    }

    /// CPUs that are online.
    pub fn online(&self) -> CpuSet {
        self.online
    }

    /// Every online CPU, by its number.
    pub fn cpus(&self) -> &[CpuPlace] {
        &self.places
    }

    /// The place of an online CPU.
    pub fn place(&self, cpu: usize) -> Option<&CpuPlace> {
        let index = self.places.binary_search_by_key(&cpu, |place| place.cpu).ok()?;
        Some(&self.places[index])
    }

    /// The cores in topology order.
    pub fn cores(&self) -> &[Core] {
        &self.cores
    }

    /// The CPUs of each last-level cache, in topology order.
    pub fn llcs(&self) -> &[CpuSet] {
        &self.llcs
    }

    /// The CPUs of `cpu`'s core, itself included; empty if it is not online.
    pub fn siblings_of(&self, cpu: usize) -> CpuSet {
        self.place(cpu).map_or(CpuSet::EMPTY, |place| self.cores[place.core].cpus)
    }

    /// Numbers of the NUMA nodes, ascending.
    pub fn nodes(&self) -> Vec<usize> {
        distinct(self.cores.iter().map(|core| core.node))
    }

    /// Numbers of the packages, ascending.
    pub fn packages(&self) -> Vec<usize> {
        distinct(self.cores.iter().map(|core| core.package))
    }

    /// True if some core has more than one online CPU.
    pub fn has_smt(&self) -> bool {
        self.cores.iter().any(|core| core.cpus.len() > 1)
    }

    /// How fast each CPU is, in whatever unit is the same for all; a core is as fast as its slowest
    /// CPU. Unless it is known of all, it counts as known of none.
    pub fn set_speeds(&mut self, speed_of: impl Fn(usize) -> Option<u32>) {
        let slowest = |core: &Core| core.cpus.iter().map(&speed_of).min().flatten();
        let speeds: Option<Vec<u32>> = self.cores.iter().map(slowest).collect();
        for (index, core) in self.cores.iter_mut().enumerate() {
            core.speed = speeds.as_ref().map_or(0, |speeds| speeds[index]);
        }
    }

    /// `cpus` grown to whole cores: the siblings of each member are added, since a core has one
    /// licence. CPUs that are not online stay as they are.
    pub fn whole_cores(&self, cpus: &CpuSet) -> CpuSet {
        cpus.iter().fold(*cpus, |grown, cpu| grown | self.siblings_of(cpu))
    }

    /// All cores (indices in topology order) in the order in which they become wide: the last core
    /// of each node in turn, last node first, and within a node of each last-level cache in turn.
    /// So a wide task finds a wide CPU in its node (SYSTOR 5, THESIS 6.1). The last ones, because
    /// Linux puts boot-time work and most interrupts on the first.
    ///
    /// Where some cores are a little faster than others (favoured cores, SST-BF), these are for
    /// scalar code: the slowest go first. Cores of another kind (E-cores) go last.
    pub fn wide_order(&self) -> Vec<usize> {
        let fastest = self.cores.iter().map(|core| core.speed).max().unwrap_or(0);
        let is_of_another_kind =
            |speed: u32| u64::from(speed) * 1024 < u64::from(fastest) * SAME_KIND_Q10;
        let mut all: Vec<usize> = (0..self.cores.len()).rev().collect();
        all.sort_by_key(|&core| {
            let speed = self.cores[core].speed;
            (is_of_another_kind(speed), speed)
        });
        let by_llc = in_turn(&all, |core| self.cores[core].llc);
        in_turn(&by_llc, |core| self.cores[core].node)
    }

    /// The CPUs of the first `count` cores in [`Self::wide_order`], or of all if there are fewer.
    pub fn last_cores(&self, count: usize) -> CpuSet {
        let order = self.wide_order();
        order.into_iter().take(count).fold(CpuSet::EMPTY, |set, core| set | self.cores[core].cpus)
    }
}

/// One of each group in turn, each group in the given order, the groups as they first appear.
fn in_turn(cores: &[usize], group_of: impl Fn(usize) -> usize) -> Vec<usize> {
    let mut seen: Vec<(usize, usize)> = Vec::new();
    let mut ranked: Vec<(usize, usize, usize)> = cores
        .iter()
        .map(|&core| {
            let group = group_of(core);
            let at = seen.iter().position(|&(other, _)| other == group).unwrap_or_else(|| {
                seen.push((group, 0));
                seen.len() - 1
            });
            seen[at].1 += 1;
            (seen[at].1, at, core)
        })
        .collect();
    ranked.sort_unstable();
    ranked.into_iter().map(|(_, _, core)| core).collect()
}

fn distinct(numbers: impl Iterator<Item = usize>) -> Vec<usize> {
    let mut numbers: Vec<usize> = numbers.collect();
    numbers.sort_unstable();
    numbers.dedup();
    numbers
}

/// Cores are compared by (package, core), as Linux repeats core numbers in every package.
fn same_core(a: &CpuPlace, b: &CpuPlace) -> bool {
    a.package == b.package && a.core == b.core
}

fn check_cores_are_whole(places: &[CpuPlace]) -> Result<(), TopologyError> {
    for place in places {
        let first = places.iter().find(|other| same_core(other, place)).expect("itself");
        let torn = |level| TopologyError::Torn { first: first.cpu, second: place.cpu, level };
        if first.node != place.node {
            return Err(torn("node"));
        }
        if first.llc != place.llc {
            return Err(torn("last-level cache"));
        }
    }
    Ok(())
}

/// Gives cores and llcs their indices: `places` comes sorted by CPU and leaves so.
fn number_in_topology_order(places: Vec<CpuPlace>) -> (Vec<CpuPlace>, Vec<Core>, Vec<CpuSet>) {
    // An llc is ordered by its lowest CPU: its given number may be anything.
    let lowest_of_llc =
        |llc: usize| places.iter().find(|place| place.llc == llc).map_or(0, |place| place.cpu);
    let mut order: Vec<usize> = (0..places.len()).collect();
    order.sort_by_key(|&index| {
        let place = &places[index];
        (place.package, place.node, lowest_of_llc(place.llc), place.cpu)
    });

    let mut numbered = places.clone();
    let mut cores: Vec<Core> = Vec::new();
    let mut core_of: Vec<(CpuPlace, usize)> = Vec::new();
    let mut llcs: Vec<CpuSet> = Vec::new();
    let mut llc_numbers: Vec<usize> = Vec::new();
    for index in order {
        let place = places[index];
        let llc = position_or_push(&mut llc_numbers, place.llc);
        if llc == llcs.len() {
            llcs.push(CpuSet::EMPTY);
        }
        llcs[llc].insert(place.cpu);
        let core = match core_of.iter().find(|(known, _)| same_core(known, &place)) {
            Some(&(_, core)) => core,
            None => {
                let (package, node) = (place.package, place.node);
                cores.push(Core { cpus: CpuSet::EMPTY, package, node, llc, speed: 0 });
                core_of.push((place, cores.len() - 1));
                cores.len() - 1
            }
        };
        cores[core].cpus.insert(place.cpu);
        numbered[index] = CpuPlace { llc, core, ..place };
    }
    (numbered, cores, llcs)
}

fn position_or_push(numbers: &mut Vec<usize>, number: usize) -> usize {
    numbers.iter().position(|&known| known == number).unwrap_or_else(|| {
        numbers.push(number);
        numbers.len() - 1
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn set(list: &str) -> CpuSet {
        list.parse().unwrap()
    }

    /// Two packages of two cores with two siblings each; the llc is the package.
    fn two_packages() -> Topology {
        let places: Vec<CpuPlace> = (0..8)
            .map(|cpu| CpuPlace {
                cpu,
                package: cpu / 2 % 2,
                node: cpu / 2 % 2,
                llc: 7 - cpu / 2 % 2,
                core: cpu % 2,
            })
            .collect();
        Topology::new(set("0-15"), &places).unwrap()
    }

    /// Core numbers that repeat in every package are still different cores.
    /// Slow cores become wide first, those of another kind last, among equals the last one.
    #[test]
    fn the_fastest_cores_are_for_scalar_code() {
        let with = |speeds: [u32; 6]| {
            let mut topology = Topology::uniform(6, 1);
            topology.set_speeds(|cpu| Some(speeds[cpu]).filter(|&speed| speed > 0));
            topology.wide_order()
        };
        assert_eq!(with([0; 6]), [5, 4, 3, 2, 1, 0]);
        // two favoured cores
        assert_eq!(with([43, 43, 43, 44, 43, 44]), [4, 2, 1, 0, 5, 3]);
        // two P-cores, one of them favoured, and E-cores
        assert_eq!(with([51, 52, 39, 39, 39, 39]), [0, 1, 5, 4, 3, 2]);
        // not known of one
        assert_eq!(with([44, 43, 0, 43, 43, 43]), [5, 4, 3, 2, 1, 0]);
    }

    #[test]
    fn cores_of_two_packages_are_distinct() {
        let topology = two_packages();
        let cores: Vec<String> = topology.cores().iter().map(|c| c.cpus.to_string()).collect();
        assert_eq!(cores, ["0,4", "1,5", "2,6", "3,7"]);
        assert_eq!(topology.siblings_of(6), set("2,6"));
        assert_eq!(topology.llcs(), [set("0-1,4-5"), set("2-3,6-7")]);
        assert_eq!((topology.packages(), topology.nodes()), (vec![0, 1], vec![0, 1]));
        assert_eq!(topology.possible(), set("0-15"));
    }

    /// A CPU that is not online has no place, and asking for it is not an error.
    #[test]
    fn an_offline_cpu_has_no_siblings() {
        let topology = two_packages();
        assert_eq!(topology.place(9), None);
        assert!(topology.siblings_of(9).is_empty());
        assert_eq!(topology.whole_cores(&set("3,9")), set("3,7,9"));
    }

    /// Contradictions are refused with the CPUs that contradict each other.
    #[test]
    fn contradictions_are_refused() {
        let place = |cpu, node| CpuPlace { cpu, package: 0, node, llc: 0, core: 0 };
        let built = |places: &[CpuPlace]| Topology::new(CpuSet::EMPTY, places);
        assert_eq!(built(&[]), Err(TopologyError::NoCpu));
        assert_eq!(built(&[place(3, 0), place(3, 0)]), Err(TopologyError::Twice { cpu: 3 }));
        assert_eq!(
            built(&[place(0, 0), place(1, 1)]),
            Err(TopologyError::Torn { first: 0, second: 1, level: "node" })
        );
    }

    /// Wide cores are spread over nodes, and within a node over caches.
    #[test]
    fn wide_cores_are_spread() {
        // two nodes of two caches of two cores
        let places: Vec<CpuPlace> = (0..8)
            .map(|cpu| CpuPlace { cpu, package: cpu / 4, node: cpu / 4, llc: cpu / 2, core: cpu })
            .collect();
        let topology = Topology::new(CpuSet::new(), &places).unwrap();
        assert_eq!(topology.wide_order(), [7, 3, 5, 1, 6, 2, 4, 0]);
        assert_eq!(Topology::uniform(3, 2).wide_order(), [2, 1, 0]);
    }

    proptest! {
        /// Growing to whole cores only adds siblings, and doing it twice changes nothing.
        #[test]
        fn whole_cores_is_a_closure(
            cores in 1usize..40,
            threads in 1usize..3,
            picked in proptest::collection::vec(0usize..80, 0..10),
        ) {
            let topology = Topology::uniform(cores, threads);
            let picked: CpuSet = picked.into_iter().filter(|&cpu| cpu < cores * threads).collect();
            let grown = topology.whole_cores(&picked);
            prop_assert!(picked.is_subset(&grown));
            prop_assert_eq!(topology.whole_cores(&grown), grown);
            for core in topology.cores() {
                prop_assert!(core.cpus.is_subset(&grown) || !core.cpus.intersects(&grown));
                prop_assert_eq!(core.cpus.intersects(&grown), core.cpus.intersects(&picked));
            }
        }

        /// A choice of n + 1 cores contains the choice of n and is one core larger.
        #[test]
        fn last_cores_are_nested(cores in 1usize..40, threads in 1usize..3, n in 0usize..40) {
            let topology = Topology::uniform(cores, threads);
            let (fewer, more) = (topology.last_cores(n), topology.last_cores(n + 1));
            prop_assert!(fewer.is_subset(&more));
            prop_assert_eq!(more.len(), (n + 1).min(cores) * threads);
        }
    }
}
