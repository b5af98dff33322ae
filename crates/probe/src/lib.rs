// SPDX-License-Identifier: MIT OR Apache-2.0
//! What this machine's CPU does when it executes wide code: how far its clock falls, how its start
//! is throttled, when the clock returns. Without any privilege.
//!
//! ```text
//!   Machine (trait) --> campaign --> recording --> analyse --> report::probe::ProbeReport
//!     Live: this CPU    order,       Header,       pure
//!     Simulated         when enough  Traces
//! ```
//!
//! [`Live`] needs nothing but time: the clock is metered by dependency chains against the time
//! stamp counter (`chain.rs`, `calibration.rs`). [`Simulated`] is `cpumodel`'s licence with noise,
//! whose truth is known. A recording analysed again gives the same report.

#[cfg(not(target_arch = "x86_64"))]
compile_error!("licence levels are x86-64's; so are the kernels of this crate");

mod analysis;
mod calibration;
mod campaign;
mod chain;
pub mod compare;
mod course;
mod kernel;
mod live;

mod payload;
mod repetition;
mod rig;
mod series;
mod simulated;
pub mod stats;
pub mod steps;
pub mod witness;

pub use analysis::analyse;
pub use calibration::{Calibration, meter_error};
pub use campaign::{End, Plan, Recording, run};
pub use kernel::{DENSITIES, KERNELS, Kernel, Need};
pub use live::Live;
pub use rig::{Machine, Order, Pace, ProbeError};
pub use simulated::{Noise, Simulated};
