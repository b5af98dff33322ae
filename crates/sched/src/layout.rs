// SPDX-License-Identifier: MIT OR Apache-2.0
//! From topology and settings to the tables that the scheduler is given.

use machine::{CpuSet, Topology};

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

/// The cores that are wide at the start, checked against the machine. `Auto` starts with one.
pub fn wide_cores(topology: &Topology, wide: &WideCpus) -> Result<Vec<usize>> {
    let nr_cores = topology.cores().len();
    match wide {
        WideCpus::Auto => Ok(last_cores(nr_cores, 1)),
        WideCpus::Cores(n) if *n > nr_cores => Err(Error::BadInput(format!(
            "--wide-cpus {n}: this machine has {nr_cores} online cores. Name a number from 0 to {nr_cores}, \
             a list of CPUs like `2-3`, or `auto`."
        ))),
        WideCpus::Cores(n) => Ok(last_cores(nr_cores, *n)),
        WideCpus::List(list) => cores_of_list(topology, list),
    }
}

fn last_cores(nr_cores: usize, count: usize) -> Vec<usize> {
    (nr_cores - count.min(nr_cores)..nr_cores).rev().collect()
}

fn cores_of_list(topology: &Topology, list: &CpuSet) -> Result<Vec<usize>> {
    if list.is_empty() {
        return Err(Error::BadInput(
            "--wide-cpus: the list is empty. Name at least one CPU, or `0` for no wide CPU at all."
                .into(),
        ));
    }
    if !list.is_subset(&topology.online()) {
        let unknown: Vec<String> = list
            .iter()
            .filter(|cpu| !topology.online().contains(*cpu))
            .map(|cpu| cpu.to_string())
            .collect();
        return Err(Error::BadInput(format!(
            "--wide-cpus {list}: CPU {} is not online here. Online are {}.",
            unknown.join(", "),
            topology.online()
        )));
    }
    let cores = topology.cores().iter().enumerate();
    Ok(cores.filter(|(_, core)| core.cpus.intersects(list)).map(|(i, _)| i).rev().collect())
}

/// Class of every CPU when these cores (indices in topology order, last core first) are wide.
pub fn classes(topology: &Topology, wide_cores: &[usize], tiers: bool) -> Vec<u8> {
    let mut classes = vec![0; nr_cpus(topology)];
    for (rank, &core) in wide_cores.iter().enumerate() {
        for cpu in topology.cores()[core].cpus.iter() {
            classes[cpu] = policy::core_class(rank as u32, wide_cores.len() as u32, tiers) as u8;
        }
    }
    classes
}

/// The CPUs of a class above 0.
pub fn wide_cpus(classes: &[u8]) -> CpuSet {
    let mut set = CpuSet::new();
    for (cpu, class) in classes.iter().enumerate() {
        if *class > 0 {
            set.insert(cpu);
        }
    }
    set
}
