// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a scheduler sees of the machine: time, topology, affinities, idle CPUs; and what it may do:
//! kick a CPU. It can run a task only by returning it when the engine requests one.

use cpumodel::Topology;

use crate::bits::Mask;

/// A task's number.
pub type Tid = u32;
/// "No task".
pub const NO_TASK: Tid = u32::MAX;
/// "No CPU".
pub const NO_CPU: u16 = u16::MAX;

/// Where a CPU sits; indices in topology order except for the CPU itself.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    /// Its core.
    pub core: u16,
    /// Its last-level cache.
    pub llc: u16,
    /// Its package, counted from 0.
    pub package: u16,
    /// Its NUMA node, counted from 0.
    pub node: u16,
}

/// A topology as tables by CPU, core and cache.
#[derive(Clone, Debug)]
pub struct Layout {
    /// Number of CPUs; they are numbered 0 to this.
    pub nr_cpus: usize,
    /// By CPU.
    pub place: Vec<Place>,
    /// CPUs of each core.
    pub cores: Vec<Vec<u16>>,
    /// The cores in the order in which they become wide.
    pub wide_order: Vec<u16>,
    /// CPUs of each core, as masks.
    pub core_masks: Vec<Mask>,
    /// CPUs of each last-level cache.
    pub llcs: Vec<Mask>,
    /// Number of packages.
    pub nr_packages: usize,
    /// `llc_order[llc]`: all caches, nearest first, itself the first.
    pub llc_order: Vec<Vec<u16>>,
}

impl Layout {
    /// The tables of a topology whose CPUs are numbered without gaps.
    pub fn new(topology: &Topology) -> Self {
        let nr_cpus = topology.cpus().len();
        let (packages, nodes) = (topology.packages(), topology.nodes());
        let index = |all: &[usize], one| all.iter().position(|&x| x == one).unwrap_or(0) as u16;
        let place: Vec<Place> = topology
            .cpus()
            .iter()
            .map(|at| Place {
                core: at.core as u16,
                llc: at.llc as u16,
                package: index(&packages, at.package),
                node: index(&nodes, at.node),
            })
            .collect();
        let cores: Vec<Vec<u16>> = topology
            .cores()
            .iter()
            .map(|core| core.cpus.iter().map(|cpu| cpu as u16).collect())
            .collect();
        let mask = |cpus: &mut dyn Iterator<Item = usize>| Mask::of(nr_cpus, cpus);
        Layout {
            wide_order: topology.wide_order().into_iter().map(|core| core as u16).collect(),
            core_masks: topology.cores().iter().map(|c| mask(&mut c.cpus.iter())).collect(),
            llcs: topology.llcs().iter().map(|llc| mask(&mut llc.iter())).collect(),
            llc_order: llc_order(topology, &place),
            nr_packages: packages.len(),
            nr_cpus,
            place,
            cores,
        }
    }
}

/// Caches by distance: same node, same package, the rest; by index among equals, beginning after
/// itself, so that not all look at the same one first.
fn llc_order(topology: &Topology, place: &[Place]) -> Vec<Vec<u16>> {
    let lowest: Vec<Place> =
        topology.llcs().iter().map(|llc| place[llc.lowest().expect("a cache has a CPU")]).collect();
    let nr = lowest.len();
    let distance = |a: usize, b: usize| {
        u8::from(lowest[a].node != lowest[b].node)
            + u8::from(lowest[a].package != lowest[b].package)
    };
    (0..nr)
        .map(|llc| {
            let mut order: Vec<u16> = (0..nr).map(|i| ((llc + i) % nr) as u16).collect();
            order.sort_by_key(|&other| distance(llc, other as usize));
            order
        })
        .collect()
}

/// What a kick does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kick {
    /// Wake the CPU if it is idle.
    Idle,
    /// Have it choose anew, whatever it runs.
    Preempt,
}

/// The machine as a scheduler sees it.
#[derive(Clone, Debug)]
pub struct Sys {
    /// Now.
    pub now_ns: u64,
    /// Topology.
    pub layout: Layout,
    /// CPUs that are idle and that no one has claimed.
    pub idle: Mask,
    /// How many: on a busy machine no one needs to search.
    pub nr_idle: usize,
    /// Those of them whose siblings are idle too.
    pub idle_cores: Mask,
    /// CPUs that are online.
    pub online: Mask,
    /// Distinct affinities; 0 is every CPU.
    affinities: Vec<Mask>,
    /// Affinity by task.
    affinity_of: Vec<u16>,
    /// CPU that a task runs on or ran on last.
    pub cpu_of: Vec<u16>,
    /// Granted licence level of each core, as counters show it.
    pub license_level: Vec<u8>,
    /// Where the next search for any CPU of a set begins.
    rotor: usize,
    kicks: Vec<(u16, Kick)>,
}

impl Sys {
    /// A machine without tasks, all CPUs idle.
    pub fn new(layout: Layout) -> Self {
        let nr = layout.nr_cpus;
        let full = Mask::full(nr);
        Sys {
            now_ns: 0,
            license_level: vec![0; layout.cores.len()],
            layout,
            idle: full.clone(),
            nr_idle: nr,
            idle_cores: full.clone(),
            online: full.clone(),
            affinities: vec![full],
            affinity_of: Vec::new(),
            cpu_of: Vec::new(),
            rotor: 0,
            kicks: Vec::new(),
        }
    }

    /// A new task; it counts as having run on `cpu`.
    pub(crate) fn add_task(&mut self, affinity: u16, cpu: u16) -> Tid {
        self.affinity_of.push(affinity);
        self.cpu_of.push(cpu);
        self.cpu_of.len() as Tid - 1
    }

    /// The index of an affinity.
    pub(crate) fn intern_affinity(&mut self, mask: Mask) -> u16 {
        let known = self.affinities.iter().position(|known| *known == mask);
        known.unwrap_or_else(|| {
            self.affinities.push(mask);
            self.affinities.len() - 1
        }) as u16
    }

    /// The CPUs of an affinity.
    pub(crate) fn affinity_mask(&self, affinity: u16) -> &Mask {
        &self.affinities[affinity as usize]
    }

    pub(crate) fn set_affinity(&mut self, task: Tid, affinity: u16) {
        self.affinity_of[task as usize] = affinity;
    }

    /// CPUs that the task may use.
    #[inline]
    pub fn affinity(&self, task: Tid) -> &Mask {
        &self.affinities[self.affinity_of[task as usize] as usize]
    }

    /// Its place among the distinct affinities; 0 is every CPU.
    #[inline]
    pub(crate) fn affinity_of(&self, task: Tid) -> u16 {
        self.affinity_of[task as usize]
    }

    /// Whether that is all of them.
    #[inline]
    pub fn reaches_everything(&self, task: Tid) -> bool {
        self.affinity_of[task as usize] == 0
    }

    /// Whether the task may use the CPU.
    #[inline]
    pub fn allows(&self, task: Tid, cpu: usize) -> bool {
        let affinity = self.affinity_of[task as usize];
        affinity == 0 || self.affinities[affinity as usize].has(cpu)
    }

    /// Claim a CPU if it is idle: no one else will be sent there.
    #[inline]
    pub fn claim(&mut self, cpu: usize) -> bool {
        let idle = self.idle.has(cpu);
        if idle {
            self.set_busy(cpu);
        }
        idle
    }

    /// Claim an idle CPU of a set that the task may use: one whose siblings are idle too if there
    /// is one, as scx_bpf_pick_idle_cpu() does.
    #[inline]
    pub fn claim_any(&mut self, among: &Mask, task: Tid) -> Option<usize> {
        if self.nr_idle == 0 {
            return None;
        }
        let affinity = self.affinity_of[task as usize] as usize;
        let third = (affinity != 0).then(|| &self.affinities[affinity]);
        let cpu = self
            .idle_cores
            .next_common(among, third, self.rotor)
            .or_else(|| self.idle.next_common(among, third, self.rotor))?;
        self.rotor = if cpu + 1 < self.layout.nr_cpus { cpu + 1 } else { 0 };
        self.set_busy(cpu);
        Some(cpu)
    }

    /// Some CPU of a set, another each time.
    pub fn any(&mut self, among: &Mask, task: Tid) -> Option<usize> {
        let affinity = &self.affinities[self.affinity_of[task as usize] as usize];
        let cpu = among.next_common(affinity, None, self.rotor)?;
        self.rotor = if cpu + 1 < self.layout.nr_cpus { cpu + 1 } else { 0 };
        Some(cpu)
    }

    /// Ask a CPU to look for work.
    #[inline]
    pub fn kick(&mut self, cpu: usize, kick: Kick) {
        self.kicks.push((cpu as u16, kick));
    }

    pub(crate) fn next_kick(&mut self) -> Option<(u16, Kick)> {
        self.kicks.pop()
    }

    pub(crate) fn set_idle(&mut self, cpu: usize) {
        self.nr_idle += usize::from(!self.idle.has(cpu));
        self.idle.set(cpu);
        let core = self.layout.place[cpu].core as usize;
        if self.layout.cores[core].iter().all(|&sibling| self.idle.has(sibling as usize)) {
            for &sibling in &self.layout.cores[core] {
                self.idle_cores.set(sibling as usize);
            }
        }
    }

    #[inline]
    pub(crate) fn set_busy(&mut self, cpu: usize) {
        // a core of a busy CPU is no idle core already
        if self.idle.has(cpu) {
            self.end_idle(cpu);
        }
    }

    fn end_idle(&mut self, cpu: usize) {
        self.nr_idle -= 1;
        self.idle.clear(cpu);
        let core = self.layout.place[cpu].core as usize;
        for &sibling in &self.layout.cores[core] {
            self.idle_cores.clear(sibling as usize);
        }
    }
}
