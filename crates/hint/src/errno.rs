// SPDX-License-Identifier: MIT OR Apache-2.0
//! `errno` as the caller left it: the library makes system calls where its callers expect none.

/// Puts `errno` back when dropped.
pub struct KeepErrno(i32);

impl KeepErrno {
    /// Notes what `errno` is.
    #[expect(clippy::new_without_default, reason = "a default would not say that it reads errno")]
    #[inline]
    pub fn new() -> Self {
        // SAFETY: errno's address is valid for the calling thread.
        KeepErrno(unsafe { *libc::__errno_location() })
    }
}

impl Drop for KeepErrno {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: as above; the value is not sent to another thread by its only users, which hold
        // it in a local variable.
        unsafe { *libc::__errno_location() = self.0 };
    }
}

/// The calling thread's `errno`.
pub(crate) fn errno() -> i32 {
    // SAFETY: errno's address is valid for the calling thread.
    unsafe { *libc::__errno_location() }
}
