// SPDX-License-Identifier: MIT OR Apache-2.0
//! Bochs: the emulator that has AVX-512, AMX and compacted XSAVES, which QEMU's
//! does not. It is slower (a boot takes 15 to 30 s) and its devices are those
//! of a PC of 1998, so QEMU stays the default.

mod build;
mod machine;
mod patches;

pub(crate) use build::{Bochs, prepare};
pub(crate) use machine::start;
