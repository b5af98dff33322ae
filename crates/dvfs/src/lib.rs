// SPDX-License-Identifier: MIT OR Apache-2.0
//! When to raise a core's clock again: policies, break-even times, and replays of what one core
//! does.
//!
//! Intel CPUs raise the clock a fixed time after the last wide instruction. DIM shows that this is
//! the timeout of dynamic power management, set without regard to what a change costs and brings,
//! and asks (9.1) what better policies would win. This crate answers for a given program on a given
//! machine:
//!
//! ```text
//!   cpumodel::Platform --active cores--> Core --+-- break_even: steps and their break-even times
//!                                              |
//!   Timeline (recorded, or out of a Model) ----+-- replay under a Policy --> Outcome
//! ```
//!
//! Pure, like `cpumodel`: no file, no clock, no thread; the same input and seed give the same
//! bytes.

#![forbid(unsafe_code)]

mod break_even;
mod core;
mod model;
mod oracle;
pub mod policy;
mod replay;
mod rng;
mod spec;
mod timeline;

pub use crate::core::Core;
pub use break_even::{break_even_ns, steps};
pub use model::{MODEL_FILES, Model};
pub use replay::{CpuOutcome, Outcome, Quiet, Watch, replay};
pub use spec::{OracleNeedsOneCpu, Spec};
pub use timeline::{Moment, Period, Timeline, Work, sensitive_frac_of_ipc};
