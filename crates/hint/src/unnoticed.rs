// SPDX-License-Identifier: MIT OR Apache-2.0
//! System calls where the library's callers expect none: `errno` stays as they left it, and a
//! thread that is to be cancelled (pthread_cancel(3)) is not cancelled there. It would leave the
//! library's functions half done, and no unwinding may pass them.

use core::ffi::c_int;

unsafe extern "C" {
    fn pthread_setcancelstate(state: c_int, old: *mut c_int) -> c_int;
}

const PTHREAD_CANCEL_DISABLE: c_int = 1;

/// While it lives, this thread is not cancelled; `errno` is put back when it is dropped.
pub struct Unnoticed {
    errno: c_int,
    cancel_state: c_int,
}

impl Unnoticed {
    /// Notes how things are.
    #[expect(clippy::new_without_default, reason = "a default would not say what it does")]
    #[inline]
    pub fn new() -> Self {
        let mut unnoticed = Unnoticed { errno: errno(), cancel_state: 0 };
        // SAFETY: writes one number.
        unsafe { pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &mut unnoticed.cancel_state) };
        unnoticed
    }
}

impl Drop for Unnoticed {
    #[inline]
    fn drop(&mut self) {
        let mut old = 0;
        // SAFETY: the state that was there; errno's address is valid for the calling thread. The
        // value is not sent to another thread by its only users, which hold it in a local variable.
        unsafe {
            pthread_setcancelstate(self.cancel_state, &mut old);
            *libc::__errno_location() = self.errno;
        }
    }
}

/// The calling thread's `errno`.
#[inline]
pub(crate) fn errno() -> c_int {
    // SAFETY: errno's address is valid for the calling thread.
    unsafe { *libc::__errno_location() }
}
