// SPDX-License-Identifier: MIT OR Apache-2.0
//! Checks of counters and frequency control: can the effect be seen.

use hw::Facts;
use report::doctor::Check;

use super::{no, ok, unknown, warn};

pub(super) fn checks(facts: &Facts) -> Vec<Check> {
    vec![pmu(facts), cpufreq(facts), turbo(facts), msr(facts)]
}

fn pmu(facts: &Facts) -> Check {
    let seen = match (facts.pmu.core, facts.pmu.paranoid) {
        (false, _) => {
            no("the kernel has no core PMU", "on a virtual machine enable the virtual PMU")
        }
        (true, Some(paranoid)) if paranoid > 2 => warn(
            format!("present, for root only (perf_event_paranoid is {paranoid})"),
            "sysctl kernel.perf_event_paranoid=2 lets users count their own programs",
        ),
        (true, _) => ok("present"),
    };
    seen.check("pmu", "Counters (PMU)", "they measure cycles, instructions and the clock")
}

fn cpufreq(facts: &Facts) -> Check {
    let power = &facts.power;
    let Some(driver) = &power.driver else {
        let seen =
            no("the kernel does not control the frequency", "on a virtual machine the host does");
        return seen.check("cpufreq", "Frequency control", CPUFREQ_WHY);
    };
    let mut text = driver.clone();
    if let Some(status) = &power.intel_pstate {
        text += &format!(" ({status})");
    }
    if let Some(governor) = &power.governor {
        text += &format!(", governor {governor}");
    }
    if let Some(max_khz) = power.max_khz {
        text += &format!(", up to {} MHz", max_khz / 1000);
    }
    let seen = match power.governor.as_deref() {
        Some("powersave") if power.intel_pstate.as_deref() != Some("active") => {
            warn(text, "choose another governor: this one keeps the lowest frequency")
        }
        _ => ok(text),
    };
    seen.check("cpufreq", "Frequency control", CPUFREQ_WHY)
}

const CPUFREQ_WHY: &str = "a governor that changes the clock hides the effect of the licence level";

fn turbo(facts: &Facts) -> Check {
    let seen = match facts.power.turbo {
        Some(true) => ok("on"),
        Some(false) => warn("off", "switch it on in the firmware, or with the driver's no_turbo"),
        None => unknown("no driver reports it", "see the firmware's settings"),
    };
    seen.check("turbo", "Turbo", "with turbo off there is little frequency to lose or regain")
}

fn msr(facts: &Facts) -> Check {
    let seen = if facts.power.msr_device {
        ok("present")
    } else {
        no("there is no /dev/cpu/N/msr", "modprobe msr, on real hardware")
    };
    seen.check("msr", "Registers (MSR)", "they hold turbo tables and exact clocks")
}
