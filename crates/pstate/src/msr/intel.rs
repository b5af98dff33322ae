// SPDX-License-Identifier: MIT OR Apache-2.0
//! Intel: IA32_PERF_CTL, or with hardware P-states (HWP) IA32_HWP_REQUEST.
//!
//! ```text
//!   IA32_PERF_CTL 199h     63..33  32           31..16  15..8  7..0
//!                          -       turbo off    -       ratio  -
//!   IA32_HWP_REQUEST 774h  63..32  31..24  23..16   15..8    7..0
//!                          -       EPP     desired  maximum  minimum
//!   IA32_HWP_CAPABILITIES 771h     31..24  23..16     15..8       7..0
//!                                  lowest  efficient  guaranteed  highest
//! ```
//!
//! With HWP on (IA32_PM_ENABLE 770h, bit 0, which can be set only, never cleared) PERF_CTL has no
//! effect. The hardware chooses between minimum and maximum: for a fixed P-state all three
//! performance fields get the same level, EPP stays. A level is a multiple of the bus clock on all
//! but hybrid parts, whose two kinds of cores scale differently: those are left to cpufreq.
//!
//! Source: Intel SDM volume 3B, 15.1.1, 15.4 (HWP) and volume 4 (tables of registers). Ratios of
//! MSR_PLATFORM_INFO (CEh: 15..8 base, 47..40 slowest) and MSR_TURBO_RATIO_LIMIT (1ADh: 7..0 of one
//! active core).
//!
//! Limits: turbo needs IA32_MISC_ENABLE bit 38 clear. What is set is a request: the hardware still
//! clamps by power, heat and licence.

use hw::Source;

use super::{Device, Registers, bits};
use crate::backend::{Backend, Found, Machine, Unit};
use crate::error::Error;
use crate::journal::Journal;
use crate::setting::{SettingId, Specs};
use crate::speeds::Speeds;
use crate::turbo::TurboStep;
use crate::value::Value;

const PLATFORM_INFO: u32 = 0xce;
const PERF_CTL: u32 = 0x199;
const MISC_ENABLE: u32 = 0x1a0;
const TURBO_RATIO_LIMIT: u32 = 0x1ad;
const TURBO_RATIO_LIMIT_CORES: u32 = 0x1ae;
const PM_ENABLE: u32 = 0x770;
const HWP_CAPABILITIES: u32 = 0x771;
const HWP_REQUEST: u32 = 0x774;

const HWP_ENABLED: u64 = 1;
/// Minimum, maximum, desired.
const HWP_LEVELS: u64 = 0xff_ffff;
/// Ratio, and the bit that takes turbo away.
const RATIO: u64 = 1 << 32 | 0xff00;
const TURBO_DISABLED: u64 = 1 << 38;

/// Bus clock from Sandy Bridge on.
const BUS_KHZ: u32 = 100_000;
/// Bus clock of Nehalem and Westmere, and their models (turbostat.c, `bclk`).
const OLD_BUS_KHZ: u32 = 133_333;
const OLD_BUS_MODELS: [u32; 7] = [26, 30, 31, 37, 44, 46, 47];

struct Intel {
    /// The P-state of each unit.
    requests: Vec<SettingId>,
    /// Turbo of each unit.
    switches: Vec<SettingId>,
    is_hwp: bool,
    bus_khz: u32,
}

pub(super) fn find(machine: &Machine, of: &Registers, specs: &mut Specs) -> Result<Found, String> {
    let Registers { cpu, devices } = of;
    if cpu.family != 6 {
        return Err(format!("family {} of Intel has other registers", cpu.family));
    }
    if machine.source.exists("/sys/devices/cpu_core") {
        return Err("a hybrid CPU's performance levels are no multiples of its bus clock".into());
    }
    let bus_khz = if OLD_BUS_MODELS.contains(&cpu.model) { OLD_BUS_KHZ } else { BUS_KHZ };
    let first = devices.first().ok_or("no CPU is online")?;
    let pm_enable = first.read(machine, PM_ENABLE).unwrap_or(0);
    let is_hwp = pm_enable & HWP_ENABLED != 0;
    let (mut requests, mut switches, mut units) = (Vec::new(), Vec::new(), Vec::new());
    for device in devices {
        let speeds = speeds(machine, device, is_hwp, bus_khz)
            .ok_or_else(|| format!("{} reports no ratios (a virtual machine?)", device.path))?;
        let (register, mask) = if is_hwp { (HWP_REQUEST, HWP_LEVELS) } else { (PERF_CTL, RATIO) };
        requests.push(device.setting(specs, register, mask));
        switches.push(device.setting(specs, MISC_ENABLE, TURBO_DISABLED));
        units.push(Unit { cpus: vec![device.cpu], speeds });
    }
    let what = if is_hwp { "IA32_HWP_REQUEST" } else { "IA32_PERF_CTL" };
    let backend = Box::new(Intel { requests, switches, is_hwp, bus_khz });
    Ok(Found { backend, units, what: what.to_string() })
}

fn speeds(machine: &Machine, device: &Device, is_hwp: bool, bus_khz: u32) -> Option<Speeds> {
    let info = device.read(machine, PLATFORM_INFO)?;
    let (base, slowest) = (bits(info, 15, 8), bits(info, 47, 40));
    let (slowest, base, turbo) = if is_hwp {
        let levels = device.read(machine, HWP_CAPABILITIES)?;
        let lowest = bits(levels, 31, 24).max(slowest);
        (lowest, bits(levels, 15, 8), bits(levels, 7, 0))
    } else {
        let turbo = device.read(machine, TURBO_RATIO_LIMIT).map_or(base, |all| bits(all, 7, 0));
        (slowest, base, turbo.max(base))
    };
    if slowest == 0 || base == 0 {
        return None;
    }
    let table = (slowest as u32..=turbo as u32).map(|ratio| ratio * bus_khz).collect();
    Speeds::of_table(table, Some(base as u32 * bus_khz))
}

/// The turbo table. From Skylake-SP on the second register holds numbers of cores, rising; before,
/// there is none, or it holds more ratios, which do not rise: then byte i is for i + 1 cores.
pub(super) fn turbo_steps(machine: &Machine, device: &Device) -> Vec<TurboStep> {
    let Some(ratios) = device.read(machine, TURBO_RATIO_LIMIT) else { return Vec::new() };
    let counts = device.read(machine, TURBO_RATIO_LIMIT_CORES).unwrap_or(0).to_le_bytes();
    let are_counts = counts[0] > 0 && counts.windows(2).all(|pair| pair[0] < pair[1]);
    let steps = ratios.to_le_bytes().into_iter().zip(counts).enumerate();
    steps
        .filter(|(_, (ratio, _))| *ratio > 0)
        .map(|(index, (ratio, count))| TurboStep {
            cores: if are_counts { count.into() } else { index as u32 + 1 },
            khz: u32::from(ratio) * BUS_KHZ,
        })
        .collect()
}

impl Backend for Intel {
    fn prepare(&self, _journal: &Journal, _unit: usize) -> Result<(), Error> {
        Ok(())
    }

    fn set(&self, journal: &Journal, unit: usize, khz: u32, surely: bool) -> Result<(), Error> {
        let ratio = u64::from(khz / self.bus_khz);
        let register = if self.is_hwp { ratio << 16 | ratio << 8 | ratio } else { ratio << 8 };
        let (id, value) = (self.requests[unit], Value::of_register(register));
        if surely { journal.change_surely(id, value) } else { journal.change(id, value) }
    }

    fn rest(&self, journal: &Journal, unit: usize) -> Result<(), Error> {
        let id = self.requests[unit];
        journal.original(id).map_or(Ok(()), |original| journal.change(id, original))
    }

    fn release(&self, journal: &Journal, unit: usize) -> Result<(), Error> {
        journal.put_back(self.requests[unit])
    }

    fn turbo(&self, journal: &Journal, on: Option<bool>) -> Result<bool, Error> {
        let disabled = |on: bool| Value::of_register(if on { 0 } else { TURBO_DISABLED });
        if let Some(on) = on {
            self.switches.iter().try_for_each(|id| journal.change_surely(*id, disabled(on)))?;
        }
        Ok(journal.read(self.switches[0])?.register() & TURBO_DISABLED == 0)
    }
}
