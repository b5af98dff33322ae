// SPDX-License-Identifier: MIT OR Apache-2.0
//! On which CPU a thread runs: /proc/self/task/TID/stat, without the allocation that `hw::task`
//! needs: the mutex that is waited for may be the allocator's.

use core::ffi::CStr;
use std::io::Write;

/// Fields after the thread's name, up to the CPU's (proc_pid_stat(5): name 2, CPU 39).
const FIELDS: usize = 39 - 2;

/// The CPU of a thread of this process; `None` if there is no such thread.
pub(crate) fn cpu_of(tid: i32) -> Option<u32> {
    let mut path = [0u8; 40];
    write!(&mut path[..], "/proc/self/task/{tid}/stat\0").ok()?;
    let path = CStr::from_bytes_until_nul(&path).ok()?;
    let mut text = [0u8; 512];
    let length = read(path, &mut text)?;
    cpu_in(&text[..length])
}

/// The first bytes of a file; how many they are.
fn read(path: &CStr, into: &mut [u8]) -> Option<usize> {
    let flags = libc::O_RDONLY | libc::O_CLOEXEC;
    // SAFETY: a C string, a buffer of that length, and a descriptor of ours.
    unsafe {
        let file = libc::open(path.as_ptr(), flags);
        let got = libc::read(file, into.as_mut_ptr().cast(), into.len());
        libc::close(file);
        usize::try_from(got).ok()
    }
}

fn cpu_in(stat: &[u8]) -> Option<u32> {
    // a name may hold anything, spaces and brackets too
    let name_end = stat.iter().rposition(|byte| *byte == b')')?;
    let field = stat[name_end..].split(|byte| *byte == b' ').nth(FIELDS)?;
    core::str::from_utf8(field).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cpu_is_read() {
        let line = "7 (a) b) S 1 7 7 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 5 1 1 18446744073709551615 1 \
                    1 0 0 0 0 0 0 0 0 0 0 17 3 0 0 0 0 0 0";
        assert_eq!(cpu_in(line.as_bytes()), Some(3));
        assert_eq!(cpu_in(b"7 (a) S 1"), None);
        assert_eq!(cpu_in(b""), None);
    }

    #[test]
    fn threads_of_this_process_are_found() {
        // SAFETY: no arguments.
        assert!(cpu_of(unsafe { libc::gettid() }).is_some());
        assert_eq!(cpu_of(i32::MAX), None);
    }
}
