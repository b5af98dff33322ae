// SPDX-License-Identifier: MIT OR Apache-2.0
//! Cycles that a core spends at each licence level, from its counters.
//!
//! CORE_POWER.LVL0, LVL1 and LVL2_TURBO_LICENSE (event 28h, umasks 07h, 18h, 20h), on every CPU and
//! for whatever runs there. They count core clock cycles while the core is not halted, so that
//! their shares are shares of the time in which it worked. Which models have them:
//! [`crate::license`].
//!
//! The three are one group per CPU, counted together or not at all: where counters are short and
//! the kernel takes turns, their ratio stays true. While they are open they take three counters of
//! each CPU away from others. Counting needs CAP_PERFMON, or `perf_event_paranoid` at 0.
//!
//! Source: perf_event_open(2). Limits: one CPU's count is its core's state; siblings see the same
//! level.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Error};

use crate::Source;
use crate::license::{LEVEL_EVENTS, license_counters};
use crate::perf::{self, Event, Whose};

/// Levels that are counted: 0, 1 and 2.
pub const LEVELS: usize = LEVEL_EVENTS.len();

/// Cycles at the levels since the counters were opened.
pub type LevelCycles = [u64; LEVELS];

/// The counters of the CPUs that were asked about.
pub struct LevelCounters {
    groups: HashMap<u32, [File; LEVELS]>,
}

impl LevelCounters {
    /// Counters of this machine; why not, if it has none.
    pub fn of_this_machine(source: &dyn Source) -> Result<Self, String> {
        license_counters(&crate::cpu::read_cpu(source)).0.counted()?;
        Ok(LevelCounters { groups: HashMap::new() })
    }

    /// Cycles of a CPU. A CPU that was offline meanwhile is counted from zero again.
    pub fn read(&mut self, cpu: u32) -> io::Result<LevelCycles> {
        let mut group = match self.groups.remove(&cpu) {
            Some(group) => group,
            None => open(cpu)?,
        };
        let cycles = perf::read_group(&mut group[0])?;
        self.groups.insert(cpu, group);
        Ok(cycles)
    }
}

/// What to report about an error of [`LevelCounters::read`].
pub fn why_not(error: &Error) -> String {
    match error.raw_os_error() {
        Some(libc::EACCES | libc::EPERM) => {
            "counting on CPUs needs CAP_PERFMON: run it with sudo".to_string()
        }
        Some(libc::ENOENT | libc::EOPNOTSUPP | libc::ENODEV) => {
            "the kernel has no counters here, as in most virtual machines".to_string()
        }
        _ => format!("the counters of licence levels cannot be read: {error}"),
    }
}

/// Opens the counters of a CPU as one group, in the order of levels, for callers that read them
/// themselves.
pub fn open(cpu: u32) -> io::Result<[File; LEVELS]> {
    let open = |level: usize, leader| {
        let config = LEVEL_EVENTS[level];
        let event = Event { kind: perf::RAW, config, read_format: perf::GROUP, ..Event::default() };
        perf::open(&event, Whose::Cpu(cpu), leader)
    };
    let leader = open(0, None)?;
    let (second, third) = (open(1, Some(&leader))?, open(2, Some(&leader))?);
    Ok([leader, second, third].map(File::from))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Recorded;

    /// A model without the counters is not asked, however many events its kernel would open: an
    /// absent event counts zero like an idle one.
    #[test]
    fn models_without_counters_fail() {
        let model = |version: &str| {
            let cpuid = format!("0 0 = 16 756e6547 6c65746e 49656e69\n1 0 = {version} 0 0 0\n");
            LevelCounters::of_this_machine(&Recorded::parse("", &cpuid).unwrap()).err()
        };
        assert_eq!(model("50654"), None);
        assert!(model("806f8").unwrap().contains("has no counters"));
        assert!(model("906a3").unwrap().contains("not described"));
        assert!(model("306c3").unwrap().contains("no counters of licence levels are known"));
    }

    /// A CPU that this machine does not have cannot be counted, and there is a sentence for it.
    #[test]
    fn a_cpu_that_is_not_there_fails() {
        let mut counters = LevelCounters { groups: HashMap::new() };
        let error = counters.read(1_000_000).unwrap_err();
        assert!(!why_not(&error).is_empty());
        for (errno, words) in [(libc::EACCES, "CAP_PERFMON"), (libc::ENOENT, "no counters here")] {
            assert!(why_not(&Error::from_raw_os_error(errno)).contains(words));
        }
    }
}
