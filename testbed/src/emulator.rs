// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a guest runs in.

use std::path::PathBuf;
use std::str::FromStr;

use anyhow::{Result, bail};

/// The kernel command line of every guest.
///
/// | parameter | why |
/// |---|---|
/// | `console=ttyS0 quiet` | errors and oopses reach the host at once; the rest comes with `dmesg` at the end |
/// | `mitigations=off` | side-channel mitigations cost instructions and guard nothing here |
/// | `nokaslr` | the same addresses in every boot: equal instruction counts, readable traces |
/// | `cryptomgr.notests=1` | the crypto self-tests would take a good part of the boot |
/// | `audit=0` | no records for nobody |
/// | `initcall_blacklist` | names of enumerators in what tracefs prints, and of functions that the linker dropped, are looked for by nobody: 3 s of a boot in Bochs |
pub(crate) const KERNEL_ARGS: &str = "console=ttyS0 quiet mitigations=off nokaslr \
    cryptomgr.notests=1 audit=0 \
    initcall_blacklist=trace_eval_init,ftrace_check_for_weak_functions";

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
