// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the environment says, to programs that may listen to it.
//!
//! A set-user-ID or set-group-ID program, or one with file capabilities, runs with more rights than the user who starts it and
//! chooses its environment. A path from there would have the program open what the user cannot: a file of root, a pipe
//! that hangs, another daemon. So the library reads every variable here, by secure_getenv(3), which knows none in such
//! programs. No other file of the library reads the environment.

use std::ffi::{CStr, OsStr, OsString, c_char};
use std::os::unix::ffi::OsStrExt;

unsafe extern "C" {
    /// `getenv`, but null in programs that run with more rights than their user has
    /// (secure_getenv(3); glibc and musl). The `libc` crate lacks it.
    fn secure_getenv(name: *const c_char) -> *const c_char;
}

/// Passes the variable's value on, without a copy: this may run in any thread of any program, which must not allocate.
pub(crate) fn with_secure<T>(name: &CStr, f: impl FnOnce(Option<&[u8]>) -> T) -> T {
    // SAFETY: the name ends in a zero byte; the result is null or a string in the environment,
    // which `f` reads before anything else can change the environment in this thread.
    let value = unsafe {
        let value = secure_getenv(name.as_ptr());
        (!value.is_null()).then(|| CStr::from_ptr(value).to_bytes())
    };
    f(value)
}

/// A copy of the variable's value.
pub(crate) fn secure(name: &CStr) -> Option<OsString> {
    with_secure(name, |value| value.map(|bytes| OsStr::from_bytes(bytes).to_owned()))
}
