// SPDX-License-Identifier: MIT OR Apache-2.0
//! The simulator: machines with licence levels, the real policy, workloads as programs.
//!
//! No hardware, no clock, no threads inside a run: a seed, a machine, a workload and a scheduler
//! give the same bytes everywhere.
//!
//! ```text
//!   cpumodel::CpuModel --fill in--> cpumodel::Platform --+
//!   program::Workload (from a scenario) ---------------+--> engine::Engine --> Outcome
//!   sched::{lane, fair, ...} (one trait) --------------+          |
//!                                                                 +--> events::Sink: checkers,
//!                                                                      records for charts
//! ```

#![forbid(unsafe_code)]

pub mod best;
pub mod bits;
pub mod check;
pub mod compare;
pub mod crowd;
pub mod engine;
pub mod events;
pub mod fuzz;
mod heap;
pub mod histogram;
pub mod overhead;
pub mod policy_spec;
pub mod program;
pub mod record;
pub mod recorded;
pub mod rng;
pub mod scenario;
pub mod sched;
pub mod score;
pub mod stress;
pub mod sys;
pub mod timers;
