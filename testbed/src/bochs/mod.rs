// SPDX-License-Identifier: MIT OR Apache-2.0
//! Bochs: the emulator that has AVX-512, AMX and compacted XSAVES, which QEMU's
//! does not. It is slower (a boot takes 10 to 45 s) and its devices are those
//! of a PC of 1998, so QEMU stays the default.

mod build;
mod diff;
mod machine;
mod patches;
mod pvh;
mod silicon;

use anyhow::Result;

pub(crate) use build::Bochs;
pub(crate) use machine::start;

use crate::guest::Guest;

/// The emulator that a guest runs in, built if it is missing.
pub(crate) fn prepare(guest: &Guest) -> Result<Bochs> {
    match &guest.silicon {
        Some(silicon) => silicon::prepare(&guest.cache, silicon),
        None => build::prepare(&guest.cache),
    }
}
