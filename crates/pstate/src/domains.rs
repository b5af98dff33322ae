// SPDX-License-Identifier: MIT OR Apache-2.0
//! Who shares a clock.
//!
//! Problem: boosting one core boosts or costs others: SMT siblings have one clock, the two cores
//! of an AMD module have one, all cores of older Intel packages have one (TURBO 4). What cpufreq
//! sets together (`related_cpus`) need not be what the hardware clocks together: intel_pstate has
//! a policy per logical CPU.
//!
//! Idea: CPUs are in one domain if they are siblings, or in one policy, or if acpi-cpufreq says so
//! (`freqdomain_cpus`); the domains are the classes of that relation.
//!
//! How many cores may be how fast at once is in the CPU's registers only (Intel:
//! MSR_TURBO_RATIO_LIMIT 1ADh, and 1AEh for the numbers of cores from Skylake-SP on): it is
//! reported where they can be read.

use cpumodel::{CpuSet, Topology, TopologyError};
use hw::Source;

use crate::backend::Machine;
use crate::msr;
use crate::turbo::TurboStep;

/// What a domain is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum Scope {
    /// One core: its siblings, or its only CPU.
    Core = 1,
    /// Several cores of a package.
    Module = 2,
    /// A whole package of several cores.
    Package = 3,
}

/// CPUs with one clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Domain {
    /// The CPUs.
    pub cpus: CpuSet,
    /// What they are.
    pub scope: Scope,
}

/// A machine's cores and clocks.
#[derive(Clone, Debug)]
pub struct Clocks {
    /// Packages, cores, siblings.
    pub topology: Topology,
    /// Each online CPU is in one of them; ordered by their lowest CPU.
    pub domains: Vec<Domain>,
    /// Boost slots: how many cores may be how fast, fewest cores first; empty if unknown.
    pub turbo_steps: Vec<TurboStep>,
}

impl Clocks {
    /// Reads them.
    pub(crate) fn read(machine: &Machine) -> Result<Self, TopologyError> {
        let topology = hw::topology(&machine.source)?;
        let domains = domains(machine, &topology);
        Ok(Clocks { domains, turbo_steps: msr::turbo_steps(machine), topology })
    }

    /// A package whose cores have one clock.
    pub(crate) fn of_package(topology: Topology) -> Self {
        let domain = Domain { cpus: topology.online(), scope: Scope::Package };
        Clocks { topology, domains: vec![domain], turbo_steps: Vec::new() }
    }

    /// The domain of a CPU.
    pub fn domain_of(&self, cpu: usize) -> Option<&Domain> {
        self.domains.iter().find(|domain| domain.cpus.contains(cpu))
    }
}

fn domains(machine: &Machine, topology: &Topology) -> Vec<Domain> {
    let mut classes: Vec<CpuSet> = Vec::new();
    for cpu in &topology.online() {
        let mut class = topology.siblings_of(cpu);
        for file in ["related_cpus", "freqdomain_cpus"] {
            let path = format!("/sys/devices/system/cpu/cpu{cpu}/cpufreq/{file}");
            let text = machine.source.read(&path).unwrap_or_default();
            let listed = text.split_whitespace().filter_map(|cpu| cpu.parse().ok());
            class = class | listed.filter(|cpu| topology.online().contains(*cpu)).collect();
        }
        let (joined, apart): (Vec<_>, Vec<_>) =
            classes.into_iter().partition(|other| other.intersects(&class));
        classes = apart;
        classes.push(joined.into_iter().fold(class, |all, one| all | one));
    }
    classes.sort_by_key(CpuSet::lowest);
    classes.into_iter().map(|cpus| Domain { cpus, scope: scope(topology, &cpus) }).collect()
}

fn scope(topology: &Topology, cpus: &CpuSet) -> Scope {
    let Some(place) = cpus.lowest().and_then(|cpu| topology.place(cpu)) else {
        return Scope::Core;
    };
    if *cpus == topology.siblings_of(place.cpu) {
        return Scope::Core;
    }
    let others = topology.cpus().iter().filter(|other| other.package == place.package);
    let package: CpuSet = others.map(|other| other.cpu).collect();
    if package.is_subset(cpus) { Scope::Package } else { Scope::Module }
}
