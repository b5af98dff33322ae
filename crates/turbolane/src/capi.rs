// SPDX-License-Identifier: MIT OR Apache-2.0
//! The C ABI. `include/turbolane.h` is generated from this file by cbindgen (tests/header.rs).
//!
//! The comments here are the header's comments; the manual pages are in docs/man.

use crate::{MAX_LEVEL, Ran, thread};
use std::ffi::{c_int, c_uint, c_ulonglong, c_void};

/// Highest licence level of a section.
pub const TL_LEVEL_MAX: c_uint = 3;

/// No scheduler serves the calling thread; its sections do nothing.
pub const TL_WIDE_NONE: c_int = 0;
/// The sched_ext scheduler serves the calling thread.
pub const TL_WIDE_SCX: c_int = 1;
/// The affinity fallback serves the calling thread.
pub const TL_WIDE_AFFINITY: c_int = 2;

/// tl_delegate(): the calling thread has run the section.
pub const TL_RAN_HERE: c_int = 0;
/// tl_delegate(): a helper thread has run the section.
pub const TL_RAN_DELEGATED: c_int = 1;

const _: () = {
    assert!(TL_LEVEL_MAX == MAX_LEVEL);
    assert!(TL_WIDE_NONE == crate::Status::None as c_int);
    assert!(TL_WIDE_SCX == crate::Status::Scx as c_int);
    assert!(TL_WIDE_AFFINITY == crate::Status::Affinity as c_int);
};

/// Opens a section of wide code on the calling thread. Sections nest; the
/// thread counts as wide, at the highest level of its open sections, until each
/// is closed by tl_wide_end().
///
/// level: 1 heavy 256-bit or light 512-bit code, 2 heavy 512-bit code, 3 AMX.
///
/// Returns 0; -EINVAL if level is 0 or above TL_LEVEL_MAX; -EOVERFLOW if 32
/// sections are open. On failure no section was opened, and none must be
/// closed. errno is not changed.
#[unsafe(no_mangle)]
pub extern "C" fn tl_wide_begin(level: c_uint) -> c_int {
    thread::begin(level)
}

/// Closes the innermost open section of the calling thread, which continues at
/// the level of the sections that are still open.
///
/// Returns 0; -EINVAL if no section is open. errno is not changed.
#[unsafe(no_mangle)]
pub extern "C" fn tl_wide_end() -> c_int {
    thread::end()
}

/// Closes the innermost open section, as tl_wide_end(), and says that what
/// follows stays scalar for phase_ns. A phase that is shorter than the way to a
/// scalar CPU and back is spent where the thread stands; before a longer one the
/// thread leaves, as with tl_wide_end(). Inside of another section, and with 0,
/// it is tl_wide_end().
///
/// Returns 0; -EINVAL if no section is open. errno is not changed.
#[unsafe(no_mangle)]
pub extern "C" fn tl_scalar_for(phase_ns: c_ulonglong) -> c_int {
    thread::end_for(phase_ns)
}

/// Says who acts on the calling thread's sections: TL_WIDE_NONE, TL_WIDE_SCX or
/// TL_WIDE_AFFINITY. Never fails. errno is not changed.
#[unsafe(no_mangle)]
pub extern "C" fn tl_wide_status() -> c_int {
    thread::wide_status() as c_int
}

/// Runs section(argument), wide code of licence level `level`, and returns when
/// it is over. With the affinity fallback, a section that would have to leave
/// its CPU is run by a helper thread on a wide CPU, if it is expected to take at
/// least tl_delegate_break_even_ns(level), or if expected_ns is 0; else by the
/// calling thread.
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

/// The length in ns from which tl_delegate() hands sections of this level from
/// the calling thread to a helper; 0 if it does not. Starts the helpers. errno
/// is not changed.
#[unsafe(no_mangle)]
pub extern "C" fn tl_delegate_break_even_ns(level: c_uint) -> c_ulonglong {
    crate::delegate_break_even_ns(level).unwrap_or(0)
}
