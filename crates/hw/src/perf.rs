// SPDX-License-Identifier: MIT OR Apache-2.0
//! Events that the kernel counts: perf_event_open(2), for all modules that count something.
//!
//! Several events are one group if they are opened with the same leader: counted together or not at
//! all, so that ratios of them mean something.
//!
//! Source: perf_event_open(2), linux/perf_event.h.

use std::io::{Error, Result};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

/// PERF_TYPE_HARDWARE: what every PMU has, by a number of the kernel's.
pub const HARDWARE: u32 = 0;
/// PERF_TYPE_SOFTWARE: what the kernel counts itself.
pub const SOFTWARE: u32 = 1;
/// PERF_TYPE_RAW: the CPU model's own number.
pub const RAW: u32 = 4;

/// PERF_COUNT_HW_CPU_CYCLES, of [`HARDWARE`].
pub const CPU_CYCLES: u64 = 0;
/// PERF_COUNT_SW_CPU_CLOCK, of [`SOFTWARE`].
pub const CPU_CLOCK: u64 = 0;
/// PERF_COUNT_SW_TASK_CLOCK, of [`SOFTWARE`].
pub const TASK_CLOCK: u64 = 1;
/// [`Event::flags`]: exclude_kernel and exclude_hv, what every user may count of their own tasks.
pub const USER_ONLY: u64 = 1 << 5 | 1 << 6;
/// [`Event::flags`]: inherit, so that processes which the thread starts from now on count too, in
/// what it reads when they have ended.
pub const INHERIT: u64 = 1 << 1;
/// [`Event::read_format`]: PERF_FORMAT_TOTAL_TIME_RUNNING, the time that was counted, ns, after the
/// count.
pub const TIME_RUNNING: u64 = 1 << 1;

/// An event.
#[derive(Clone, Copy, Debug, Default)]
pub struct Event {
    /// [`HARDWARE`], [`SOFTWARE`], [`RAW`], or a number from below /sys/bus/event_source.
    pub kind: u32,
    /// Which.
    pub config: u64,
    /// Counts between two samples; 0: it is only counted.
    pub sample_period: u64,
    /// What a sample holds: PERF_SAMPLE_*.
    pub sample_type: u64,
    /// What a read returns: PERF_FORMAT_*.
    pub read_format: u64,
    /// The bit field after `read_format`, such as [`USER_ONLY`].
    pub flags: u64,
    /// What else a kind wants to know: `config1` and `config2`.
    pub further: [u64; 2],
}

/// Whose events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whose {
    /// The calling thread's, on any CPU.
    Thread,
    /// Those of whatever runs on this CPU.
    Cpu(u32),
}

/// struct perf_event_attr, its second version (PERF_ATTR_SIZE_VER1).
#[repr(C)]
#[derive(Default)]
struct Attr {
    kind: u32,
    size: u32,
    config: u64,
    sample_period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup: u32,
    breakpoint: u32,
    further: [u64; 2],
}
const _: () = assert!(size_of::<Attr>() == 72);

/// Opens an event, which counts from now on; with a leader it joins the leader's group.
///
/// # Errors
/// The kernel's: what cannot be counted here, or not by us.
pub fn open(event: &Event, whose: Whose, leader: Option<&OwnedFd>) -> Result<OwnedFd> {
    const CLOSE_ON_EXEC: libc::c_ulong = 8;
    let attr = Attr {
        kind: event.kind,
        size: size_of::<Attr>() as u32,
        config: event.config,
        sample_period: event.sample_period,
        sample_type: event.sample_type,
        read_format: event.read_format,
        flags: event.flags,
        further: event.further,
        ..Attr::default()
    };
    let (pid, cpu) = match whose {
        Whose::Thread => (0, -1),
        Whose::Cpu(cpu) => (-1, libc::c_int::try_from(cpu).unwrap_or(libc::c_int::MAX)),
    };
    let group = leader.map_or(-1, |leader| leader.as_fd().as_raw_fd());
    // SAFETY: the kernel reads `size` bytes of the local.
    let fd = unsafe {
        libc::syscall(libc::SYS_perf_event_open, &raw const attr, pid, cpu, group, CLOSE_ON_EXEC)
    };
    if fd < 0 {
        return Err(Error::last_os_error());
    }
    // SAFETY: a new descriptor, no one else's.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What no kernel has is refused, as is a CPU that is not there.
    #[test]
    fn what_is_not_there_fails() {
        let clock = Event { kind: SOFTWARE, ..Event::default() };
        open(&Event { config: 0xffff, ..clock }, Whose::Thread, None).unwrap_err();
        open(&clock, Whose::Cpu(1_000_000), None).unwrap_err();
        open(&clock, Whose::Cpu(u32::MAX), None).unwrap_err();
    }
}
