// SPDX-License-Identifier: MIT OR Apache-2.0
//! The system calls that locks need: futexes, which CPU this is, and where a thread may run.
//!
//! `errno` belongs to the program: a lock leaves it as it was.

use core::ptr;
use core::sync::atomic::AtomicU32;
use std::io;

/// Preserves `errno` over a call: until it is dropped.
pub struct Errno(libc::c_int);

impl Errno {
    /// What it is now.
    pub fn kept() -> Errno {
        // SAFETY: the location is this thread's for as long as it lives.
        Errno(unsafe { *libc::__errno_location() })
    }
}

impl Drop for Errno {
    fn drop(&mut self) {
        // SAFETY: as in `kept`.
        unsafe { *libc::__errno_location() = self.0 }
    }
}

/// Sleeps while `*word == value`, until someone wakes it, and now and then for no reason: the
/// caller looks at the word again.
#[cold]
pub(crate) fn futex_wait(word: &AtomicU32, value: u32) {
    let _errno = Errno::kept();
    let op = libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG;
    // SAFETY: the word outlives the call; no timeout.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            word.as_ptr(),
            op,
            value,
            ptr::null::<libc::timespec>(),
            ptr::null::<u32>(),
            0,
        )
    };
}

/// Wakes up to `count` sleepers on the word. The word may be gone by now: no one reads it, and
/// whoever sleeps on a new word at its address takes a wake-up for no reason.
#[cold]
pub(crate) fn futex_wake(word: *const AtomicU32, count: u32) {
    let _errno = Errno::kept();
    let op = libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG;
    // SAFETY: the kernel takes the address as a key and does not read through it.
    unsafe { libc::syscall(libc::SYS_futex, word, op, count) };
}

/// The CPU this thread runs on now. It may run on another one when this returns.
pub fn current_cpu() -> u32 {
    // SAFETY: no arguments; it fails on kernels without it only.
    u32::try_from(unsafe { libc::sched_getcpu() }).unwrap_or(0)
}

/// CPUs that a thread may run on.
#[derive(Clone, Copy)]
pub struct Affinity(libc::cpu_set_t);

impl Affinity {
    /// One CPU; `None` if there can be no such.
    pub fn one(cpu: u32) -> Option<Affinity> {
        let cpu = usize::try_from(cpu).ok()?;
        if cpu >= 8 * size_of::<libc::cpu_set_t>() {
            return None;
        }
        // SAFETY: all zeros are an empty set.
        let mut set: libc::cpu_set_t = unsafe { core::mem::zeroed() };
        // SAFETY: the CPU is within the set.
        unsafe { libc::CPU_SET(cpu, &mut set) };
        Some(Affinity(set))
    }

    /// This thread's.
    pub fn current() -> io::Result<Affinity> {
        // SAFETY: all zeros are an empty set.
        let mut set: libc::cpu_set_t = unsafe { core::mem::zeroed() };
        // SAFETY: the kernel writes at most the set's size.
        let done = unsafe { libc::sched_getaffinity(0, size_of_val(&set), &mut set) };
        if done == 0 { Ok(Affinity(set)) } else { Err(io::Error::last_os_error()) }
    }

    /// Restricts this thread to it. When this returns, it runs there.
    pub fn apply(&self) -> io::Result<()> {
        // SAFETY: the set is ours, its size is given.
        let done = unsafe { libc::sched_setaffinity(0, size_of_val(&self.0), &self.0) };
        if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// How many CPUs it has.
    pub fn count(&self) -> u32 {
        // SAFETY: the set is ours.
        u32::try_from(unsafe { libc::CPU_COUNT(&self.0) }).unwrap_or(0)
    }

    /// Whether the CPU is in it.
    pub fn has(&self, cpu: u32) -> bool {
        let cpu = cpu as usize;
        // SAFETY: the CPU is within the set.
        cpu < 8 * size_of::<libc::cpu_set_t>() && unsafe { libc::CPU_ISSET(cpu, &self.0) }
    }
}

/// Ticks of a clock that costs little to read; for lengths, not for times of day. TSC ticks on
/// x86-64, nanoseconds elsewhere.
#[inline]
pub fn ticks() -> u64 {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every x86-64 CPU has the instruction.
    unsafe {
        core::arch::x86_64::_rdtsc()
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: the kernel writes one timespec, which is ours.
        unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut now) };
        now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
    }
}
