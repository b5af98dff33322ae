// SPDX-License-Identifier: MIT OR Apache-2.0
//! What licence levels cost the CPU at hand: for the decision whether to keep wide code apart
//! (policy/standby.h), and for applications, which see it on the hint board.

use cpumodel::{CpuModel, LevelClocks, Platform};
use hw::cpu::{Cpu, Vendor};

/// As far as `crates/cpumodel/data/cpus` knows the CPU. Parts of other makers have no levels.
pub(crate) fn of(cpu: &Cpu) -> LevelClocks {
    if cpu.vendor == Vendor::Amd {
        return LevelClocks::none();
    }
    let model = CpuModel::of_brand(&cpu.name);
    model.map_or_else(LevelClocks::default, |model| LevelClocks::of(&Platform::new(&model)))
}

/// `lacks_q10` of the board (bpf/hint_page.h).
pub(crate) fn published(clocks: &LevelClocks) -> [u16; 4] {
    let [level1, level2, level3] =
        clocks.lacks_q10(f64::INFINITY).map(|lacks| lacks.min(1024) as u16);
    [0, level1, level2, level3]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cpu(vendor: Vendor, name: &str) -> Cpu {
        Cpu { vendor, name: name.into(), ..hw::cpu::read_cpu(&hw::Live) }
    }

    /// The board has the clocks with all cores active (2.8, 2.4 and 1.9 GHz), the least known for a
    /// CPU that is in no table, and nothing for one without levels.
    #[test]
    fn applications_see_what_levels_cost() {
        let published = |vendor, name| published(&of(&cpu(vendor, name)));
        let gold = "Intel(R) Xeon(R) Gold 6130 CPU @ 2.10GHz";
        assert_eq!(published(Vendor::Intel, gold), [0, 146, 329, 329]);
        assert_eq!(published(Vendor::Intel, "a new one"), [0, 110, 193, 193]);
        assert_eq!(published(Vendor::Amd, "AMD EPYC 7713 64-Core Processor"), [0; 4]);
    }
}
