// SPDX-License-Identifier: MIT OR Apache-2.0
//! Turbolane's application library: hints, and what a program can do besides.
//!
//! A thread says when it runs wide code ([`wide_begin`], [`wide_end`], [`WideSection`]), so that
//! the scheduler can keep it from lowering the clock of other code. That is the crate
//! `turbolane-hint`, whose documentation has the costs and the rules for signals and forks; it is
//! also built as a library of its own, for what needs nothing else.
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
//! # Delegation
//! With the affinity fallback, [`delegate`] hands a section as a closure to a helper thread on a
//! wide CPU, which costs less than moving the thread there and back; short sections, and all
//! sections under other schedulers, it runs in place.
//!
//! # Frequency, threads, measurement
//! Apart from hints, a program may steer its own frequency: [`Session`] is TURBO's library, with
//! P-states (crate `pstate`), a registry of threads ([`threads`]) and statistics of regions
//! ([`monitor`]). It needs root to change a P-state, unless the lane's scheduler takes the threads'
//! requests, and nothing to measure.
//!
//! # Parts
//! `delegate` (helpers on wide CPUs), `targets` (speed by the scheduler), `request`, `boosted`
//! (what locks request), `session`, [`threads`], [`monitor`]; `capi`, `capi_session`,
//! `capi_frequency`, `capi_threads` (the C ABI).

mod boosted;
mod capi;
mod capi_frequency;
mod capi_session;
mod capi_threads;
mod delegate;
pub mod monitor;
mod request;
mod session;
mod targets;
pub mod threads;

pub use capi::{TL_RAN_DELEGATED, TL_RAN_HERE, tl_delegate, tl_delegate_break_even_ns};
pub use capi_frequency::*;
pub use capi_session::*;
pub use capi_threads::*;
pub use delegate::{Ran, delegate, delegate_break_even_ns};
pub use monitor::{Monitor, Region, RegionStats};
pub use session::Session;
pub use threads::{Request, ThreadError, ThreadInfo};
pub use turbolane_hint::{
    Error, MAX_DEPTH, MAX_LEVEL, Status, WideSection, page, protocol, scalar_for, tl_scalar_for,
    tl_wide_begin, tl_wide_end, tl_wide_status, wide_begin, wide_end, wide_status,
};

/// The example of the README, as a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
