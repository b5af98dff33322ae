// SPDX-License-Identifier: MIT OR Apache-2.0
//! P-states by the CPU's own registers, through the kernel's `msr` device or LLNL's msr-safe.
//!
//! For machines without a cpufreq driver, and for what no driver offers: boosted P-states of
//! single cores under the program's control, as TURBO had them (slide 10). One register per
//! logical CPU, so a unit is one CPU; where siblings or the cores of a module share a clock, the
//! hardware takes the fastest of their requests.
//!
//! msr-safe is preferred where it is there: it works without root, and its administrator has listed
//! the registers that may be written. Under a kernel lockdown, or with `msr.allow_writes=off`,
//! writes are refused and the refusal is passed on.
//!
//! Vendor, family and model come from /proc/cpuinfo, so that a folder can be a test machine.

mod amd;
mod intel;

use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;

use hw::Source;

use crate::backend::{Found, Machine};
use crate::setting::{Form, SettingId, Spec, Specs, msr_offset};
use crate::turbo::TurboStep;

/// One CPU's register device.
struct Device {
    cpu: u32,
    /// Absolute path below the root.
    path: String,
}

/// Who made the CPU and which it is.
struct Cpu {
    vendor: String,
    family: u32,
    model: u32,
}

/// The CPU's registers, where each online CPU has them.
struct Registers {
    cpu: Cpu,
    devices: Vec<Device>,
}

/// Looks for registers that set P-states; else why not.
pub(crate) fn find(machine: &Machine, specs: &mut Specs) -> Result<Found, String> {
    let cpu = cpu(machine).ok_or("/proc/cpuinfo names no vendor, family and model")?;
    let registers = Registers { cpu, devices: devices(machine)? };
    let found = match registers.cpu.vendor.as_str() {
        "GenuineIntel" => intel::find(machine, &registers, specs)?,
        "AuthenticAMD" | "HygonGenuine" => amd::find(machine, &registers, specs)?,
        other => return Err(format!("the registers of {other} CPUs are not known")),
    };
    let driver = machine.text("/sys/devices/system/cpu/cpu0/cpufreq/scaling_driver");
    let note = driver.map_or(String::new(), |driver| {
        format!(" (beside the cpufreq driver {driver}, which writes the same registers)")
    });
    Ok(Found { what: format!("{}, {} CPUs{note}", found.what, registers.devices.len()), ..found })
}

/// How many cores may be how fast; empty if the registers cannot be read or do not say.
pub(crate) fn turbo_steps(machine: &Machine) -> Vec<TurboStep> {
    let is_intel = cpu(machine).is_some_and(|cpu| cpu.vendor == "GenuineIntel");
    let first = || device(machine, online(machine).ok()?.lowest()?).ok();
    let first = if is_intel { first() } else { None };
    first.map_or(Vec::new(), |device| intel::turbo_steps(machine, &device))
}

fn cpu(machine: &Machine) -> Option<Cpu> {
    let text = machine.text("/proc/cpuinfo")?;
    let field = |name: &str| {
        let mut lines = text.lines().filter_map(|line| line.split_once(':'));
        lines.find(|(key, _)| key.trim() == name).map(|(_, value)| value.trim().to_string())
    };
    let number = |name: &str| field(name)?.parse().ok();
    Some(Cpu {
        vendor: field("vendor_id")?,
        family: number("cpu family")?,
        model: number("model")?,
    })
}

/// The devices of the online CPUs.
fn devices(machine: &Machine) -> Result<Vec<Device>, String> {
    online(machine)?.iter().map(|cpu| device(machine, cpu)).collect()
}

fn online(machine: &Machine) -> Result<cpumodel::CpuSet, String> {
    let path = "/sys/devices/system/cpu/online";
    let online = machine.text(path).unwrap_or_default();
    online.parse().map_err(|error| format!("{path}: {error}"))
}

fn device(machine: &Machine, cpu: usize) -> Result<Device, String> {
    let of = |name: &str| format!("/dev/cpu/{cpu}/{name}");
    let safe = of("msr_safe");
    let path = if machine.source.exists(&safe) { safe } else { of("msr") };
    if !machine.source.exists(&path) {
        return Err(format!("{path} is missing: modprobe msr"));
    }
    machine.writable(&path)?;
    Ok(Device { cpu: cpu as u32, path })
}

impl Device {
    /// A register's content; `None` if the CPU has none of that number, or it may not be read.
    fn read(&self, machine: &Machine, number: u32) -> Option<u64> {
        let file = File::open(machine.place(&self.path)).ok()?;
        let mut bytes = [0; 8];
        file.read_exact_at(&mut bytes, msr_offset(file.as_raw_fd(), number)).ok()?;
        Some(u64::from_le_bytes(bytes))
    }

    /// The setting that is these bits of a register.
    fn setting(&self, specs: &mut Specs, number: u32, mask: u64) -> SettingId {
        self.field(specs, number, mask, false)
    }

    /// The setting that is a register whose other bits are reserved.
    fn whole(&self, specs: &mut Specs, number: u32, mask: u64) -> SettingId {
        self.field(specs, number, mask, true)
    }

    fn field(&self, specs: &mut Specs, number: u32, mask: u64, alone: bool) -> SettingId {
        let (path, form) = (self.path[1..].to_string(), Form::Msr(number));
        specs.add(Spec { path, form, mask, others_are_reserved: alone, yields: false })
    }
}

/// Bits `high` to `low` of a register.
fn bits(register: u64, high: u32, low: u32) -> u64 {
    register >> low & ((1 << (high - low + 1)) - 1)
}
