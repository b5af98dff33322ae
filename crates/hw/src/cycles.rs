// SPDX-License-Identifier: MIT OR Apache-2.0
//! What counts the core's own cycles: a counter of the kernel's, and two registers.
//!
//! - perf's event of cycles, of the calling thread in user mode (in all modes, if the PMU does not
//!   distinguish them). Needs a PMU and `perf_event_paranoid` of 2 or less.
//! - The same event of the processes that it starts, in all modes, with the time that they ran:
//!   their mean clock. Needs `perf_event_paranoid` of 1 or less, or root, since that time is of all
//!   modes too.
//! - APERF and MPERF (MSR E8h, E7h): cycles at the core's clock and at the time stamp counter's,
//!   while it is not halted. Needs the device `/dev/cpu/N/msr`, which is root's.
//!
//! Source: perf_event_open(2), msr(4), Intel SDM 3B 15.5.2.

use std::fs::File;
use std::io::{self, Error, Read};
use std::os::unix::fs::FileExt;

use crate::perf::{self, Event, Whose};

const APERF: u64 = 0xe8;
const MPERF: u64 = 0xe7;

/// Cycles of the calling thread.
pub struct ThreadCycles(File);

impl ThreadCycles {
    /// Counts from now on.
    ///
    /// # Errors
    /// The kernel's; [`why_no_cycles`] has a sentence for it.
    pub fn open() -> io::Result<Self> {
        let event = Event {
            kind: perf::HARDWARE,
            config: perf::CPU_CYCLES,
            flags: perf::USER_ONLY,
            ..Event::default()
        };
        let fd = match perf::open(&event, Whose::Thread, None) {
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
                perf::open(&Event { flags: 0, ..event }, Whose::Thread, None)?
            }
            opened => opened?,
        };
        Ok(ThreadCycles(File::from(fd)))
    }

    /// Cycles so far.
    pub fn read(&mut self) -> io::Result<u64> {
        let mut bytes = [0; 8];
        self.0.read_exact(&mut bytes)?;
        Ok(u64::from_ne_bytes(bytes))
    }
}

/// Cycles of the calling thread and of all that it starts.
pub struct FamilyCycles(File);

impl FamilyCycles {
    /// Counts from now on.
    ///
    /// # Errors
    /// As for [`ThreadCycles::open`].
    pub fn open() -> io::Result<Self> {
        Self::count(perf::HARDWARE, perf::CPU_CYCLES)
    }

    fn count(kind: u32, config: u64) -> io::Result<Self> {
        let event = Event {
            kind,
            config,
            read_format: perf::TIME_RUNNING,
            flags: perf::INHERIT,
            ..Event::default()
        };
        perf::open(&event, Whose::Thread, None).map(|fd| FamilyCycles(File::from(fd)))
    }

    /// Cycles so far, and the ns in which they were counted: the thread's own, and those of
    /// processes that have ended.
    pub fn read(&mut self) -> io::Result<[u64; 2]> {
        let mut bytes = [0; 16];
        self.0.read_exact(&mut bytes)?;
        let (cycles, running_ns) = bytes.split_at(8);
        let word = |bytes: &[u8]| u64::from_ne_bytes(bytes.try_into().expect("it has 8"));
        Ok([word(cycles), word(running_ns)])
    }
}

/// What to report about an error of [`ThreadCycles`] or [`FamilyCycles`].
pub fn why_no_cycles(error: &Error) -> String {
    match error.raw_os_error() {
        Some(libc::EACCES | libc::EPERM) => "perf_event_paranoid forbids it".into(),
        Some(libc::ENOENT | libc::EOPNOTSUPP | libc::ENODEV) => {
            "the kernel counts no cycles here, as in most virtual machines".into()
        }
        _ => error.to_string(),
    }
}

/// APERF and MPERF of a CPU.
pub struct ClockRegisters(File);

impl ClockRegisters {
    /// Opens the registers of a CPU.
    ///
    /// # Errors
    /// The kernel's; [`why_no_registers`] has a sentence for it.
    pub fn open(cpu: usize) -> io::Result<Self> {
        File::open(format!("/dev/cpu/{cpu}/msr")).map(ClockRegisters)
    }

    /// APERF, then MPERF.
    pub fn read(&self) -> io::Result<[u64; 2]> {
        let mut values = [0; 2];
        for (value, register) in values.iter_mut().zip([APERF, MPERF]) {
            let mut bytes = [0; 8];
            self.0.read_exact_at(&mut bytes, register)?;
            *value = u64::from_ne_bytes(bytes);
        }
        Ok(values)
    }
}

/// What to report about an error of [`ClockRegisters`].
pub fn why_no_registers(error: &Error) -> String {
    match error.raw_os_error() {
        Some(libc::EACCES | libc::EPERM) => "only root may read registers".into(),
        Some(libc::ENOENT | libc::ENXIO) => "there is no MSR device; as root: modprobe msr".into(),
        Some(libc::EIO) => "this CPU, or its hypervisor, has no such registers".into(),
        _ => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a child did is counted when it has ended. By the kernel's own clock, which every
    /// machine has: it counts the ns that it was counted in.
    #[test]
    fn children_are_counted() {
        let mut clock = match FamilyCycles::count(perf::SOFTWARE, perf::TASK_CLOCK) {
            Ok(clock) => clock,
            // perf_event_paranoid, or a container
            Err(error) if matches!(error.raw_os_error(), Some(libc::EACCES | libc::EPERM)) => {
                return eprintln!("skipped: {error}");
            }
            Err(error) => panic!("{error}"),
        };
        let before = clock.read().unwrap();
        let spin = "i=0; while [ $i -lt 50000 ]; do i=$((i + 1)); done; (times)";
        let children_ns = crate::cpu_time::children_ns();
        assert!(
            std::process::Command::new("sh").args(["-c", spin]).output().unwrap().status.success()
        );
        let spent_ns = crate::cpu_time::children_ns() - children_ns;
        let after = clock.read().unwrap();
        let [counted_ns, running_ns] = [0, 1].map(|at| after[at] - before[at]);
        assert!(counted_ns > spent_ns / 2 && spent_ns > 0, "{counted_ns} of {spent_ns}");
        let ratio = counted_ns as f64 / running_ns as f64;
        assert!((ratio - 1.0).abs() < 0.05, "{counted_ns} in {running_ns}");
    }

    /// A CPU that this machine does not have has no registers, and there is a sentence for each
    /// kind of failure.
    #[test]
    fn what_is_not_there_fails() {
        let error = ClockRegisters::open(1_000_000).err().unwrap();
        assert!(why_no_registers(&error).contains("modprobe msr"), "{error}");
        let why = |errno| why_no_cycles(&Error::from_raw_os_error(errno));
        assert!(why(libc::EACCES).contains("paranoid") && why(libc::ENOENT).contains("virtual"));
    }
}
