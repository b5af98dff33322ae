// SPDX-License-Identifier: MIT OR Apache-2.0
//! From topology and settings to the tables that the scheduler is given.

use cpumodel::{CpuSet, Topology};
use policy::Split;
use report::problem::Problem;

use crate::config::WideCpus;
use crate::error::{Error, Result};

/// Length of tables indexed by CPU: one more than the highest possible CPU.
pub fn nr_cpus(topology: &Topology) -> usize {
    topology.possible().highest().map_or(1, |cpu| cpu + 1).min(policy::CPUS_MAX)
}

/// Which CPUs share queues, and which a search for an idle one goes through: what the scheduler's
/// tables are filled with. CPUs are in topology order, each group is a range of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Places {
    /// Online CPUs in topology order.
    pub cpus: Vec<u16>,
    /// (first, number) in `cpus`, of each shard.
    pub shards: Vec<(u16, u16)>,
    /// For each shard all shards, nearest first, itself the first.
    pub order: Vec<Vec<u8>>,
    /// (first, number) in `cpus`, of each scope; the machine is the first.
    pub scopes: Vec<(u16, u16)>,
    /// By place in `cpus`: its last-level cache and its node as scopes; 0 if that is the machine,
    /// or the same as the next larger one.
    pub scope_of: Vec<[u16; 2]>,
}

/// Scopes that the scheduler's tables hold.
const SCOPES_MAX: usize = 320;

impl Places {
    /// Of a machine.
    pub fn of(topology: &Topology) -> Self {
        let mut places: Vec<&cpumodel::CpuPlace> = topology.cpus().iter().collect();
        places.sort_by_key(|place| (place.llc, place.core, place.cpu));
        let cpus: Vec<u16> = places.iter().map(|place| place.cpu as u16).collect();
        let llcs = ranges(&places, |place| place.llc);
        let nodes = ranges(&places, |place| place.node);
        let shards = shards(&places, &llcs);
        let all = (0, cpus.len() as u16);
        let mut scopes = vec![all];
        let mut scope_of = vec![[0; 2]; cpus.len()];
        let mut add = |ranges: &[(u16, u16)], which: usize, larger: &[(u16, u16)]| {
            let new = ranges.iter().filter(|range| !larger.contains(range));
            for &(first, nr) in new.filter(|&&range| range != all) {
                if scopes.len() == SCOPES_MAX {
                    return;
                }
                scopes.push((first, nr));
                for at in first..first + nr {
                    scope_of[at as usize][which] = scopes.len() as u16 - 1;
                }
            }
        };
        add(&nodes, 1, &[]);
        add(&llcs, 0, &nodes);
        let order = shard_order(&places, &shards);
        Places { cpus, shards, order, scopes, scope_of }
    }
}

/// Where neighbours have the same key: (first, number).
fn ranges(
    places: &[&cpumodel::CpuPlace],
    key: impl Fn(&cpumodel::CpuPlace) -> usize,
) -> Vec<(u16, u16)> {
    let mut first = 0;
    let chunks = places.chunk_by(|a, b| key(a) == key(b)).map(|chunk| {
        first += chunk.len() as u16;
        (first - chunk.len() as u16, chunk.len() as u16)
    });
    chunks.collect()
}

/// The caches, cut into equal parts of whole cores where they have more than [`policy::SHARD_CPUS`]
/// CPUs; of a machine that has more than [`policy::SHARDS_MAX`] such parts, neighbours together, or
/// larger ones.
fn shards(places: &[&cpumodel::CpuPlace], llcs: &[(u16, u16)]) -> Vec<(u16, u16)> {
    let mut most = policy::SHARD_CPUS;
    loop {
        let mut shards: Vec<(u16, u16)> = Vec::new();
        for &(first, nr) in llcs {
            let here = &places[first as usize..(first + nr) as usize];
            let cores = ranges(here, |place| place.core);
            let nr_parts = usize::from(nr).div_ceil(most).min(cores.len());
            for part in 0..nr_parts {
                let at = |part: usize| match cores.get(part * cores.len() / nr_parts) {
                    Some(&(at, _)) => first + at,
                    None => first + nr,
                };
                shards.push((at(part), at(part + 1) - at(part)));
            }
        }
        if llcs.len() > policy::SHARDS_MAX || most >= policy::CPUS_MAX {
            shards = together(places, &shards, most);
        }
        if shards.len() <= policy::SHARDS_MAX {
            return shards;
        }
        most *= 2;
    }
}

/// Neighbours of one node in one, as long as that is no larger than `most`; of several nodes if
/// there are more nodes than shards may be.
fn together(places: &[&cpumodel::CpuPlace], shards: &[(u16, u16)], most: usize) -> Vec<(u16, u16)> {
    let mut merged: Vec<(u16, u16)> = Vec::new();
    for &(first, nr) in shards {
        match merged.last_mut() {
            Some(last)
                if usize::from(last.1 + nr) <= most
                    && (most >= policy::CPUS_MAX
                        || places[last.0 as usize].node == places[first as usize].node) =>
            {
                last.1 += nr;
            }
            _ => merged.push((first, nr)),
        }
    }
    merged
}

/// For each shard all by distance: same cache, node, package, the rest; beginning after itself, so
/// that not all look at the same one first.
fn shard_order(places: &[&cpumodel::CpuPlace], shards: &[(u16, u16)]) -> Vec<Vec<u8>> {
    let home = |shard: usize| places[shards[shard].0 as usize];
    let nr = shards.len();
    (0..nr)
        .map(|from| {
            let distance = |to: &usize| {
                let (a, b) = (home(from), home(*to));
                u8::from(a.llc != b.llc)
                    + u8::from(a.node != b.node)
                    + u8::from(a.package != b.package)
            };
            let mut order: Vec<usize> = (0..nr).map(|i| (from + i) % nr).collect();
            order.sort_by_key(distance);
            order.into_iter().map(|shard| shard as u8).collect()
        })
        .collect()
}

/// The cores (indices in topology order, in [`Topology::wide_order`]) that are wide when the user
/// asks for this, or why that cannot be. `Auto` starts with one. The one check of the setting,
/// whoever makes it.
///
/// All CPUs wide is refused however it is written: nothing would be kept apart. On a machine of
/// one core there is nothing to keep apart anyway, and every choice is allowed.
pub fn wide_cores(topology: &Topology, wide: &WideCpus) -> Result<Vec<usize>> {
    let online = topology.online();
    let refuse = |why: String, next: &str| {
        let what = format!("cannot use --wide-cpus {wide}");
        Err(Error::BadInput(Problem::new(what, why, next)))
    };
    let nr_cores = topology.cores().len();
    match wide {
        WideCpus::Cores(n) if *n > nr_cores => {
            return refuse(format!("this machine has {nr_cores} cores"), "choose fewer, or auto");
        }
        WideCpus::List(list) if list.is_empty() => {
            let next = "name at least one CPU, or choose 0 for no wide CPU at all";
            return refuse("the set of wide CPUs is empty".into(), next);
        }
        WideCpus::List(list) if !list.is_subset(&online) => {
            let absent = *list - online;
            let cpus_are = match absent.len() {
                1 => format!("CPU {absent} is"),
                _ => format!("CPUs {absent} are"),
            };
            let next = "choose among the CPUs that are online, or auto";
            return refuse(format!("{cpus_are} not online; online are {online}"), next);
        }
        _ => {}
    }
    let cpus = grown(topology, wide);
    if cpus == online && nr_cores > 1 {
        let grown = match wide {
            WideCpus::List(list) if *list != cpus => ", their siblings included",
            _ => "",
        };
        return refuse(
            format!("these are all CPUs{grown}: no scalar CPU would be left"),
            "leave at least one core to scalar code",
        );
    }
    Ok(cores_of(topology, &cpus))
}

/// The wide cores of a setting that was accepted before CPUs came or went: those of them that are
/// there, be it none or all.
pub fn wide_cores_left(topology: &Topology, wide: &WideCpus) -> Vec<usize> {
    cores_of(topology, &grown(topology, wide))
}

/// The CPUs of a setting, grown to whole cores.
fn grown(topology: &Topology, wide: &WideCpus) -> CpuSet {
    match wide {
        WideCpus::Auto => topology.last_cores(1),
        WideCpus::Cores(n) => topology.last_cores(*n),
        WideCpus::List(list) => topology.whole_cores(&(*list & topology.online())),
    }
}

fn cores_of(topology: &Topology, cpus: &CpuSet) -> Vec<usize> {
    let mut cores = topology.wide_order();
    cores.retain(|&core| topology.cores()[core].cpus.intersects(cpus));
    cores
}

/// The CPUs of these cores.
pub fn cpus_of(topology: &Topology, cores: &[usize]) -> CpuSet {
    cores.iter().fold(CpuSet::EMPTY, |cpus, &core| cpus | topology.cores()[core].cpus)
}

/// Class of every CPU when these cores (in [`Topology::wide_order`]) are wide and
/// split like this; [`policy::CLASS_NONE`] of those that are offline.
pub fn classes(topology: &Topology, wide_cores: &[usize], split: &Split) -> Vec<u8> {
    let mut classes = vec![policy::CLASS_NONE; nr_cpus(topology)];
    for cpu in topology.online().iter() {
        classes[cpu] = 0;
    }
    for (rank, &core) in wide_cores.iter().enumerate() {
        for cpu in topology.cores()[core].cpus.iter() {
            classes[cpu] = split.core_class(rank as u32) as u8;
        }
    }
    classes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(topology: &Topology, wide: &str) -> Option<String> {
        wide_cores(topology, &wide.parse().unwrap()).err().map(|e| e.into_problem().why)
    }

    /// Each form of the setting names whole cores, the last one first.
    #[test]
    fn every_form_names_whole_cores() {
        let topology = Topology::uniform(4, 2);
        for (wide, cores) in [
            ("auto", &[3][..]),
            ("0", &[]),
            ("2", &[3, 2]),
            ("cpu:1", &[1]),
            ("0,6", &[2, 0]),
            ("0-2", &[2, 1, 0]),
        ] {
            let found = wide_cores(&topology, &wide.parse().unwrap()).unwrap();
            assert_eq!(found, cores, "{wide}");
            assert_eq!(cpus_of(&topology, &found).len(), 2 * cores.len());
        }
    }

    /// All CPUs, by number, list and siblings; CPUs that are not there; none.
    #[test]
    fn impossible_settings_fail() {
        let topology = Topology::uniform(4, 2);
        for (wide, why) in [
            ("4", "these are all CPUs: no scalar CPU would be left"),
            ("0-7", "these are all CPUs: no scalar CPU would be left"),
            ("0-3", "these are all CPUs, their siblings included: no scalar CPU would be left"),
            ("5", "this machine has 4 cores"),
            ("0,9", "CPU 9 is not online; online are 0-7"),
            ("7-9", "CPUs 8-9 are not online; online are 0-7"),
        ] {
            assert_eq!(refusal(&topology, wide).as_deref(), Some(why), "{wide}");
        }
        let empty = WideCpus::List(CpuSet::EMPTY);
        assert!(wide_cores(&topology, &empty).is_err());
    }

    /// A machine of so many nodes, caches per node, cores per cache and threads per core.
    fn machine(nodes: usize, llcs: usize, cores: usize, threads: usize) -> Topology {
        let nr = nodes * llcs * cores;
        let places: Vec<cpumodel::CpuPlace> = (0..nr * threads)
            .map(|cpu| {
                let core = cpu % nr;
                let (llc, node) = (core / cores, core / cores / llcs);
                cpumodel::CpuPlace { cpu, package: node, node, llc, core }
            })
            .collect();
        Topology::new(CpuSet::new(), &places).unwrap()
    }

    /// Whatever the machine: each CPU is in one shard, a shard is whole cores of one node, and of
    /// one cache unless there are too many caches; there are not too many shards, and none is
    /// larger than it must be.
    #[test]
    fn shards_are_small_and_whole() {
        let machines = [
            (1, 1, 2, 1),
            (2, 1, 20, 2),
            (2, 2, 4, 2),
            (1, 1, 64, 1),
            (4, 4, 16, 2),
            (8, 16, 4, 2),
            (2, 32, 8, 2),
            (1, 256, 2, 2),
            (16, 1, 60, 1),
        ];
        for (nodes, llcs, cores, threads) in machines {
            let name = format!("{nodes} {llcs} {cores} {threads}");
            let topology = machine(nodes, llcs, cores, threads);
            let places = Places::of(&topology);
            assert!(places.shards.len() <= policy::SHARDS_MAX, "{name}");
            let mut next = 0;
            for &(first, nr) in &places.shards {
                assert_eq!(first, next, "{name}");
                next += nr;
                assert!(usize::from(nr) <= policy::SHARD_CPUS, "{name}: {nr}");
                let cpus: CpuSet = places.cpus[first as usize..next as usize]
                    .iter()
                    .map(|&c| c as usize)
                    .collect();
                assert_eq!(topology.whole_cores(&cpus), cpus, "{name}");
                let at = |cpu| topology.place(cpu).unwrap();
                let (one, few) = (at(cpus.lowest().unwrap()), nodes * llcs <= policy::SHARDS_MAX);
                assert!(cpus.iter().all(|cpu| at(cpu).node == one.node), "{name}");
                assert!(cpus.iter().all(|cpu| !few || at(cpu).llc == one.llc), "{name}");
            }
            assert_eq!(usize::from(next), topology.cpus().len(), "{name}");
        }
        assert_eq!(Places::of(&machine(1, 1, 4, 2)).shards.len(), 1);
        assert_eq!(Places::of(&machine(2, 1, 20, 2)).shards.len(), 6);
    }

    /// Shards are ordered by distance; scopes are the caches and nodes that are smaller than what
    /// they lie in.
    #[test]
    fn near_comes_before_far() {
        let places = Places::of(&machine(2, 2, 1, 1));
        assert_eq!(places.order[0], [0, 1, 2, 3]);
        assert_eq!(places.order[3], [3, 2, 0, 1]);
        assert_eq!(places.scopes, [(0, 4), (0, 2), (2, 2), (0, 1), (1, 1), (2, 1), (3, 1)]);
        assert_eq!(places.scope_of, [[3, 1], [4, 1], [5, 2], [6, 2]]);
        let places = Places::of(&machine(1, 1, 4, 2));
        assert_eq!((places.scopes.len(), places.scope_of[5]), (1, [0, 0]));
        let places = Places::of(&machine(2, 1, 4, 2));
        assert_eq!((places.scopes.len(), places.scope_of[15]), (3, [0, 2]));
    }

    /// On one core wide and scalar code share it whatever is asked.
    #[test]
    fn one_core_may_be_all_wide() {
        let topology = Topology::uniform(1, 2);
        for wide in ["auto", "0", "1", "0-1", "cpu:0"] {
            assert_eq!(refusal(&topology, wide), None, "{wide}");
        }
        assert!(refusal(&topology, "2").is_some());
    }

    /// When CPUs go, a setting stays in force with what is left: perhaps nothing, perhaps all.
    #[test]
    fn settings_outlive_cpus() {
        let topology = Topology::uniform(2, 1);
        let left = |wide: &str| wide_cores_left(&topology, &wide.parse().unwrap());
        assert_eq!(left("1-3"), [1]);
        assert_eq!(left("0-3"), [1, 0]);
        assert!(left("2-3").is_empty());
        assert_eq!(left("3"), [1, 0]);
        assert_eq!(left("auto"), [1]);
    }
}
