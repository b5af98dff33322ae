// SPDX-License-Identifier: MIT OR Apache-2.0
//! A CPU model: what is known of a part's licence levels, clocks, times and costs.
//!
//! Problem: few of these numbers are published in one place, some were measured once by one
//! person, some are unknown. A model that mixes them silently is worth nothing.
//!
//! Idea: every constant is `Option<Sourced<T>>`: the value with where it comes from and how sure
//! it is, or nothing. Nothing means unknown. Whoever needs a number all the same (the simulator)
//! fills it in from [`crate::assume`], and reports that it did.
//!
//! Words: a *level* is an index into [`CpuModel::levels`]; level 0 is full turbo. An instruction
//! *class* asks for a level by its [`ClassRule`]. See `license.rs` for what a core does with that.
//!
//! ```text
//!   class        single instruction   dense            Skylake-SP (SYSTOR 2, Downs 2020)
//!   scalar       0                    0
//!   light-256    0                    0                integer but multiply, logic, moves
//!   heavy-256    0                    1                floating point and multiply
//!   light-512    1                    1
//!   heavy-512    1                    2
//!   amx          3 or highest         3 or highest
//! ```

use std::collections::BTreeMap;

use crate::{Khz, Ns};

/// How far a number can be trusted, best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Sureness {
    /// Read in the named primary source, or measured by it.
    Verified,
    /// Computed from verified numbers; the source says how.
    Derived,
    /// The named source quotes someone else.
    SecondHand,
    /// General knowledge, to be checked; or a single source that no one reviewed.
    Recalled,
    /// No one published it; chosen so that the model can run. The source says why so.
    Assumed,
}

impl Sureness {
    /// All, best first, with their names in files and tables.
    pub const ALL: [(Sureness, &'static str); 5] = [
        (Sureness::Verified, "verified"),
        (Sureness::Derived, "derived"),
        (Sureness::SecondHand, "second-hand"),
        (Sureness::Recalled, "recalled"),
        (Sureness::Assumed, "assumed"),
    ];

    /// Its name in files and tables.
    pub fn name(self) -> &'static str {
        Sureness::ALL.iter().find(|(known, _)| *known == self).map_or("", |(_, name)| name)
    }
}

/// A value with its source.
#[derive(Clone, Debug, PartialEq)]
pub struct Sourced<T> {
    /// The value.
    pub value: T,
    /// Where it comes from, e.g. `SYSTOR 2` or an URL; never empty.
    pub source: String,
    /// How far it can be trusted.
    pub sureness: Sureness,
}

/// A constant that may be unknown.
pub type Known<T> = Option<Sourced<T>>;

/// Classes of instructions, as far as licences distinguish them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum InsnClass {
    /// No vector wider than 128 bits.
    Scalar = 0,
    /// 256-bit, but neither floating point nor multiplication.
    Light256,
    /// 256-bit floating point or multiplication.
    Heavy256,
    /// 512-bit, but neither floating point nor multiplication.
    Light512,
    /// 512-bit floating point, multiplication or scatter.
    Heavy512,
    /// Matrix tiles.
    Amx,
}

impl InsnClass {
    /// All, narrowest first, with their names in files and tables.
    pub const ALL: [(InsnClass, &'static str); 6] = [
        (InsnClass::Scalar, "scalar"),
        (InsnClass::Light256, "light-256"),
        (InsnClass::Heavy256, "heavy-256"),
        (InsnClass::Light512, "light-512"),
        (InsnClass::Heavy512, "heavy-512"),
        (InsnClass::Amx, "amx"),
    ];

    /// Its name in files and tables.
    pub fn name(self) -> &'static str {
        InsnClass::ALL[self as usize].1
    }
}

/// Levels that a class of instructions asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClassRule {
    /// By its first instruction, however sparse (the light, *hard* rule).
    pub single_level: u8,
    /// When at least [`CpuModel::dense_per_cycle`] of them execute per cycle (the heavy, *soft*
    /// rule). Never below `single_level`.
    pub dense_level: u8,
}

/// One bucket of a turbo table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TurboBin {
    /// Holds while at most so many cores of the package are active.
    pub up_to_cores: u32,
    /// The clock then.
    pub clock: Khz,
}

/// One licence level.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LicenseLevel {
    /// What people call it, e.g. `AVX-512`.
    pub name: String,
    /// Guaranteed clock at this level.
    pub base: Known<Khz>,
    /// Turbo clock by active cores of the package: buckets ascending by cores, clocks not
    /// ascending. More active cores than the last bucket names run at its clock.
    pub turbo: Known<Vec<TurboBin>>,
}

/// What a change of the level takes. See `license.rs` for the phases.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Transition {
    /// A change of voltage without one of the clock: time at reduced dispatch.
    pub voltage_only_ns: Known<Ns>,
    /// From request to grant of a higher level: time at reduced dispatch before the halt.
    pub throttle_ns: Known<Ns>,
    /// Fraction of the dispatch rate that is left while throttled, 0..=1.
    pub throttle_frac: Known<f64>,
    /// The core is halted while its clock changes, in either direction.
    pub halt_ns: Known<Ns>,
    /// From the last instruction that asks for the level to the request for a lower one.
    pub relax_ns: Known<Ns>,
    /// The power control unit looks at requests so often; a request waits for its next look.
    pub pcu_period_ns: Known<Ns>,
}

/// What scheduling costs on this part, as core time at the clock of the moment unless said.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Costs {
    /// Direct cost of a context switch.
    pub context_switch_ns: Known<Ns>,
    /// Work of the kernel to move a task to another CPU, over a context switch.
    pub migration_ns: Known<Ns>,
    /// Reloading private caches after a move to another core of the same last-level cache.
    pub refill_core_ns: Known<Ns>,
    /// The same after a move to another last-level cache.
    pub refill_llc_ns: Known<Ns>,
    /// From the kick of a CPU to the first instruction of its interrupt handler.
    pub ipi_ns: Known<Ns>,
    /// Exception on a withheld instruction, into the kernel and out.
    pub trap_ns: Known<Ns>,
    /// Entry to and return from a system call that does nothing.
    pub syscall_ns: Known<Ns>,
    /// From a wakeup to the first instruction on a CPU that slept.
    pub idle_exit_ns: Known<Ns>,
    /// The timer tick's handler.
    pub tick_ns: Known<Ns>,
}

/// How two busy siblings share their core.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Smt {
    /// CPUs per core.
    pub threads_per_core: Known<u32>,
    /// Throughput of a core with two busy siblings over that with one: 1..=2.
    pub throughput_frac: Known<f64>,
}

/// Power of a package: what the energy estimate knows, and the limit.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Power {
    /// Thermal design power of the package.
    pub tdp_w: Known<f64>,
    /// Of the package with all cores asleep.
    pub idle_w: Known<f64>,
    /// What the package may use in the long run (RAPL's PL1). Unknown: nothing limits it but the
    /// turbo tables.
    pub limit_w: Known<f64>,
}

/// A CPU model.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CpuModel {
    /// Name in files and on the command line, e.g. `xeon-gold-6130`.
    pub id: String,
    /// What is printed on it.
    pub name: String,
    /// Microarchitecture, e.g. `Skylake-SP`.
    pub microarchitecture: Known<String>,
    /// Cores per package.
    pub nr_cores: Known<u32>,
    /// Cores that share a last-level cache, if not the whole package.
    pub cores_per_llc: Known<u32>,
    /// Its levels; index = level. Never empty.
    pub levels: Vec<LicenseLevel>,
    /// Level by instruction class; a class that is missing does not exist on this part.
    pub rules: Known<BTreeMap<InsnClass, ClassRule>>,
    /// Wide heavy instructions per cycle from which code counts as dense.
    pub dense_per_cycle: Known<f64>,
    /// True: the highest level of any core of the package holds for all (Haswell-EP). False:
    /// each core has its own (Skylake-SP and later).
    pub level_is_package_wide: Known<bool>,
    /// Times of the transitions.
    pub transition: Transition,
    /// Costs of scheduling.
    pub costs: Costs,
    /// SMT.
    pub smt: Smt,
    /// Power.
    pub power: Power,
}

impl CpuModel {
    /// Whether the clock of any level above 0 is known, or there is no such level. A simulation
    /// assumes what is not known and says so; advice about a machine must not rest on that alone.
    pub fn knows_what_levels_cost(&self) -> bool {
        let is_known = |level: &LicenseLevel| level.turbo.is_some() || level.base.is_some();
        self.levels.len() <= 1 || self.levels[1..].iter().any(is_known)
    }
}
