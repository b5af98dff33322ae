// SPDX-License-Identifier: MIT OR Apache-2.0
//! Files by system calls alone: no allocation, no lock.
//!
//! The watchdog runs between a fork and its end in a copy of a process whose other threads may
//! have held any lock, the allocator's included. So what restores settings uses nothing but
//! async-signal-safe calls (signal-safety(7)); so does the path of every boost, for speed.

use std::ffi::CStr;

/// A file descriptor that is closed when dropped.
#[derive(Debug)]
pub(crate) struct Fd(pub(crate) i32);

impl Drop for Fd {
    fn drop(&mut self) {
        // SAFETY: the descriptor is ours, and not used after this.
        unsafe { libc::close(self.0) };
    }
}

/// What the last call of this thread failed with.
pub(crate) fn errno() -> i32 {
    // SAFETY: errno's address is valid for the calling thread.
    unsafe { *libc::__errno_location() }
}

/// Opens `path` below the folder `dir`.
pub(crate) fn open_at(dir: i32, path: &CStr, flags: i32) -> Result<Fd, i32> {
    // SAFETY: the path ends in a zero byte; no memory is written.
    match unsafe { libc::openat(dir, path.as_ptr(), flags | libc::O_CLOEXEC) } {
        -1 => Err(errno()),
        fd => Ok(Fd(fd)),
    }
}

/// Another descriptor of the same, which a program that takes our place does not get.
pub(crate) fn duplicate(fd: i32) -> Result<Fd, i32> {
    // SAFETY: no memory involved.
    match unsafe { libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, 0) } {
        -1 => Err(errno()),
        fd => Ok(Fd(fd)),
    }
}

/// Reads up to `into.len()` bytes at `offset`; how many there were.
pub(crate) fn read_at(fd: i32, into: &mut [u8], offset: u64) -> Result<usize, i32> {
    // SAFETY: the buffer is valid for its length.
    match unsafe { libc::pread(fd, into.as_mut_ptr().cast(), into.len(), offset.cast_signed()) } {
        -1 => Err(errno()),
        bytes => Ok(bytes.unsigned_abs()),
    }
}

/// Writes all of `bytes` at `offset`, in one call: for sysfs and for registers half a write is
/// none.
pub(crate) fn write_at(fd: i32, bytes: &[u8], offset: u64) -> Result<(), i32> {
    // SAFETY: the buffer is valid for its length.
    match unsafe { libc::pwrite(fd, bytes.as_ptr().cast(), bytes.len(), offset.cast_signed()) } {
        -1 => Err(errno()),
        written if written.unsigned_abs() == bytes.len() => Ok(()),
        _ => Err(libc::EIO),
    }
}

/// Whether this is a plain file, not a device: a folder that serves as a test machine.
pub(crate) fn is_plain(fd: i32) -> bool {
    // SAFETY: an all-zero stat is valid, the kernel fills it.
    let mut stat: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: the structure is valid for the call.
    let done = unsafe { libc::fstat(fd, &mut stat) };
    done == 0 && stat.st_mode & libc::S_IFMT == libc::S_IFREG
}

/// Sleeps for about a millisecond.
pub(crate) fn nap() {
    let time = libc::timespec { tv_sec: 0, tv_nsec: 1_000_000 };
    // SAFETY: the time is valid; no remainder is asked for.
    unsafe { libc::nanosleep(&time, std::ptr::null_mut()) };
}
