// SPDX-License-Identifier: MIT OR Apache-2.0
//! The hint's C ABI: the first part of `include/turbolane.h`, which is generated
//! (crates/turbolane/tests/header.rs).
//!
//! The comments here are the header's comments; the manual pages are in docs/man.

use crate::{MAX_LEVEL, thread};
use core::ffi::{c_int, c_uint, c_ulonglong};

/// Highest licence level of a section.
pub const TL_LEVEL_MAX: c_uint = 3;

/// No scheduler serves the calling thread; its sections have no effect.
pub const TL_WIDE_NONE: c_int = 0;
/// The sched_ext scheduler serves the calling thread.
pub const TL_WIDE_SCX: c_int = 1;
/// The affinity fallback serves the calling thread.
pub const TL_WIDE_AFFINITY: c_int = 2;

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

/// Closes the innermost open section, like tl_wide_end(), and states that the
/// code after it stays scalar for phase_ns. For a phase shorter than a migration
/// to a scalar CPU and back, the thread stays on its CPU; for a longer one
/// it leaves, as with tl_wide_end(). Inside another section, and with 0, this is
/// tl_wide_end().
///
/// Returns 0; -EINVAL if no section is open. errno is not changed.
#[unsafe(no_mangle)]
pub extern "C" fn tl_scalar_for(phase_ns: c_ulonglong) -> c_int {
    thread::end_for(phase_ns)
}

/// Returns what serves the calling thread's sections: TL_WIDE_NONE, TL_WIDE_SCX
/// or TL_WIDE_AFFINITY. Never fails. errno is not changed.
#[unsafe(no_mangle)]
pub extern "C" fn tl_wide_status() -> c_int {
    thread::wide_status() as c_int
}
