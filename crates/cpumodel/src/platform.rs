// SPDX-License-Identifier: MIT OR Apache-2.0
//! A platform: a CPU model with every number that a simulation needs, known or assumed.
//!
//! Problem: no CPU model is complete (`cpu_model.rs`), a simulation needs all of it.
//!
//! Idea: one function fills in, from the table below and nowhere else, and keeps a list of what
//! it assumed, which every report shows. No constant here was chosen to make a published result
//! come out.
//!
//! | constant | assumed | why |
//! |---|---|---|
//! | rules | Skylake-SP's | SYSTOR 2; Downs 2020 |
//! | dense from | 0.5 per cycle | SYSTOR 2: "more than one heavy instruction per two cycles" |
//! | level package-wide | no | Downs 2020: Skylake-SP and later are per core |
//! | throttle | 9 us at 1/4 | Downs 2020, W-2104 |
//! | halt | 11 us | Downs 2020, W-2104 |
//! | relax | 670 us | DIM, Downs 2020 |
//! | PCU period | 500 us | THESIS 2.2: "takes up to 500 us" |
//! | context switch | 1,200 ns | own measurements: 1,190 ns, on another machine |
//! | migration | 1,850 ns | `lane.migration_instructions` of `./x bench vm`: 9,461 (n = 300) at one per cycle and 3.1 GHz are 3.05 us, minus the switch |
//! | refill, core | 2,600 ns | a hot set of 64 KiB is 1,024 lines from L3 at 20 ns, eight in flight |
//! | refill, LLC | 10,000 ns | the same from memory at 80 ns |
//! | IPI | 1,000 ns | order of magnitude of a remote interrupt; not published for these parts |
//! | trap | 370 ns | THESIS 5.4.1 |
//! | system call | 120 ns | own measurements: getppid 109-133 ns |
//! | idle exit | 2,000 ns | C1 of Skylake-SP, cpuidle's own table |
//! | tick | 1,000 ns | order of magnitude; 250 of them per second are 0.025 % |
//! | SMT throughput | 1.25 | Intel says 15-30 % more for a core |
//! | TDP | 10 W per core | rough; energy is an estimate |
//! | idle power | a fifth of the TDP | rough |
//! | power limit | none | parts from 2017 on keep to their tables in the papers; newer ones have it in their file |
//! | cores | 8, if unknown | to run at all |
//! | clocks of a level | those of the level below minus 10 % | to run at all |

use crate::license::{MAX_LEVELS, Times};
use crate::{
    ClassRule, CpuModel, CpuPlace, CpuSet, InsnClass, Known, LicenseLevel, Ns, Topology, TurboBin,
};

/// Costs of scheduling, all known; see [`crate::Costs`] for their meaning.
#[derive(Clone, Copy, Debug, PartialEq)]
#[allow(missing_docs)]
pub struct PlatformCosts {
    pub context_switch_ns: u64,
    pub migration_ns: u64,
    pub refill_core_ns: u64,
    pub refill_llc_ns: u64,
    pub ipi_ns: u64,
    pub trap_ns: u64,
    pub syscall_ns: u64,
    pub idle_exit_ns: u64,
    pub tick_ns: u64,
}

/// A CPU model without gaps.
#[derive(Clone, Debug)]
pub struct Platform {
    /// Name of the model.
    pub name: String,
    /// Cores per package.
    pub nr_cores: usize,
    /// CPUs per core.
    pub threads_per_core: usize,
    /// Cores per last-level cache.
    pub cores_per_llc: usize,
    /// `clock_khz[level][n]`: clock of a core at this level while n cores of its package are
    /// active, n = 0..=nr_cores.
    pub clock_khz: Vec<Vec<u32>>,
    /// Rule by class.
    pub rules: [ClassRule; InsnClass::ALL.len()],
    /// Wide heavy instructions per cycle from which code counts as dense.
    pub dense_per_cycle: f64,
    /// Whether the highest level of any core holds for its package.
    pub level_is_package_wide: bool,
    /// Times of licence transitions.
    pub times: Times,
    /// Rate of wide code while it waits for its licence, 0..=1.
    pub throttle_frac: f64,
    /// How often the clocks follow the number of active cores.
    pub pcu_period_ns: u64,
    /// Costs of scheduling.
    pub costs: PlatformCosts,
    /// Throughput of a core with all siblings busy over that with one.
    pub smt_frac: f64,
    /// Power of one package: asleep, and beyond that per busy core at each level's all-core clock.
    pub idle_w: f64,
    /// See `idle_w`.
    pub core_w: f64,
    /// Power that a package may use in the long run; see `power_limit.rs`.
    pub limit_w: Option<f64>,
    /// What was assumed, in words.
    pub assumed: Vec<String>,
}

/// Takes known values, and notes what is not.
struct Filler {
    assumed: Vec<String>,
}

impl Filler {
    fn take<T: Clone>(&mut self, known: &Known<T>, what: &str, otherwise: T) -> T {
        match known {
            Some(sourced) => sourced.value.clone(),
            None => {
                self.assumed.push(what.to_string());
                otherwise
            }
        }
    }

    fn ns(&mut self, known: &Known<Ns>, what: &str, otherwise_ns: u64) -> u64 {
        self.take(known, what, Ns(otherwise_ns)).0
    }
}

impl Platform {
    /// Fill in a model.
    pub fn new(model: &CpuModel) -> Self {
        let mut fill = Filler { assumed: Vec::new() };
        let nr_cores = fill.take(&model.nr_cores, "8 cores", 8).max(1) as usize;
        let threads = fill.take(&model.smt.threads_per_core, "2 CPUs per core", 2).max(1) as usize;
        let cores_per_llc = model.cores_per_llc.as_ref().map_or(nr_cores, |k| k.value as usize);
        let tdp_w = fill.take(&model.power.tdp_w, "TDP 10 W per core", 10.0 * nr_cores as f64);
        let idle_w = fill.take(&model.power.idle_w, "idle power a fifth of TDP", tdp_w / 5.0);
        let smt = fill.take(&model.smt.throughput_frac, "SMT throughput 1.25", 1.25);
        let t = &model.transition;
        Platform {
            name: model.name.clone(),
            nr_cores,
            threads_per_core: threads,
            cores_per_llc: cores_per_llc.clamp(1, nr_cores),
            clock_khz: clocks(&model.levels, nr_cores, &mut fill),
            rules: rules(model, &mut fill),
            dense_per_cycle: fill.take(&model.dense_per_cycle, "dense from 0.5 per cycle", 0.5),
            level_is_package_wide: fill.take(
                &model.level_is_package_wide,
                "levels are per core",
                false,
            ),
            times: Times {
                throttle_ns: fill.ns(&t.throttle_ns, "throttle 9 us", 9_000),
                halt_ns: fill.ns(&t.halt_ns, "halt 11 us", 11_000),
                relax_ns: fill.ns(&t.relax_ns, "relax 670 us", 670_000),
            },
            throttle_frac: fill.take(&t.throttle_frac, "throttled dispatch 1/4", 0.25),
            pcu_period_ns: fill.ns(&t.pcu_period_ns, "PCU period 500 us", 500_000).max(1),
            costs: costs(&model.costs, &mut fill),
            smt_frac: if threads > 1 { smt } else { 1.0 },
            idle_w,
            core_w: (tdp_w - idle_w).max(0.0) / nr_cores as f64,
            limit_w: model.power.limit_w.as_ref().map(|limit| limit.value),
            assumed: fill.assumed,
        }
    }

    /// Number of licence levels.
    pub fn nr_levels(&self) -> usize {
        self.clock_khz.len()
    }

    /// How long a core is halted between level 0 and its highest.
    pub fn longest_halt_ns(&self) -> u64 {
        self.times.halts_ns(0, self.nr_levels() as u8 - 1)
    }

    /// So many packages of it, numbered as Linux does: first siblings of all cores first. Each
    /// package is a node.
    pub fn topology(&self, packages: usize) -> Topology {
        let per_thread = self.nr_cores * packages;
        let places: Vec<CpuPlace> = (0..per_thread * self.threads_per_core)
            .map(|cpu| {
                let core = cpu % per_thread;
                let package = core / self.nr_cores;
                let llcs_per_package = self.nr_cores.div_ceil(self.cores_per_llc);
                let llc = package * llcs_per_package + core % self.nr_cores / self.cores_per_llc;
                CpuPlace { cpu, package, node: package, llc, core }
            })
            .collect();
        Topology::new(CpuSet::EMPTY, &places).expect("a regular machine is consistent")
    }

    /// Level that code asks for: `class` with so many of its instructions per cycle.
    pub fn level_of(&self, class: InsnClass, per_cycle: f64) -> u8 {
        let rule = self.rules[class as usize];
        let level =
            if per_cycle >= self.dense_per_cycle { rule.dense_level } else { rule.single_level };
        level.min(self.nr_levels() as u8 - 1)
    }

    /// Clock of a core at `level` while `active` cores of its package are active.
    #[inline]
    pub fn clock_khz(&self, level: u8, active: usize) -> u32 {
        let row = &self.clock_khz[level as usize];
        row[active.min(row.len() - 1)]
    }

    /// Power of a busy core, W. The turbo tables keep a package at its TDP when every core
    /// runs its level's code at the all-core clock; dynamic power goes with f * V^2, and V about
    /// with f, so with the cube of the clock.
    pub fn busy_core_w(&self, level: u8, khz: u32) -> f64 {
        let all_core = f64::from(self.clock_khz(level, self.nr_cores)).max(1.0);
        self.core_w * (f64::from(khz) / all_core).powi(3)
    }
}

fn costs(known: &crate::Costs, fill: &mut Filler) -> PlatformCosts {
    PlatformCosts {
        context_switch_ns: fill.ns(&known.context_switch_ns, "context switch 1.2 us", 1_200),
        migration_ns: fill.ns(&known.migration_ns, "migration 1.85 us", 1_850),
        refill_core_ns: fill.ns(&known.refill_core_ns, "cache refill 2.6 us", 2_600),
        refill_llc_ns: fill.ns(&known.refill_llc_ns, "cache refill across LLCs 10 us", 10_000),
        ipi_ns: fill.ns(&known.ipi_ns, "IPI 1 us", 1_000),
        trap_ns: fill.ns(&known.trap_ns, "trap 370 ns", 370),
        syscall_ns: fill.ns(&known.syscall_ns, "system call 120 ns", 120),
        idle_exit_ns: fill.ns(&known.idle_exit_ns, "idle exit 2 us", 2_000),
        tick_ns: fill.ns(&known.tick_ns, "tick 1 us", 1_000),
    }
}

/// Skylake-SP's rules with as many levels as there are; AMX asks for the highest.
fn rules(model: &CpuModel, fill: &mut Filler) -> [ClassRule; InsnClass::ALL.len()] {
    let top = model.levels.len().saturating_sub(1).min(MAX_LEVELS - 1) as u8;
    let rule = |single_level, dense_level| ClassRule { single_level, dense_level };
    let skylake = [rule(0, 0), rule(0, 0), rule(0, 1), rule(1, 1), rule(1, 2), rule(top, top)];
    let Some(known) = &model.rules else {
        fill.assumed.push("class rules of Skylake-SP".into());
        return skylake;
    };
    InsnClass::ALL.map(|(class, _)| known.value.get(&class).copied().unwrap_or_default())
}

fn clocks(levels: &[LicenseLevel], nr_cores: usize, fill: &mut Filler) -> Vec<Vec<u32>> {
    let mut rows: Vec<Vec<u32>> = Vec::new();
    for (i, level) in levels.iter().take(MAX_LEVELS).enumerate() {
        let row = match (&level.turbo, &level.base, rows.last()) {
            (Some(turbo), _, _) if !turbo.value.is_empty() => expand(&turbo.value, nr_cores),
            (_, Some(base), _) => {
                fill.assumed.push(format!("level {i} always at its base clock"));
                vec![base.value.0; nr_cores + 1]
            }
            (_, _, below) => {
                fill.assumed.push(format!("clocks of level {i}"));
                below.map_or(vec![3_000_000; nr_cores + 1], |row| {
                    row.iter().map(|khz| khz / 10 * 9).collect()
                })
            }
        };
        rows.push(row);
    }
    if rows.is_empty() {
        fill.assumed.push("one level of 3 GHz".into());
        rows.push(vec![3_000_000; nr_cores + 1]);
    }
    rows
}

fn expand(bins: &[TurboBin], nr_cores: usize) -> Vec<u32> {
    let clock_of = |active: u32| {
        let bin = bins.iter().find(|bin| active <= bin.up_to_cores).or(bins.last());
        bin.map_or(0, |bin| bin.clock.0)
    };
    (0..=nr_cores as u32).map(clock_of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Khz, Sourced, Sureness};

    fn known<T>(value: T) -> Known<T> {
        Some(Sourced { value, source: "test".into(), sureness: Sureness::Verified })
    }

    fn level(bins: &[(u32, u32)]) -> LicenseLevel {
        let bins = bins
            .iter()
            .map(|&(up_to_cores, mhz)| TurboBin { up_to_cores, clock: Khz::of_mega(mhz) });
        LicenseLevel { turbo: known(bins.collect()), ..Default::default() }
    }

    /// The buckets of DIM Table 1 for the Gold 6130 hold up to their core count, the last beyond.
    #[test]
    fn buckets_expand() {
        let model = CpuModel {
            nr_cores: known(16),
            levels: vec![level(&[(2, 3700), (4, 3500), (8, 3400), (12, 3100), (16, 2800)])],
            ..Default::default()
        };
        let platform = Platform::new(&model);
        let at = |active| platform.clock_khz(0, active) / 1000;
        assert_eq!(
            (at(0), at(2), at(3), at(8), at(9), at(16)),
            (3700, 3700, 3500, 3400, 3100, 2800)
        );
        assert_eq!(at(40), 2800);
    }

    /// An empty model runs, and says that everything about it is assumed.
    #[test]
    fn what_is_unknown_is_reported() {
        let platform = Platform::new(&CpuModel::default());
        assert_eq!(platform.times.relax_ns, 670_000);
        for what in ["relax 670 us", "TDP", "class rules", "one level"] {
            assert!(platform.assumed.iter().any(|a| a.contains(what)), "{what}");
        }
    }

    /// Light code asks by its presence, heavy code by its density (SYSTOR 2).
    #[test]
    fn heavy_code_asks_by_density() {
        let levels = vec![level(&[(1, 3)]), level(&[(1, 2)]), level(&[(1, 1)])];
        let p = Platform::new(&CpuModel { levels, ..Default::default() });
        assert_eq!(p.level_of(InsnClass::Light512, 0.001), 1);
        assert_eq!(p.level_of(InsnClass::Heavy512, 0.1), 1);
        assert_eq!(p.level_of(InsnClass::Heavy512, 0.5), 2);
        assert_eq!(p.level_of(InsnClass::Heavy256, 0.4), 0);
        assert_eq!(p.level_of(InsnClass::Heavy256, 1.0), 1);
        assert_eq!(p.level_of(InsnClass::Light256, 2.0), 0);
    }
}
