// SPDX-License-Identifier: MIT OR Apache-2.0
//! The C ABI of delegated sections. `include/turbolane.h` is generated from this file, its
//! neighbours and the hint's `capi` by cbindgen (tests/header.rs).
//!
//! The comments here are the header's comments; the manual pages are in docs/man.

use crate::Ran;
use std::ffi::{c_int, c_uint, c_ulonglong, c_void};

/// tl_delegate(): the calling thread has run the section.
pub const TL_RAN_HERE: c_int = 0;
/// tl_delegate(): a helper thread has run the section.
pub const TL_RAN_DELEGATED: c_int = 1;

/// Runs section(argument), wide code of licence level `level`, and returns when
/// it has finished. With the affinity fallback, a section that would have to
/// leave its CPU is run by a helper thread on a wide CPU, if it is expected to
/// take at least tl_delegate_break_even_ns(level), or if expected_ns is 0;
/// otherwise the calling thread runs it.
///
/// Returns TL_RAN_HERE or TL_RAN_DELEGATED; -EINVAL if level is 0 or above
/// TL_LEVEL_MAX or section is NULL: then nothing was run. errno is not changed
/// by the hand-over.
///
/// # Safety
/// The section may be called from another thread with the argument.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tl_delegate(
    level: c_uint,
    expected_ns: c_ulonglong,
    section: Option<unsafe extern "C" fn(*mut c_void)>,
    argument: *mut c_void,
) -> c_int {
    /// An argument of a section that may run on any thread.
    struct Anywhere(*mut c_void);
    // SAFETY: the caller's promise.
    unsafe impl Send for Anywhere {}
    let Some(section) = section else {
        return -libc::EINVAL;
    };
    let argument = Anywhere(argument);
    // SAFETY: the caller's promise.
    let run = move || unsafe { section({ argument }.0) };
    match crate::delegate(level, expected_ns, run) {
        Ok(((), Ran::Here)) => TL_RAN_HERE,
        Ok(((), Ran::Delegated)) => TL_RAN_DELEGATED,
        Err(error) => -error.errno(),
    }
}

/// The shortest duration in ns for which tl_delegate() hands sections of this
/// level from the calling thread to a helper; 0 if it never does. Starts the
/// helpers. errno is not changed.
#[unsafe(no_mangle)]
pub extern "C" fn tl_delegate_break_even_ns(level: c_uint) -> c_ulonglong {
    crate::delegate_break_even_ns(level).unwrap_or(0)
}
