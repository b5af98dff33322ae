// SPDX-License-Identifier: MIT OR Apache-2.0
//! Everything `turbolane doctor` and `turbolane run` want to know about a machine, read once.

use cpumodel::{Topology, TopologyError};

use crate::Source;
use crate::cpu::{Cpu, read_cpu};
use crate::kernel::{Kernel, Rights, read_kernel, read_rights};
use crate::power::{Pmu, Power, read_pmu, read_power};
use crate::topology::topology;

/// What is known of a machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    /// Who the CPU is and what it executes.
    pub cpu: Cpu,
    /// The online CPUs.
    pub topology: Topology,
    /// SMT siblings may be used; `None` if the kernel does not say.
    pub smt_active: Option<bool>,
    /// What the kernel offers.
    pub kernel: Kernel,
    /// What this process may do.
    pub rights: Rights,
    /// Frequency control.
    pub power: Power,
    /// Performance counters.
    pub pmu: Pmu,
}

impl Facts {
    /// Reads the facts; only an unreadable topology is an error, all else is a fact too.
    pub fn read(source: &dyn Source) -> Result<Self, TopologyError> {
        let topology = topology(source)?;
        let first = topology.online().lowest().unwrap_or(0);
        let text = |path: &str| source.read(path).ok().map(|text| text.trim().to_string());
        Ok(Facts {
            cpu: read_cpu(source),
            smt_active: text("/sys/devices/system/cpu/smt/active").map(|flag| flag == "1"),
            kernel: read_kernel(source),
            rights: read_rights(source),
            power: read_power(source, first),
            pmu: read_pmu(source),
            topology,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Live, Recorded, record};

    /// A recording of this machine, through the disk, yields the very same facts.
    #[test]
    fn a_recording_holds_every_fact() {
        let mut live = None;
        let recording = record(&Live, |source| live = Some(Facts::read(source).unwrap()));
        let dir = tempfile::tempdir().unwrap();
        recording.save(dir.path()).unwrap();
        let replayed = Facts::read(&Recorded::open(dir.path()).unwrap()).unwrap();
        assert_eq!(replayed, live.unwrap());
    }
}
