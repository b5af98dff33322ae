// SPDX-License-Identifier: MIT OR Apache-2.0
//! A thread that must not wait: the machine has no scheduler of ours meanwhile.

/// While it lives, this thread goes before others: until the scheduler is back, wide code runs
/// anywhere, and on a busy machine loading takes its time.
pub(crate) struct Hurry {
    before: libc::c_int,
}

impl Hurry {
    pub(crate) fn start() -> Self {
        // SAFETY: system calls on the calling thread's priority, without memory.
        unsafe {
            let before = libc::getpriority(libc::PRIO_PROCESS, 0);
            libc::setpriority(libc::PRIO_PROCESS, 0, -20);
            Hurry { before }
        }
    }
}

impl Drop for Hurry {
    fn drop(&mut self) {
        // SAFETY: as above.
        unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, self.before) };
    }
}
