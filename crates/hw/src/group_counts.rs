// SPDX-License-Identifier: MIT OR Apache-2.0
//! How fast the tasks of a control group execute: instructions and cycles, with the CPU time in
//! which they were counted.
//!
//! Of the group and of all below it, in user and kernel mode, on the CPUs that are online when
//! counting begins. The two events are one group of the kernel's, counted together or not at all;
//! where counters are short and the kernel takes turns, count and time shrink alike, so that rates
//! stay true. Takes two file descriptors for each CPU. Needs a PMU, and CAP_PERFMON or
//! `perf_event_paranoid` of 0 or less.
//!
//! Source: perf_event_open(2), PERF_FLAG_PID_CGROUP.

use std::fs::File;
use std::io::Result;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use crate::perf::{self, Event, Whose};

/// What a control group has executed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GroupCounts {
    /// Instructions.
    pub instructions: u64,
    /// Cycles of the cores' own clocks.
    pub cycles: u64,
    /// CPU time in which both were counted, ns.
    pub counted_ns: u64,
}

/// The counters; they count from when they are opened to when this is dropped.
pub struct GroupCounters(Vec<[File; 2]>);

impl GroupCounters {
    /// Counts what the control group with this folder executes on these CPUs.
    ///
    /// # Errors
    /// The kernel's; [`crate::cycles::why_no_cycles`] has a sentence for it.
    pub fn open(folder: &Path, cpus: impl IntoIterator<Item = usize>) -> Result<Self> {
        Self::count(perf::HARDWARE, [perf::INSTRUCTIONS, perf::CPU_CYCLES], folder, cpus)
    }

    fn count(
        kind: u32,
        configs: [u64; 2],
        folder: &Path,
        cpus: impl IntoIterator<Item = usize>,
    ) -> Result<Self> {
        const OTHER_DESCRIPTORS: u64 = 64;
        crate::descriptors::allow(2 * cpumodel::MAX_CPUS as u64 + OTHER_DESCRIPTORS);
        let folder = File::open(folder)?;
        let open = |cpu: usize| {
            let whose = Whose::ControlGroup(folder.as_fd(), cpu as u32);
            let open = |config, leader: Option<&OwnedFd>| {
                let read_format = perf::GROUP | perf::TIME_RUNNING;
                perf::open(&Event { kind, config, read_format, ..Event::default() }, whose, leader)
            };
            let leader = open(configs[0], None)?;
            let member = open(configs[1], Some(&leader))?;
            Ok([leader, member].map(File::from))
        };
        cpus.into_iter().map(open).collect::<Result<_>>().map(GroupCounters)
    }

    /// The sum over the CPUs since the counters were opened.
    ///
    /// # Errors
    /// The kernel's, as of a CPU that has gone offline.
    pub fn read(&mut self) -> Result<GroupCounts> {
        let mut sum = GroupCounts::default();
        for [leader, _] in &mut self.0 {
            let [counted_ns, instructions, cycles] = perf::read_group(leader)?;
            sum.instructions += instructions;
            sum.cycles += cycles;
            sum.counted_ns += counted_ns;
        }
        Ok(sum)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The group of all tasks has what this thread does, by clocks that every machine has; a folder
    /// that is no control group is refused.
    #[test]
    fn a_control_group_is_counted() {
        let clocks = [perf::TASK_CLOCK, perf::CPU_CLOCK];
        let cpus = || crate::topology(&crate::Live).unwrap().online();
        let count = |folder: &Path| {
            let cpus: Vec<usize> = cpus().iter().collect();
            GroupCounters::count(perf::SOFTWARE, clocks, folder, cpus)
        };
        assert!(count(Path::new("/")).is_err());
        let Some(root) = crate::cgroups::unified_root() else { return eprintln!("skipped") };
        let mut counters = match count(&root) {
            Ok(counters) => counters,
            // perf_event_paranoid, a container, or a kernel without the controller
            Err(error) => return eprintln!("skipped: {error}"),
        };
        let start = std::time::Instant::now();
        let mut sum = 0u64;
        while start.elapsed().as_millis() < 20 {
            sum = std::hint::black_box(sum + 1);
        }
        let found = counters.read().unwrap();
        assert!(found.counted_ns > 10_000_000, "{found:?}");
    }
}
