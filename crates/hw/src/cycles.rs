// SPDX-License-Identifier: MIT OR Apache-2.0
//! Who counts the core's own cycles: a counter of the kernel's, and two registers.
//!
//! - perf's event of cycles, of the calling thread in user mode (in all modes, if the PMU does not tell them apart).
//!   Needs a PMU and `perf_event_paranoid` of 2 or less.
//! - APERF and MPERF (MSR E8h, E7h): cycles at the core's clock and at the time stamp counter's, while it is not
//!   halted. Needs the device `/dev/cpu/N/msr`, which is root's.
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

/// What to tell about an error of [`ThreadCycles`].
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

/// What to tell about an error of [`ClockRegisters`].
pub fn why_no_registers(error: &Error) -> String {
    match error.raw_os_error() {
        Some(libc::EACCES | libc::EPERM) => "only root may read registers".into(),
        Some(libc::ENOENT | libc::ENXIO) => {
            "there is no device of registers; as root: modprobe msr".into()
        }
        Some(libc::EIO) => "this CPU, or its hypervisor, has no such registers".into(),
        _ => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A CPU that this machine does not have has no registers, and there is a sentence for each way to fail.
    #[test]
    fn what_is_not_there_fails() {
        let error = ClockRegisters::open(1_000_000).err().unwrap();
        assert!(why_no_registers(&error).contains("modprobe msr"), "{error}");
        let why = |errno| why_no_cycles(&Error::from_raw_os_error(errno));
        assert!(why(libc::EACCES).contains("paranoid") && why(libc::ENOENT).contains("virtual"));
    }
}
