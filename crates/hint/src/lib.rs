// SPDX-License-Identifier: MIT OR Apache-2.0
//! The hint: a thread says when it runs wide code.
//!
//! Problem: Intel CPUs lower the frequency of a core that runs AVX-512, heavy AVX2 or AMX code,
//! and keep it low for a while, so the scalar code that follows, or that shares the core, pays
//! (SFMA 2, DIM 2). A scheduler can keep the two kinds of code on separate cores, if it knows
//! which is which. The application knows it best.
//!
//! Idea: a section of wide code is bracketed by [`wide_begin`] and [`wide_end`] (SFMA 3.3 has the
//! same pair as system calls). When the thread is already on a CPU that may run the section,
//! that costs a few stores to a page shared with the scheduler. When not, the thread gives the CPU
//! up once, and continues on a wide one. Without a scheduler nothing happens at all.
//!
//! ```
//! use turbolane_hint::WideSection;
//! # fn multiply_matrices() {}
//! let section = WideSection::enter(2)?; // heavy 512-bit code follows
//! multiply_matrices();
//! drop(section);
//! # Ok::<(), turbolane_hint::Error>(())
//! ```
//!
//! Levels are licence levels: 1 for heavy 256-bit or light 512-bit code, 2 for heavy 512-bit code,
//! 3 for AMX. Heavy means dense multiplications or floating point (DIM 2.1).
//!
//! # What it costs
//! No system call while nothing has to move. The first section of a thread connects to the
//! scheduler (a few system calls, 200 ms at most against a daemon that hangs). A section that has
//! to move costs a `sched_yield` (or, with the affinity fallback, a `sched_setaffinity`).
//!
//! A section that ends by [`scalar_for`] says how long what follows stays scalar: if that is
//! shorter than the move to a scalar CPU and back, the thread does not go there.
//!
//! # Signals, forks, threads
//! Sections belong to a thread. A signal handler may open and close sections of its own; a
//! thread's very first section should not be in one, since it reads the environment. `errno` is
//! left as it was, and a thread that is to be cancelled is not cancelled here. A forked child gets
//! its own slot at its next section; sections open at the fork are open in the child. Children of
//! `vfork` or of a raw `clone` system call must not open sections before they `exec`.
//!
//! # Size
//! As a shared object, libturbolane_hint.so, this has four functions, `tl_wide_begin` and its like,
//! and at most 60 KB of text (`./x test size` measures it), so that programs and preloaded
//! libraries can carry it along. It uses the C library and nothing else: no allocation, no
//! formatting, and no path that panics, since a panic brings the standard library's machinery with
//! it, ten times as large as all of this.
//!
//! One copy per process: two copies, in libturbolane.so and in another library say, have one slot
//! per thread between them and overwrite each other's hints. Where both are shared objects that the
//! program was linked with or that were preloaded, the dynamic linker gives all callers the first
//! one's functions.
//!
//! # Parts
//! [`page`] is the shared memory, [`protocol`] how a thread gets its slot in it; both are shared
//! with the daemon. The rest is private: `nesting` (open sections), `thread` (the fast path),
//! `link` (what a thread says and reads), `state` (of a thread) and `thread_local` (its memory),
//! `scheduler` (finding one), `connect` (the socket), `fd` (its descriptors), `mapping` (the page
//! in this process), `cpu` (where am I), `affinity` (the fallback), `forks` (children),
//! `unnoticed` (system calls), `capi` (the C ABI). [`inside`] is for libturbolane.

#![no_std]

// For the panic handler that a shared object has to have, for tests, and for CPUs other than
// x86-64.
extern crate std;

mod affinity;
mod capi;
mod connect;
mod cpu;
mod fd;
mod forks;
mod link;
mod mapping;
mod nesting;
pub mod page;
pub mod protocol;
mod scheduler;
mod state;
mod thread;
mod thread_local;
mod unnoticed;

use core::fmt;

pub use capi::{tl_scalar_for, tl_wide_begin, tl_wide_end, tl_wide_status};
pub use nesting::{MAX_DEPTH, MAX_LEVEL};
pub use thread::{scalar_for, wide_begin, wide_end, wide_status};

/// What the project's other libraries need of a thread's hints. Programs do not.
pub mod inside {
    pub use crate::affinity::original_cpus;
    pub use crate::forks::Watch;
    pub use crate::scheduler::coarse_ns;
    pub use crate::thread::{Progress, Rest, finish, start_begin, start_end};
    pub use crate::thread::{misplaced, served, slot_at_hand, takes_seat};
    pub use crate::unnoticed::Unnoticed;
}
/// Why a section was not opened or closed. Nothing has changed then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// The level is 0 or above [`MAX_LEVEL`].
    InvalidLevel,
    /// [`MAX_DEPTH`] sections are open already.
    TooDeep,
    /// No section of this thread is open.
    NotOpen,
}

impl Error {
    /// The error as the C ABI returns it: a positive errno value.
    pub fn errno(self) -> i32 {
        match self {
            Error::InvalidLevel | Error::NotOpen => libc::EINVAL,
            Error::TooDeep => libc::EOVERFLOW,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::InvalidLevel => write!(f, "licence level is not in 1..={MAX_LEVEL}"),
            Error::TooDeep => write!(f, "{MAX_DEPTH} wide sections are open already"),
            Error::NotOpen => write!(f, "no wide section of this thread is open"),
        }
    }
}

impl core::error::Error for Error {}

/// Who acts on this thread's sections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum Status {
    /// No scheduler: sections cost next to nothing and do nothing.
    None = 0,
    /// The sched_ext scheduler.
    Scx = 1,
    /// The affinity fallback: the thread moves itself.
    Affinity = 2,
}

/// An open wide section; it is closed when this value is dropped.
///
/// Sections nest. Close them in the reverse order of opening: what is closed is always the
/// thread's innermost section, whichever value is dropped.
#[must_use = "the section ends when this value is dropped"]
#[derive(Debug)]
pub struct WideSection {
    /// Sections belong to the thread that opened them: neither `Send` nor `Sync`.
    _thread: core::marker::PhantomData<*const ()>,
}

impl WideSection {
    /// Opens a section of licence level `level`, 1..=[`MAX_LEVEL`].
    ///
    /// ```compile_fail,E0277
    /// let section = turbolane_hint::WideSection::enter(1).unwrap();
    /// std::thread::spawn(move || drop(section)); // sections do not change threads
    /// ```
    #[inline]
    pub fn enter(level: u32) -> Result<Self, Error> {
        wide_begin(level)?;
        Ok(WideSection { _thread: core::marker::PhantomData })
    }
}

impl Drop for WideSection {
    #[inline]
    fn drop(&mut self) {
        // Fails only if a `wide_end` has closed this section already: nothing is left open.
        let _ = wide_end();
    }
}

/// The example of the README, as a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
