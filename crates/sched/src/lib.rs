// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs the lane: loads the scheduler, serves hints, marks and settings, and gives the machine
//! back.
//!
//! [`lane::Lane`] is what a command starts and stops. It is either [`scx_lane::ScxLane`]
//! (the BPF scheduler, [`scx`]) or [`affinity`] (masks of hinted threads). Both serve hints
//! ([`hints`]) and requests ([`control`]).

pub mod affinity;
pub mod autosize;
mod bound;
mod bpf;
mod clock;
mod clocks;
pub mod config;
pub mod control;
pub mod error;
pub mod goal;
pub mod groups;
pub mod hints;
mod hurry;
pub mod instance;
pub mod lane;
pub mod layout;
mod levels;
mod lock;
pub mod marks;
pub mod obstacles;
pub mod parse;
pub mod questions;
pub mod record;
pub mod scope;
pub mod scores;
pub mod scx;
mod scx_hints;
pub mod scx_lane;
pub mod settings;
pub mod settings_file;
pub mod stats;
pub mod take_over;
mod tasks;
pub mod trap;
mod unix_socket;
