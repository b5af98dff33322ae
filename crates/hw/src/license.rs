// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which CPUs count the cycles they spend at each licence level.
//!
//! The counters (CORE_POWER.LVLn_TURBO_LICENSE, event 28h) cannot be discovered: an absent event
//! counts zero like an idle one. So this is the one place that trusts a model number, and it
//! says so in its answer. Source: Intel's event files as shipped in sched-ext/scx
//! `rust/scx_raw_pmu` and in LIKWID.

use crate::cpu::{Cpu, Vendor};

/// CORE_POWER.LVL0, LVL1 and LVL2_TURBO_LICENSE as raw events: umask, event.
pub const LEVEL_EVENTS: [u64; 3] = [0x0728, 0x1828, 0x2028];

/// What a CPU model offers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LicenseCounters {
    /// LVL0, LVL1 and LVL2 cycles per CPU.
    Levels {
        /// The cycles at reduced dispatch are counted too (CORE_POWER.THROTTLE).
        throttle: bool,
    },
    /// Events of that name exist, but no one says what they count.
    Undescribed,
    /// The model has none.
    Absent,
    /// No table knows the model.
    Unknown,
}

impl LicenseCounters {
    /// Whether the levels are counted, or why not.
    pub fn counted(self) -> Result<(), &'static str> {
        match self {
            LicenseCounters::Levels { .. } => Ok(()),
            LicenseCounters::Absent => Err("this CPU model has no counters of licence levels"),
            LicenseCounters::Undescribed => {
                Err("the counters of licence levels of this CPU model are not described")
            }
            LicenseCounters::Unknown => {
                Err("no counters of licence levels are known for this CPU model")
            }
        }
    }
}

/// One generation of Intel CPUs.
struct Generation {
    name: &'static str,
    models: &'static [u32],
    counters: LicenseCounters,
}

const GENERATIONS: &[Generation] = &[
    Generation {
        name: "Skylake-SP, Skylake-X, Cascade Lake",
        models: &[85],
        counters: LicenseCounters::Levels { throttle: true },
    },
    Generation {
        name: "Ice Lake-SP",
        models: &[106, 108],
        counters: LicenseCounters::Levels { throttle: false },
    },
    Generation {
        name: "Ice Lake, Tiger Lake, Rocket Lake (client)",
        models: &[125, 126, 140, 141, 167],
        counters: LicenseCounters::Levels { throttle: false },
    },
    Generation {
        name: "Alder Lake, Raptor Lake",
        models: &[151, 154, 183, 186, 191],
        counters: LicenseCounters::Undescribed,
    },
    Generation {
        name: "Sapphire Rapids, Emerald Rapids",
        models: &[143, 207],
        counters: LicenseCounters::Absent,
    },
    Generation { name: "Granite Rapids", models: &[173, 174], counters: LicenseCounters::Absent },
];

/// The counters of `cpu`, and the name of its generation if the table knows it.
pub fn license_counters(cpu: &Cpu) -> (LicenseCounters, Option<&'static str>) {
    if cpu.vendor != Vendor::Intel {
        return (LicenseCounters::Absent, None);
    }
    GENERATIONS
        .iter()
        .find(|generation| cpu.family == 6 && generation.models.contains(&cpu.model))
        .map_or((LicenseCounters::Unknown, None), |generation| {
            (generation.counters, Some(generation.name))
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Recorded, cpu::read_cpu};

    fn counters(vendor: &str, version: &str) -> LicenseCounters {
        let cpuid = format!("0 0 = 16 {vendor}\n1 0 = {version} 0 0 0\n");
        license_counters(&read_cpu(&Recorded::parse("", &cpuid).unwrap())).0
    }

    /// One model of each row, an unknown one and another vendor.
    #[test]
    fn follows_the_table() {
        let intel = "756e6547 6c65746e 49656e69";
        assert_eq!(counters(intel, "50654"), LicenseCounters::Levels { throttle: true });
        assert_eq!(counters(intel, "606a6"), LicenseCounters::Levels { throttle: false });
        assert_eq!(counters(intel, "806f8"), LicenseCounters::Absent);
        assert_eq!(counters(intel, "906a3"), LicenseCounters::Undescribed);
        assert_eq!(counters(intel, "306c3"), LicenseCounters::Unknown);
        assert_eq!(counters("68747541 444d4163 69746e65", "50654"), LicenseCounters::Absent);
    }

    /// No model is in two rows.
    #[test]
    fn models_are_listed_once() {
        let mut models: Vec<u32> = GENERATIONS.iter().flat_map(|g| g.models).copied().collect();
        let count = models.len();
        models.sort_unstable();
        models.dedup();
        assert_eq!(models.len(), count);
    }

    /// The kernel module opens counters on the models that have them, and on no other.
    #[test]
    fn the_module_knows_the_same_models() {
        let source = include_str!("../../../kmod/levels.c");
        let listed: Vec<u32> = source
            .split("X86_MATCH_VFM(IFM(6, ")
            .skip(1)
            .map(|rest| rest.split(')').next().unwrap().parse().unwrap())
            .collect();
        let counting = GENERATIONS.iter().filter(|g| g.counters.counted().is_ok());
        assert_eq!(listed, counting.flat_map(|g| g.models).copied().collect::<Vec<_>>());
    }
}
