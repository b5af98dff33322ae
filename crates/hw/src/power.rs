// SPDX-License-Identifier: MIT OR Apache-2.0
//! What sets the frequency, and what of it can be seen or changed from here.

use crate::Source;

/// Frequency control and its visibility.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Power {
    /// The cpufreq driver (`intel_pstate`, `acpi-cpufreq`, ...); `None`: the kernel controls no
    /// frequency, as in most virtual machines.
    pub driver: Option<String>,
    /// The governor of the first online CPU.
    pub governor: Option<String>,
    /// Lowest settable frequency of the first online CPU, kHz.
    pub min_khz: Option<u32>,
    /// Highest settable frequency of the first online CPU, turbo included, kHz.
    pub max_khz: Option<u32>,
    /// Base frequency of the first online CPU, kHz.
    pub base_khz: Option<u32>,
    /// intel_pstate's `active`, `passive` or `off`.
    pub intel_pstate: Option<String>,
    /// Turbo may be used; `None` if no driver says.
    pub turbo: Option<bool>,
    /// The MSR device is there (`/dev/cpu/N/msr`).
    pub msr_device: bool,
}

/// Reads frequency control; `cpu` is any online CPU.
pub fn read_power(source: &dyn Source, cpu: usize) -> Power {
    let text = |path: &str| source.read(path).ok().map(|text| text.trim().to_string());
    let cpufreq = |file: &str| text(&format!("/sys/devices/system/cpu/cpu{cpu}/cpufreq/{file}"));
    let khz = |file: &str| cpufreq(file).and_then(|text| text.parse().ok());
    let no_turbo = text("/sys/devices/system/cpu/intel_pstate/no_turbo").map(|flag| flag == "0");
    let boost = text("/sys/devices/system/cpu/cpufreq/boost").map(|flag| flag == "1");
    Power {
        driver: cpufreq("scaling_driver"),
        governor: cpufreq("scaling_governor"),
        min_khz: khz("cpuinfo_min_freq"),
        max_khz: khz("cpuinfo_max_freq"),
        base_khz: khz("base_frequency"),
        intel_pstate: text("/sys/devices/system/cpu/intel_pstate/status"),
        turbo: no_turbo.or(boost),
        msr_device: source.exists(&format!("/dev/cpu/{cpu}/msr")),
    }
}

/// Performance counters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pmu {
    /// The kernel drives the core PMU (`cpu`, or `cpu_core` on hybrid parts).
    pub core: bool,
    /// `kernel.perf_event_paranoid`: -1 all may be counted by anyone, 0..2 ever less, more:
    /// nothing without CAP_PERFMON. `None`: no perf events.
    pub paranoid: Option<i32>,
}

/// Reads what counters there are.
pub fn read_pmu(source: &dyn Source) -> Pmu {
    const DEVICES: &str = "/sys/bus/event_source/devices";
    Pmu {
        core: ["cpu", "cpu_core"].iter().any(|pmu| source.exists(&format!("{DEVICES}/{pmu}/type"))),
        paranoid: source
            .read("/proc/sys/kernel/perf_event_paranoid")
            .ok()
            .and_then(|text| text.trim().parse().ok()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Recorded;

    /// Values come from the CPU that was asked about, turbo from whichever driver says.
    #[test]
    fn reads_frequency_control() {
        let files = "/sys/devices/system/cpu/cpu2/cpufreq/scaling_driver = intel_pstate\n\
             /sys/devices/system/cpu/cpu2/cpufreq/cpuinfo_max_freq = 3700000\n\
             /sys/devices/system/cpu/intel_pstate/no_turbo = 1\n\
             /dev/cpu/2/msr exists\n";
        let machine = Recorded::parse(files, "").unwrap();
        let power = read_power(&machine, 2);
        assert_eq!(power.driver.as_deref(), Some("intel_pstate"));
        assert_eq!((power.max_khz, power.base_khz), (Some(3_700_000), None));
        assert_eq!((power.turbo, power.msr_device), (Some(false), true));
        let other = read_power(&machine, 0);
        assert_eq!((other.driver, other.turbo, other.msr_device), (None, Some(false), false));
    }

    /// Hybrid parts name their PMU differently.
    #[test]
    fn finds_the_core_pmu() {
        let read = |files: &str| read_pmu(&Recorded::parse(files, "").unwrap());
        assert!(!read("").core);
        assert!(read("/sys/bus/event_source/devices/cpu_core/type = 4").core);
        let files =
            "/proc/sys/kernel/perf_event_paranoid = -1\n/sys/bus/event_source/devices/cpu/type = 4";
        assert_eq!(read(files), Pmu { core: true, paranoid: Some(-1) });
    }
}
