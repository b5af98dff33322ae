// SPDX-License-Identifier: MIT OR Apache-2.0
//! CPU time that this process and its children have used so far, user and system.

/// Of this process, ns.
pub fn own_ns() -> u64 {
    used_ns(libc::RUSAGE_SELF)
}

/// Of all children that were waited for, and of theirs, ns.
pub fn children_ns() -> u64 {
    used_ns(libc::RUSAGE_CHILDREN)
}

fn used_ns(who: libc::c_int) -> u64 {
    // SAFETY: rusage is numbers, for which zeros are a value; getrusage, which cannot fail for
    // these two, writes one to the local.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(who, &mut usage);
        usage
    };
    let ns = |time: libc::timeval| time.tv_sec as u64 * 1_000_000_000 + time.tv_usec as u64 * 1_000;
    ns(usage.ru_utime) + ns(usage.ru_stime)
}
