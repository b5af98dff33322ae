// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whether a scenario fits on a machine.

use cpumodel::Platform;

use super::Scenario;

/// Why a scenario does not fit on a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Misfit {
    /// It binds tasks to a CPU that the machine does not have.
    #[error("it binds tasks to CPU {cpu}, the machine has {nr_cpus} CPUs")]
    CpuMissing {
        /// The CPU.
        cpu: usize,
        /// CPUs of the machine.
        nr_cpus: usize,
    },
    /// The machine is larger than the policy's tables.
    #[error(
        "the policy supports {} CPUs and {} last-level caches, this machine has {nr_cpus} and \
         {nr_llcs}",
        policy::CPUS_MAX,
        policy::SHARDS_MAX
    )]
    TooLarge {
        /// CPUs of the machine.
        nr_cpus: usize,
        /// Its last-level caches.
        nr_llcs: usize,
    },
}

impl Scenario {
    /// Whether so many packages of this platform can run it: they have every CPU that it binds
    /// tasks to, and fit into the policy's tables.
    pub fn check_fits(&self, platform: &Platform, packages: usize) -> Result<(), Misfit> {
        let nr_cpus = platform.nr_cores * platform.threads_per_core * packages;
        let nr_llcs = platform.nr_cores.div_ceil(platform.cores_per_llc) * packages;
        let needed = self.nr_cpus_needed();
        if needed > nr_cpus {
            return Err(Misfit::CpuMissing { cpu: needed - 1, nr_cpus });
        }
        if nr_cpus > policy::CPUS_MAX || nr_llcs > policy::SHARDS_MAX {
            return Err(Misfit::TooLarge { nr_cpus, nr_llcs });
        }
        Ok(())
    }
}
