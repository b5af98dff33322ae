// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads the sysfs files that [`cpumodel::Topology`] is made of.

use cpumodel::{CpuSet, Files, Topology, TopologyError};

use crate::Source;

const CPU_DIR: &str = "/sys/devices/system/cpu";
const NODE_DIR: &str = "/sys/devices/system/node";

/// More cache indices than any x86 CPU has (today's have 4).
const CACHE_INDICES: usize = 8;

/// The topology of the online CPUs.
pub fn topology(source: &dyn Source) -> Result<Topology, TopologyError> {
    let mut files = Files::new();
    let online = read_into(&mut files, source, &format!("{CPU_DIR}/online"));
    read_into(&mut files, source, &format!("{CPU_DIR}/possible"));
    for cpu in &parse_or_empty(online) {
        read_cpu(&mut files, source, cpu);
    }
    let nodes = parse_or_empty(read_into(&mut files, source, &format!("{NODE_DIR}/online")));
    for node in &nodes {
        read_into(&mut files, source, &format!("{NODE_DIR}/node{node}/cpulist"));
    }
    Topology::from_sysfs(&files)
}

fn read_cpu(files: &mut Files, source: &dyn Source, cpu: usize) {
    let dir = format!("{CPU_DIR}/cpu{cpu}");
    read_into(files, source, &format!("{dir}/topology/physical_package_id"));
    let siblings = read_into(files, source, &format!("{dir}/topology/core_cpus_list"));
    if siblings.is_none() {
        read_into(files, source, &format!("{dir}/topology/thread_siblings_list"));
    }
    read_into(files, source, &format!("{dir}/cpufreq/cpuinfo_max_freq"));
    read_into(files, source, &format!("{dir}/cpufreq/base_frequency"));
    // Linux numbers the caches of a CPU by rising level: the last index is the llc.
    for index in (0..CACHE_INDICES).rev() {
        let cache = format!("{dir}/cache/index{index}");
        if read_into(files, source, &format!("{cache}/level")).is_some() {
            read_into(files, source, &format!("{cache}/shared_cpu_list"));
            break;
        }
    }
}

fn read_into(files: &mut Files, source: &dyn Source, path: &str) -> Option<String> {
    let text = source.read(path).ok()?;
    files.insert(path.trim_start_matches('/').to_string(), text.clone());
    Some(text)
}

/// Nonsense counts as no CPU here: [`Topology::from_sysfs`] reads the same text and says why.
fn parse_or_empty(text: Option<String>) -> CpuSet {
    text.and_then(|text| text.parse().ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Live;

    /// The topology of the machine that runs the tests is consistent with its count of CPUs.
    #[test]
    fn live_topology_is_consistent() {
        let topology = topology(&Live).unwrap();
        let in_cores: usize = topology.cores().iter().map(|core| core.cpus.len()).sum();
        assert_eq!(in_cores, topology.online().len());
        assert!(topology.online().is_subset(&topology.possible()));
    }
}
