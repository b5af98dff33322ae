// SPDX-License-Identifier: MIT OR Apache-2.0
//! Do the model and the simulator behave as the papers measured?
//!
//! [`published`] are the figures of the papers' evaluations (`data/papers`), [`reproduce`]
//! simulates their experiments, and [`comparison`] computes each row from what was simulated and
//! puts it next to the published one. The program `papers` prints that: `./x papers [PAPER...]`.
//!
//! It is not part of the product: Turbolane runs without it.

#![forbid(unsafe_code)]

pub mod comparison;
mod experiments;
pub mod published;

pub use experiments::{Effort, reproduce};
