// SPDX-License-Identifier: MIT OR Apache-2.0
//! Turbolane's application library: a thread says when it runs wide code.
//!
//! Problem: Intel CPUs lower the frequency of a core that runs AVX-512, heavy AVX2 or AMX code,
//! and keep it low for a while, so the scalar code that follows, or that shares the core, pays
//! (SFMA 2, DIM 2). A scheduler can keep the two kinds of code on separate cores, if it knows
//! which is which. The application knows it best.
//!
//! Idea: a section of wide code is bracketed by [`wide_begin`] and [`wide_end`] (SFMA 3.3 has the
//! same pair as system calls). When the thread already stands on a CPU that may run the section,
//! that costs a few stores to a page shared with the scheduler. When not, the thread gives the CPU
//! up once, and continues on a wide one. Without a scheduler nothing happens at all.
//!
//! ```
//! use turbolane::WideSection;
//! # fn multiply_matrices() {}
//! let section = WideSection::enter(2)?; // heavy 512-bit code follows
//! multiply_matrices();
//! drop(section);
//! # Ok::<(), turbolane::Error>(())
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
//! A section that ends by [`scalar_for`] says how long what follows stays scalar: if that is shorter than the way to
//! a scalar CPU and back, the thread does not go there.
//!
//! # Signals, forks, threads
//! Sections belong to a thread. A signal handler may open and close sections of its own; a
//! thread's very first section should not be in one, since it reads the environment. `errno` is
//! left as it was. A forked child gets its own slot at its next section; sections open at the fork
//! are open in the child. Children of `vfork` or of a raw `clone` system call must not open
//! sections before they `exec`.
//!
//! # Delegation
//! With the affinity fallback, [`delegate`] hands a section as a closure to a helper thread on a wide CPU, which
//! costs less than moving the thread there and back; short sections, and all sections under other
//! schedulers, it runs in place.
//!
//! # Frequency, threads, measurement
//! Apart from hints, a program may steer its own frequency: [`Session`] is TURBO's library, with
//! P-states (crate `pstate`), a registry of threads ([`threads`]) and statistics of regions
//! ([`monitor`]). It needs root to change a P-state, unless the lane's scheduler takes the threads' wishes, and nothing to
//! measure.
//!
//! # Parts
//! [`page`] is the shared memory, [`protocol`] how a thread gets its slot in it; both are shared
//! with the daemon. The rest is private: `nesting` (open sections), `thread` (the fast path), `thread_local` (its memory),
//! `scheduler` (finding one), `connect` (the socket), `environment` (its variables), `mapping` (the page in this process), `cpu`
//! (where am I), `affinity` (the fallback), `delegate` (helpers for it), `targets` (speed by the scheduler), `wishes` (of
//! boosted locks), `capi`, `capi_session`, `capi_frequency`,
//! `capi_threads` (the C ABI).

mod affinity;
mod capi;
mod capi_frequency;
mod capi_session;
mod capi_threads;
mod connect;
mod cpu;
mod delegate;
mod environment;
mod errno;
mod loss;
mod mapping;
pub mod monitor;
mod nesting;
pub mod page;
pub mod protocol;
mod scheduler;
mod session;
mod targets;
mod thread;
mod thread_local;
pub mod threads;
mod wishes;

use std::fmt;

pub use capi::{
    TL_RAN_DELEGATED, TL_RAN_HERE, tl_delegate, tl_delegate_break_even_ns, tl_scalar_for,
    tl_wide_begin, tl_wide_end, tl_wide_status,
};
pub use capi_frequency::*;
pub use capi_session::*;
pub use capi_threads::*;
pub use delegate::{Ran, delegate, delegate_break_even_ns};
pub use monitor::{Monitor, Region, RegionStats};
pub use nesting::{MAX_DEPTH, MAX_LEVEL};
pub use session::Session;
pub use thread::{scalar_for, wide_begin, wide_end, wide_status};
pub use threads::{ThreadError, ThreadInfo, Wish};

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

impl std::error::Error for Error {}

/// Who acts on this thread's sections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum Status {
    /// Nobody: sections cost next to nothing and do nothing.
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
    _thread: std::marker::PhantomData<*const ()>,
}

impl WideSection {
    /// Opens a section of licence level `level`, 1..=[`MAX_LEVEL`].
    ///
    /// ```compile_fail,E0277
    /// let section = turbolane::WideSection::enter(1).unwrap();
    /// std::thread::spawn(move || drop(section)); // sections do not change threads
    /// ```
    #[inline]
    pub fn enter(level: u32) -> Result<Self, Error> {
        wide_begin(level)?;
        Ok(WideSection { _thread: std::marker::PhantomData })
    }
}

impl Drop for WideSection {
    #[inline]
    fn drop(&mut self) {
        // Fails only if somebody closed this section behind our back by `wide_end`; there is
        // nobody to tell, and nothing is left open.
        let _ = wide_end();
    }
}
