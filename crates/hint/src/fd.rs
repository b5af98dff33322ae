// SPDX-License-Identifier: MIT OR Apache-2.0
//! A file descriptor of ours, closed when it is dropped: the standard library's, for code that does
//! without it.

use core::ffi::c_int;

/// Open until dropped.
#[derive(Debug)]
pub(crate) struct Fd(c_int);

impl Fd {
    /// Takes over what a system call has returned: a new descriptor that no one else owns, or a
    /// failure, which is `None`.
    pub(crate) fn new(result: c_int) -> Option<Fd> {
        (result >= 0).then_some(Fd(result))
    }

    /// For system calls, while this lives.
    pub(crate) fn raw(&self) -> c_int {
        self.0
    }
}

impl Drop for Fd {
    fn drop(&mut self) {
        // SAFETY: no memory of ours; the descriptor is ours alone.
        unsafe { libc::close(self.0) };
    }
}
