// SPDX-License-Identifier: MIT OR Apache-2.0
//! The P-state of each core under a program's control, and everything as it was afterwards.
//!
//! Problem: frequency scaling was made to save energy, and reacts to load after milliseconds. A
//! program knows earlier and better which of its cores should be fast now: the one in the critical
//! section, not those that wait for it (TURBO). But a program that changes settings of the
//! machine must restore all of them, however it ends.
//!
//! Idea: [`Control`] chooses a method to set P-states ([`Way`]), and reports which and why. Each
//! CPU has a request (boost, slow, a frequency, none); CPUs that are set together get the fastest
//! request among them, as hardware does. What is changed is noted before it is changed, in memory
//! shared with a watchdog process that restores it if the program cannot.
//!
//! ```no_run
//! let control = pstate::Control::open(&pstate::Options::default())?;
//! println!("{}", control.choice().why);
//! control.boost(3)?; // CPU 3 to its fastest P-state
//! control.slow(4)?;
//! control.restore(4)?;
//! drop(control); // all as before
//! # Ok::<(), pstate::Error>(())
//! ```
//!
//! Everything works below a root folder, so that a tree of files is a machine to test on
//! (`fake.rs`, feature `fake`).
//!
//! # Parts
//! `control` (opening and ending), `requests` (one lock per unit), `backend` (what a method must
//! do), `choice` (of one), `cpufreq`, `msr` (the methods), `scheduler` (the method for threads),
//! `simulated` (a model instead of the machine), `speeds` (what can be set), `domains` (CPUs that
//! share a clock), `turbo` (for how many cores), `setting`, `journal`, `watchdog`, `notary`
//! (restoring), `raw`, `value` (files without allocation), `lock_requests` (of boosted locks).

mod backend;
mod choice;
mod control;
mod cpufreq;
mod domains;
mod error;
#[cfg(feature = "fake")]
pub mod fake;
mod journal;
mod lock_requests;
mod msr;
mod notary;
mod owner;
mod raw;
mod requests;
mod scheduler;
mod setting;
mod simulated;
mod speeds;
mod turbo;
mod value;
mod watchdog;

pub use backend::{TakesTargets, Way};
pub use choice::Choice;
pub use control::{Control, Options, WeakControl};
pub use domains::{Clocks, Domain, Scope};
pub use error::{Error, Place};
pub use journal::Restored;
pub use simulated::{ManualTime, Simulated, Time};
pub use speeds::Speeds;
pub use turbo::TurboStep;
