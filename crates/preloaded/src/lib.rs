// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the libraries that are preloaded into programs of any kind have in common: the tables of
//! loaded objects (`tables`, [`wanted`], [`references`]), messages ([`say()`]) and numbers
//! ([`number`]). No allocation, no formatting, no path that panics, and no other crate of the
//! project: a preloaded library exports what it contains.

#![no_std]

// For the panic handler of the shared objects, and for tests.
extern crate std;

mod number;
pub mod references;
mod say;
mod tables;
pub mod wanted;

pub use number::number;
pub use say::say;
