// SPDX-License-Identifier: MIT OR Apache-2.0
//! Events that the kernel counts: perf_event_open(2), for all modules that count something.
//!
//! Several events are one group if they are opened with the same leader: counted together or not at
//! all, so that ratios of them mean something.
//!
//! Source: perf_event_open(2), linux/perf_event.h.

use std::io::{Error, Read, Result};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// PERF_TYPE_HARDWARE: what every PMU has, by a number of the kernel's.
pub const HARDWARE: u32 = 0;
/// PERF_TYPE_SOFTWARE: what the kernel counts itself.
pub const SOFTWARE: u32 = 1;
/// PERF_TYPE_RAW: the CPU model's own number.
pub const RAW: u32 = 4;

/// PERF_COUNT_HW_CPU_CYCLES, of [`HARDWARE`].
pub const CPU_CYCLES: u64 = 0;
/// PERF_COUNT_HW_INSTRUCTIONS, of [`HARDWARE`].
pub const INSTRUCTIONS: u64 = 1;
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
/// [`Event::read_format`]: PERF_FORMAT_GROUP, the counts of a group at once: how many they are, the
/// times asked for, then the counts.
pub const GROUP: u64 = 1 << 3;

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
#[derive(Clone, Copy, Debug)]
pub enum Whose<'a> {
    /// The calling thread's, on any CPU.
    Thread,
    /// Those of whatever runs on this CPU.
    Cpu(u32),
    /// Those of the control group whose folder is open here, and of the groups below it, on this
    /// CPU.
    ControlGroup(BorrowedFd<'a>, u32),
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
pub fn open(event: &Event, whose: Whose<'_>, leader: Option<&OwnedFd>) -> Result<OwnedFd> {
    const CLOSE_ON_EXEC: libc::c_ulong = 1 << 3;
    const PID_IS_CONTROL_GROUP: libc::c_ulong = 1 << 2;
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
    let number = |cpu: u32| libc::c_int::try_from(cpu).unwrap_or(libc::c_int::MAX);
    let (pid, cpu, flags) = match whose {
        Whose::Thread => (0, -1, CLOSE_ON_EXEC),
        Whose::Cpu(cpu) => (-1, number(cpu), CLOSE_ON_EXEC),
        Whose::ControlGroup(folder, cpu) => {
            (folder.as_raw_fd(), number(cpu), CLOSE_ON_EXEC | PID_IS_CONTROL_GROUP)
        }
    };
    let group = leader.map_or(-1, |leader| leader.as_fd().as_raw_fd());
    // SAFETY: the kernel reads `size` bytes of the local.
    let fd = unsafe {
        libc::syscall(libc::SYS_perf_event_open, &raw const attr, pid, cpu, group, flags)
    };
    if fd < 0 {
        return Err(Error::last_os_error());
    }
    // SAFETY: a new descriptor, no one else's.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

/// Reads a group opened with [`GROUP`] by its leader: the time, if [`TIME_RUNNING`] was asked for,
/// then the counts in the order of opening.
///
/// # Errors
/// The kernel's; half an answer is one too.
pub(crate) fn read_group<const WORDS: usize>(leader: &mut impl Read) -> Result<[u64; WORDS]> {
    const { assert!(WORDS < GROUP_WORDS) };
    // In one call: the kernel refuses to answer in parts.
    let mut bytes = [[0; 8]; GROUP_WORDS];
    leader.read_exact(bytes[..=WORDS].as_flattened_mut())?;
    Ok(std::array::from_fn(|at| u64::from_ne_bytes(bytes[1 + at])))
}

/// More than a group here has, with the number of its events.
const GROUP_WORDS: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    /// The number of events is skipped; half an answer is none.
    #[test]
    fn a_group_is_read() {
        let answer = [3u64, 10, 20, 30].map(u64::to_ne_bytes).concat();
        assert_eq!(read_group(&mut &answer[..]).unwrap(), [10, 20, 30]);
        read_group::<3>(&mut &answer[..16]).unwrap_err();
        read_group::<3>(&mut &answer[..24]).unwrap_err();
    }

    /// What no kernel has is refused, as is a CPU that is not there.
    #[test]
    fn what_is_not_there_fails() {
        let clock = Event { kind: SOFTWARE, ..Event::default() };
        open(&Event { config: 0xffff, ..clock }, Whose::Thread, None).unwrap_err();
        open(&clock, Whose::Cpu(1_000_000), None).unwrap_err();
        open(&clock, Whose::Cpu(u32::MAX), None).unwrap_err();
    }
}
