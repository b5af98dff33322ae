// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a guest runs in.

use std::path::PathBuf;
use std::str::FromStr;

use anyhow::{Result, bail};

/// An emulator of whole machines.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub enum Emulator {
    /// QEMU's TCG: fast, has AVX2 but no AVX-512.
    #[default]
    Qemu,
    /// Bochs: slow, has AVX-512 and XSAVES.
    Bochs,
}

impl FromStr for Emulator {
    type Err = anyhow::Error;

    fn from_str(name: &str) -> Result<Self> {
        match name {
            "qemu" => Ok(Self::Qemu),
            "bochs" => Ok(Self::Bochs),
            _ => bail!("no emulator is called {name}; there are qemu and bochs"),
        }
    }
}

/// A machine with dim silicon.
#[derive(Debug, Clone)]
pub struct Silicon {
    /// `libsilicon.a`, as cargo built it.
    pub library: PathBuf,
    /// `CPU[,KEY=VALUE...]`, as `crates/silicon` has checked it.
    pub settings: String,
    /// Which of Bochs' processors its CPUs are.
    pub processor: String,
    /// Frequency of the time stamp counter of that machine.
    pub tsc_khz: u32,
}
