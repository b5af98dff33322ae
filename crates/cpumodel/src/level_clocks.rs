// SPDX-License-Identifier: MIT OR Apache-2.0
//! How much of the clock each of the scheduler's levels lacks: what decides whether wide code is
//! worth keeping apart (policy/standby.h).
//!
//! Problem: the scheduler knows three levels (1 heavy AVX2 or light AVX-512, 2 heavy AVX-512, 3
//! AMX), a CPU has as many as it has, each with a clock that depends on the number of active cores.
//! And of many CPUs the clocks are unknown.
//!
//! Idea: what is known comes from a CPU model, by the levels that the model's rules give to such
//! code. What is not known is taken to be as small as on any of the parts in `data/cpus` but
//! [`crate::HELD_OUT_CPUS`], so that wide code is rather left alone:
//!
//! | level | lacks at least, with all cores active | of |
//! |---|---|---|
//! | 1 | 10.8 % | core-i9-7940x, 3.3 of 3.7 GHz |
//! | 2 | 18.9 % | core-i9-7940x, 3.0 of 3.7 GHz |
//! | 3 | as level 2 | one part alone has AMX |
//!
//! Limits: the clock that a core really has is lower where power is short.

use crate::{InsnClass, Platform};

/// The scheduler's levels above 0.
const NR_LEVELS: usize = 3;
/// See the table above; 1024 is the clock of level 0.
const UNKNOWN_Q10: [u32; NR_LEVELS] = [110, 193, 193];

/// Clocks by level, as shares of level 0's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LevelClocks {
    /// By number of active cores of a package; the last one holds beyond.
    lacks_q10: Vec<[u32; NR_LEVELS]>,
}

impl Default for LevelClocks {
    /// Of a CPU that no one knows.
    fn default() -> Self {
        LevelClocks { lacks_q10: vec![UNKNOWN_Q10] }
    }
}

impl LevelClocks {
    /// Of a CPU whose clock no code lowers.
    pub fn none() -> Self {
        LevelClocks { lacks_q10: vec![[0; NR_LEVELS]] }
    }

    /// Of a CPU model.
    pub fn of(platform: &Platform) -> Self {
        let dense = platform.dense_per_cycle;
        let light = platform.level_of(InsnClass::Light512, 0.0);
        let levels = [
            light.max(platform.level_of(InsnClass::Heavy256, dense)),
            platform.level_of(InsnClass::Heavy512, dense),
            platform.level_of(InsnClass::Amx, dense),
        ];
        let lacks = |level: u8, active: usize| {
            let (full, low) = (platform.clock_khz(0, active), platform.clock_khz(level, active));
            (u64::from(full.saturating_sub(low)) * 1024 / u64::from(full.max(1))) as u32
        };
        let of_active = |active| {
            let mut least = 0; // a level that the CPU does not have is the one below
            levels.map(|level| {
                least = lacks(level, active).max(least);
                least
            })
        };
        LevelClocks { lacks_q10: (0..=platform.nr_cores).map(of_active).collect() }
    }

    /// What levels 1, 2, 3 lack while so many CPUs of a package are busy: as many cores, as
    /// schedulers take idle cores first.
    pub fn lacks_q10(&self, busy_cpus: f64) -> [u32; NR_LEVELS] {
        let active = busy_cpus.round().max(0.0) as usize;
        self.lacks_q10[active.min(self.lacks_q10.len() - 1)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{CPU_FILES, CpuModel, HELD_OUT_CPUS};

    /// The Gold 6130 has 2.8, 2.4 and 1.9 GHz on all cores, and is nearly as fast on one.
    #[test]
    fn follows_the_active_cores() {
        let model = CpuModel::built_in("xeon-gold-6130").unwrap().unwrap();
        let clocks = LevelClocks::of(&Platform::new(&model));
        assert_eq!(clocks.lacks_q10(16.0), [146, 329, 329]);
        assert_eq!(clocks.lacks_q10(1.2), [27, 55, 55]);
        assert_eq!(clocks.lacks_q10(31.6), clocks.lacks_q10(16.0));
    }

    /// What is taken for an unknown CPU is no more than any known one lacks, except those that
    /// no constant was chosen on.
    #[test]
    fn the_unknown_is_the_least() {
        for (id, _) in CPU_FILES.iter().filter(|(id, _)| !HELD_OUT_CPUS.contains(id)) {
            let model = CpuModel::built_in(id).unwrap().unwrap();
            let platform = Platform::new(&model);
            let known = LevelClocks::of(&platform).lacks_q10(platform.nr_cores as f64);
            let unknown = LevelClocks::default().lacks_q10(0.0);
            assert!(known.iter().zip(unknown).all(|(known, unknown)| *known >= unknown), "{id}");
        }
    }
}
