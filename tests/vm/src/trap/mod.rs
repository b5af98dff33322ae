// SPDX-License-Identifier: MIT OR Apache-2.0
//! The trap module in tests: loaded, armed, and removed again when a test ends, however it ends.
//!
//! QEMU has no AVX-512. AVX replaces it: the same bits of XCR0 one row lower, withheld by
//! `components=avx`. What differs is only that live AVX can be put aside and live ZMM cannot.

pub mod contexts;
pub mod hash;
pub mod kvm;
pub mod sections;
pub mod sites;
pub mod stress;
pub mod tiles;
pub mod vectors;

use std::fs;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use cpumodel::CpuSet;
use hw::trap::{self, CpuCounters, Device};

use crate::guest::{nr_cpus, wait_for};

/// What this machine's CPU can have withheld: `avx512` if it has it, else `avx`.
pub fn components() -> &'static str {
    if std::is_x86_feature_detected!("avx512f") { "avx512" } else { "avx" }
}

/// A loaded module; unloaded when dropped.
pub struct Trap {
    device: Option<Device>,
}

impl Trap {
    /// Loads the module and arms these CPUs.
    pub fn on(cpus: &[usize], parameters: &str) -> Result<Self> {
        let trap = Self::loaded(parameters)?;
        trap.arm(cpus)?;
        Ok(trap)
    }

    /// Loads the module and opens its device.
    pub fn loaded(parameters: &str) -> Result<Self> {
        Self::withholding(components(), parameters)
    }

    /// The same withholding these components. From every process, whether its code was read or not,
    /// unless the parameters say otherwise: the tests' programs run without a session that reads
    /// them.
    pub fn withholding(components: &str, parameters: &str) -> Result<Self> {
        load(&format!("components={components} withhold_unread=1 {parameters}"))?;
        Ok(Trap { device: Some(Device::open()?) })
    }

    /// The open device.
    pub fn device(&self) -> &Device {
        self.device.as_ref().expect("open until dropped")
    }

    /// Arms these CPUs and no others.
    pub fn arm(&self, cpus: &[usize]) -> Result<()> {
        let set: CpuSet = cpus.iter().copied().collect();
        self.device().arm(&set).with_context(|| format!("CPUs {cpus:?} cannot be armed"))
    }

    /// The sum of a counter over all CPUs.
    pub fn sum(&self, counter: impl Fn(&CpuCounters) -> u64) -> Result<u64> {
        let mut sum = 0;
        for cpu in 0..u32::try_from(possible_cpus()?)? {
            sum += counter(&self.device().cpu_counters(cpu)?);
        }
        Ok(sum)
    }

    /// Unloads the module, after a look at what must never have happened.
    pub fn off(mut self) -> Result<()> {
        let violations = self.sum(|c| c.violations)?;
        self.device = None;
        unload()?;
        ensure!(violations == 0, "the invariant was violated {violations} times");
        every_cpu_is_full()
    }
}

impl Drop for Trap {
    fn drop(&mut self) {
        self.device = None;
        if trap::is_loaded() {
            // A failing test's own error counts.
            let _ = unload();
        }
    }
}

/// Loads the module as it is installed.
pub fn load(parameters: &str) -> Result<()> {
    let file = trap::find().context("the guest has no turbolane_trap.ko")?;
    trap::load(&file, parameters).with_context(|| format!("the module does not load: {parameters}"))
}

/// Removes the module. Closing its device may lag a little behind the process that had it open.
pub fn unload() -> Result<()> {
    wait_for("the module cannot be removed", Duration::from_secs(20), || {
        trap::unload().is_ok() || !trap::is_loaded()
    })
}

/// Loads a test module that lies beside the real one.
pub fn load_beside(name: &str, parameters: &str) -> Result<()> {
    let file = trap::find().context("the guest has no turbolane_trap.ko")?;
    let file = file.with_file_name(format!("{name}.ko"));
    trap::load(&file, parameters).with_context(|| format!("{name} does not load: {parameters}"))
}

/// A setting of the loaded module.
pub fn set(name: &str, value: &str) -> Result<()> {
    trap::set_setting(name, value).with_context(|| format!("{name}={value} is refused"))
}

fn possible_cpus() -> Result<usize> {
    let text = fs::read_to_string("/sys/devices/system/cpu/possible")?;
    let last = text.trim().rsplit(['-', ',']).next().unwrap_or_default();
    Ok(last.parse::<usize>().context("no list of possible CPUs")? + 1)
}

/// XCR0 as user code sees it on the CPU it runs on.
pub fn xcr0() -> u64 {
    let (low, high): (u32, u32);
    // SAFETY: the guests' CPUs have XSAVE, and reading XCR0 changes nothing.
    unsafe {
        std::arch::asm!("xgetbv", in("ecx") 0, out("eax") low, out("edx") high,
            options(nomem, nostack));
    }
    u64::from(high) << 32 | u64::from(low)
}

/// XCR0 is the same, and complete, on every CPU.
fn every_cpu_is_full() -> Result<()> {
    let mut seen = Vec::new();
    for cpu in 0..nr_cpus() {
        crate::guest::set_affinity(0, &[cpu])?;
        seen.push(xcr0());
    }
    crate::guest::set_affinity(0, &(0..nr_cpus()).collect::<Vec<_>>())?;
    if seen.iter().any(|&value| value != seen[0] || value & 4 == 0) {
        bail!("after the module is gone, XCR0 is {seen:x?}");
    }
    Ok(())
}
