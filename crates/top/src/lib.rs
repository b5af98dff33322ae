// SPDX-License-Identifier: MIT OR Apache-2.0
//! The live view: what CPUs and tasks do, from counters to the screen.
//!
//! [`sample`] reads what there is at a moment, [`growth`] makes an interval of two samples, a
//! [`report::top::Top`]; [`order`] chooses and sorts. From there it goes to a program or a file
//! (`report`), or to the screen: [`screen`] is its state and keys, [`draw`] its picture, [`live`]
//! the loop around both, [`terminal`] what it must give back. All but the last two are tested
//! without a terminal and without a lane.

#![forbid(unsafe_code)]

pub mod draw;
#[cfg(test)]
mod fixture;
pub mod growth;
pub mod live;
pub mod order;
pub mod sample;
pub mod screen;
pub mod terminal;
