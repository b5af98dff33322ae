// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a dim-silicon machine has to raise its clock by (docs/silicon-registers.md), from user
//! space: the registers by `/dev/cpu/N/msr`, and the test module that uses them in the kernel
//! (kmod/test/turbolane_dim.c).

use std::fs::{self, File, OpenOptions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::guest::modprobe;
use crate::trap::load_beside;

/// What the machine says of itself.
pub const INFO: u32 = 0x4000_0080;
/// How long a level is held.
pub const DELAY: u32 = 0x4000_0081;
/// Gives a level up.
pub const FORCE: u32 = 0x4000_0082;
/// Level and phase.
pub const STATUS: u32 = 0x4000_0083;
/// Of DELAY: the time in the other bits counts.
pub const IN_FORCE: u64 = 1 << 63;

const MODULE: &str = "turbolane_dim";
/// `_IO('T', 0x71)` and so on.
const DIM_FORCE: libc::c_ulong = 0x5471;
const DIM_DELAY: libc::c_ulong = 0x5472;
const DIM_NOTICE: libc::c_ulong = 0x5473;

/// Of the register NOTICE: interrupt before code asks for more than the level in its low bits.
pub const WARNS: u64 = 1 << 8;
/// When code has asked for no more for the nanoseconds in its high half.
pub const ENDS: u64 = 1 << 9;

/// The registers of one CPU.
pub struct Registers(File);

impl Registers {
    /// Loads the kernel's driver for them if it is not there.
    pub fn of(cpu: usize) -> Result<Self> {
        modprobe("msr")?;
        let path = format!("/dev/cpu/{cpu}/msr");
        let file = OpenOptions::new().read(true).write(true).open(&path);
        Ok(Registers(file.with_context(|| path)?))
    }

    /// As RDMSR.
    pub fn read(&self, number: u32) -> Result<u64> {
        let mut bytes = [0; 8];
        let done = self.0.read_exact_at(&mut bytes, number.into());
        done.with_context(|| format!("register {number:#x} cannot be read"))?;
        Ok(u64::from_le_bytes(bytes))
    }

    /// As WRMSR; an error if that raises #GP.
    pub fn write(&self, number: u32, value: u64) -> Result<()> {
        let done = self.0.write_all_at(&value.to_le_bytes(), number.into());
        done.with_context(|| format!("register {number:#x} refuses {value:#x}"))
    }
}

/// The loaded module; removed when dropped.
pub struct Dim(File);

impl Dim {
    /// Loads it, to force changes at context switches too or not.
    pub fn load(switches: bool) -> Result<Self> {
        load_beside(MODULE, &format!("switches={}", u8::from(switches)))?;
        let device = format!("/dev/{MODULE}");
        Ok(Dim(File::open(&device).with_context(|| device)?))
    }

    /// What it has counted: "forced" at context switches; notices that were "warned" and "ended";
    /// and "warned_status".
    pub fn counted(&self, what: &str) -> Result<u64> {
        let path = format!("/sys/module/{MODULE}/parameters/{what}");
        Ok(fs::read_to_string(&path).with_context(|| path)?.trim().parse()?)
    }

    /// Arms this thread's CPU for notices.
    pub fn notice(&self, value: u64) -> Result<()> {
        self.order(DIM_NOTICE, value)
    }

    /// The level of this thread's core falls to this one now.
    pub fn force(&self, level: u8) -> Result<()> {
        self.order(DIM_FORCE, level.into())
    }

    /// This thread's core holds levels for so long; `None`: as the hardware does.
    pub fn delay(&self, hold_ns: Option<u32>) -> Result<()> {
        self.order(DIM_DELAY, hold_ns.map_or(libc::c_ulong::MAX, libc::c_ulong::from))
    }

    fn order(&self, what: libc::c_ulong, value: libc::c_ulong) -> Result<()> {
        // SAFETY: takes a number, no pointer.
        let done = unsafe { libc::ioctl(self.0.as_raw_fd(), what, value) };
        ensure!(done == 0, "ioctl {what:#x} {value}: {}", std::io::Error::last_os_error());
        Ok(())
    }
}

impl Drop for Dim {
    fn drop(&mut self) {
        // Its device is open until this struct is gone; forced, it goes with it. A failing test's
        // own error counts.
        self.0 = File::open("/dev/null").expect("every guest has it");
        let _ = Command::new("rmmod").arg(MODULE).status();
    }
}
