// SPDX-License-Identifier: MIT OR Apache-2.0
//! From topology and settings to the tables that the scheduler is given.

use machine::{CpuSet, Topology};
use policy::Split;
use report::problem::Problem;

use crate::config::WideCpus;
use crate::error::{Error, Result};

/// Length of tables indexed by CPU: one more than the highest possible CPU.
pub fn nr_cpus(topology: &Topology) -> usize {
    topology.possible().highest().map_or(1, |cpu| cpu + 1).min(policy::CPUS_MAX)
}

/// For each LLC the LLCs by distance, itself first: same node, same package, rest.
pub fn llc_order(topology: &Topology) -> Vec<Vec<u8>> {
    let nr_llcs = topology.llcs().len().clamp(1, policy::LLCS_MAX);
    let home = |llc: usize| {
        topology.cores().iter().find(|core| core.llc == llc).map(|core| (core.package, core.node))
    };
    (0..nr_llcs)
        .map(|from| {
            let mut order: Vec<usize> = (0..nr_llcs).collect();
            order.sort_by_key(|&to| {
                let (Some(a), Some(b)) = (home(from), home(to)) else { return (3, to) };
                let distance = match (to == from, a.1 == b.1, a.0 == b.0) {
                    (true, ..) => 0,
                    (_, true, _) => 1,
                    (_, _, true) => 2,
                    _ => 3,
                };
                (distance, to)
            });
            order.into_iter().map(|llc| llc as u8).collect()
        })
        .collect()
}

/// The cores (indices in topology order, last core first) that are wide when the user asks for
/// this, or why that cannot be. `Auto` starts with one. The one check of the setting, whoever
/// makes it.
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

/// The wide cores when their number is `count`, as automatic sizing chooses it.
pub fn last_cores(topology: &Topology, count: usize) -> Vec<usize> {
    cores_of(topology, &topology.last_cores(count))
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
    let cores = topology.cores().iter().enumerate().rev();
    cores.filter(|(_, core)| core.cpus.intersects(cpus)).map(|(i, _)| i).collect()
}

/// The CPUs of these cores.
pub fn cpus_of(topology: &Topology, cores: &[usize]) -> CpuSet {
    cores.iter().fold(CpuSet::EMPTY, |cpus, &core| cpus | topology.cores()[core].cpus)
}

/// Class of every CPU when these cores (indices in topology order, last core first) are wide and
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
