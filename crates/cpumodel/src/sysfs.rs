// SPDX-License-Identifier: MIT OR Apache-2.0
//! Topology from the text of Linux's sysfs files.
//!
//! The files come as a map, so that a recorded tree of another machine works as the live one
//! does. Kernels and virtual machines leave files out; what that means is decided here once:
//!
//! | missing | taken instead |
//! |---|---|
//! | `cpu/possible` | `cpu/online` |
//! | `topology/core_cpus_list` (before 5.x) | `topology/thread_siblings_list`, then: no sibling |
//! | `topology/physical_package_id`, or -1 | package 0 |
//! | `cache/` | the llc is the package |
//! | `node/` (kernel without NUMA) | node 0 |
//! | `cpufreq/`, or no number in it | all cores are equally fast |
//!
//! A file that is there but makes no sense is an error: a wrong topology would place code wrongly
//! without being noticed.

use std::collections::BTreeMap;

use crate::{CpuPlace, CpuSet, Topology, TopologyError};

/// Text of files by path; paths have no leading slash (`sys/devices/system/cpu/online`).
pub type Files = BTreeMap<String, String>;

const CPU_DIR: &str = "sys/devices/system/cpu";
const NODE_DIR: &str = "sys/devices/system/node";

impl Topology {
    /// The topology that a sysfs tree describes; see the head of this file for missing files.
    pub fn from_sysfs(files: &Files) -> Result<Self, TopologyError> {
        let online = read_set(files, &format!("{CPU_DIR}/online"))?.ok_or_else(|| {
            TopologyError::BadFile { path: format!("{CPU_DIR}/online"), why: "is missing".into() }
        })?;
        let possible = read_set(files, &format!("{CPU_DIR}/possible"))?.unwrap_or(online);
        let nodes = read_nodes(files)?;
        let places = online
            .iter()
            .map(|cpu| read_place(files, cpu, &online, &nodes))
            .collect::<Result<Vec<_>, _>>()?;
        let mut topology = Topology::new(possible, &places)?;
        topology.set_speeds(|cpu| read_speed(files, cpu));
        Ok(topology)
    }
}

/// Package, node, llc and core of one CPU. A core is named by its lowest online CPU, an llc too.
fn read_place(
    files: &Files,
    cpu: usize,
    online: &CpuSet,
    nodes: &[(usize, CpuSet)],
) -> Result<CpuPlace, TopologyError> {
    let dir = format!("{CPU_DIR}/cpu{cpu}/topology");
    let package = read_package(files, &format!("{dir}/physical_package_id"))?;
    let siblings = match read_set(files, &format!("{dir}/core_cpus_list"))? {
        Some(set) => Some(set),
        None => read_set(files, &format!("{dir}/thread_siblings_list"))?,
    };
    let core = lowest(siblings, cpu, online, &dir)?;
    let llc = match read_llc(files, cpu)? {
        Some((path, set)) => lowest(Some(set), cpu, online, &path)?,
        // No cache is described: one llc per package, numbered beyond every CPU.
        None => crate::MAX_CPUS.saturating_add(package),
    };
    let node = nodes.iter().find(|(_, cpus)| cpus.contains(cpu)).map_or(0, |&(node, _)| node);
    Ok(CpuPlace { cpu, package, node, llc, core })
}

/// How fast a CPU is among others, kHz. What makes it faster is in one of these files: turbo clocks
/// of favoured cores in the highest frequency, SST-BF in the base frequency, which not every driver
/// shows.
fn read_speed(files: &Files, cpu: usize) -> Option<u32> {
    let read = |name| -> Option<u32> {
        files.get(&format!("{CPU_DIR}/cpu{cpu}/cpufreq/{name}"))?.trim().parse().ok()
    };
    Some(read("cpuinfo_max_freq")?.saturating_add(read("base_frequency").unwrap_or(0)))
}

/// Lowest online CPU of a set that has to hold `cpu`; `cpu` itself if there is no set.
fn lowest(
    set: Option<CpuSet>,
    cpu: usize,
    online: &CpuSet,
    path: &str,
) -> Result<usize, TopologyError> {
    let Some(set) = set else { return Ok(cpu) };
    if !set.contains(cpu) {
        let why = format!("lists CPUs {set}, without CPU {cpu} itself");
        return Err(TopologyError::BadFile { path: path.into(), why });
    }
    Ok((set & *online).lowest().unwrap_or(cpu))
}

/// The cache of the highest level that holds data, with the path that says who shares it.
fn read_llc(files: &Files, cpu: usize) -> Result<Option<(String, CpuSet)>, TopologyError> {
    let prefix = format!("{CPU_DIR}/cpu{cpu}/cache/index");
    let mut highest: Option<(usize, String)> = None;
    for (path, text) in below(files, &prefix).filter(|(path, _)| path.ends_with("/level")) {
        let dir = path.trim_end_matches("/level");
        if files.get(&format!("{dir}/type")).is_some_and(|kind| kind.trim() == "Instruction") {
            continue;
        }
        let level = number(path, text)?;
        if highest.as_ref().is_none_or(|(known, _)| level > *known) {
            highest = Some((level, format!("{dir}/shared_cpu_list")));
        }
    }
    let Some((_, path)) = highest else { return Ok(None) };
    Ok(read_set(files, &path)?.map(|set| (path, set)))
}

fn read_nodes(files: &Files) -> Result<Vec<(usize, CpuSet)>, TopologyError> {
    let prefix = format!("{NODE_DIR}/node");
    let mut nodes = Vec::new();
    for (path, _) in below(files, &prefix).filter(|(path, _)| path.ends_with("/cpulist")) {
        let name = path[prefix.len()..].trim_end_matches("/cpulist");
        if let Some(cpus) = read_set(files, path)? {
            nodes.push((number(path, name)?, cpus));
        }
    }
    Ok(nodes)
}

/// Linux writes -1 where the architecture does not know the package.
fn read_package(files: &Files, path: &str) -> Result<usize, TopologyError> {
    match files.get(path).map(|text| text.trim()) {
        None | Some("-1") => Ok(0),
        Some(text) => number(path, text),
    }
}

fn read_set(files: &Files, path: &str) -> Result<Option<CpuSet>, TopologyError> {
    let Some(text) = files.get(path) else { return Ok(None) };
    text.parse().map(Some).map_err(|error: crate::CpuListError| {
        let (path, why) = (path.to_string(), error.to_string());
        match error {
            crate::CpuListError::TooLarge { .. } => TopologyError::TooMany { path, why },
            _ => TopologyError::BadFile { path, why },
        }
    })
}

fn number(path: &str, text: &str) -> Result<usize, TopologyError> {
    text.trim().parse().map_err(|_| TopologyError::BadFile {
        path: path.into(),
        why: format!("\"{}\" is not a number", text.trim()),
    })
}

/// The files whose path starts with `prefix`.
fn below<'a>(files: &'a Files, prefix: &'a str) -> impl Iterator<Item = (&'a String, &'a String)> {
    files.range(prefix.to_string()..).take_while(move |(path, _)| path.starts_with(prefix))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A tree from lines `path value`, below `sys/devices/system`.
    fn tree(lines: &str) -> Files {
        lines
            .lines()
            .filter_map(|line| line.trim().split_once(' '))
            .map(|(path, value)| (format!("sys/devices/system/{path}"), format!("{value}\n")))
            .collect()
    }

    const TWO_CORES: &str = "cpu/online 0-3
        cpu/possible 0-7
        cpu/cpu0/topology/core_cpus_list 0,2
        cpu/cpu1/topology/core_cpus_list 1,3
        cpu/cpu2/topology/core_cpus_list 0,2
        cpu/cpu3/topology/thread_siblings_list 1,3
        cpu/cpu0/cache/index0/level 1
        cpu/cpu0/cache/index0/type Data
        cpu/cpu0/cache/index0/shared_cpu_list 0,2
        cpu/cpu0/cache/index1/level 9
        cpu/cpu0/cache/index1/type Instruction
        cpu/cpu0/cache/index1/shared_cpu_list 0
        cpu/cpu1/cache/index0/level 1
        cpu/cpu1/cache/index0/shared_cpu_list 1,3
        cpu/cpu2/cache/index0/level 1
        cpu/cpu2/cache/index0/shared_cpu_list 0,2
        cpu/cpu3/cache/index0/level 1
        cpu/cpu3/cache/index0/shared_cpu_list 1,3
        node/node4/cpulist 0-3";

    /// Siblings, caches and nodes come from their files, new or old name.
    #[test]
    fn reads_a_tree() {
        let topology = Topology::from_sysfs(&tree(TWO_CORES)).unwrap();
        assert_eq!(topology.cores().len(), 2);
        assert_eq!(topology.siblings_of(3).to_string(), "1,3");
        assert_eq!(topology.llcs().len(), 2);
        assert_eq!(topology.nodes(), [4]);
        assert_eq!(topology.possible().to_string(), "0-7");
    }

    /// Favoured cores and those of SST-BF are faster than others.
    #[test]
    fn speeds_are_read() {
        let tree_of = |speeds: [(&str, &str); 2]| {
            let lines = speeds.iter().enumerate().map(|(cpu, (max, base))| {
                format!(
                    "cpu/cpu{cpu}/cpufreq/cpuinfo_max_freq {max}
                    cpu/cpu{cpu}/cpufreq/base_frequency {base}\n"
                )
            });
            tree(&format!("cpu/online 0-1\n{}", lines.collect::<String>()))
        };
        let order = |speeds| Topology::from_sysfs(&tree_of(speeds)).unwrap().wide_order();
        assert_eq!(order([("4300000", "2300000"), ("4400000", "2300000")]), [0, 1]);
        assert_eq!(order([("3900000", "2300000"), ("3900000", "2800000")]), [0, 1]);
        assert_eq!(order([("3900000", "2300000"), ("3900000", "2300000")]), [1, 0]);
        assert_eq!(order([("4300000", "x"), ("<unknown>", "2300000")]), [1, 0]);
    }

    /// Without any topology file every CPU is a core of its own in one package and one llc.
    #[test]
    fn missing_files_have_defaults() {
        let topology = Topology::from_sysfs(&tree("cpu/online 0-1")).unwrap();
        assert_eq!((topology.cores().len(), topology.llcs().len()), (2, 1));
        assert_eq!((topology.packages(), topology.nodes()), (vec![0], vec![0]));
        assert!(!topology.has_smt());
    }

    /// A sibling that is offline does not count.
    #[test]
    fn offline_siblings_do_not_count() {
        let files = tree(&TWO_CORES.replace("online 0-3", "online 0-1,3"));
        let topology = Topology::from_sysfs(&files).unwrap();
        assert_eq!(topology.siblings_of(0).to_string(), "0");
    }

    /// Nonsense is refused with the path of the file that holds it.
    #[test]
    fn nonsense_names_its_file() {
        let refusal = |from: &str, to: &str| {
            Topology::from_sysfs(&tree(&TWO_CORES.replace(from, to))).unwrap_err().to_string()
        };
        assert_eq!(refusal("cpu/online 0-3", ""), "sys/devices/system/cpu/online: is missing");
        assert!(refusal("online 0-3", "online zero").contains("cpu/online: \"zero\""));
        assert!(
            refusal("cpu1/topology/core_cpus_list 1,3", "cpu1/topology/core_cpus_list 2-3")
                .ends_with("cpu1/topology: lists CPUs 2-3, without CPU 1 itself")
        );
    }
}
