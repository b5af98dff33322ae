// SPDX-License-Identifier: MIT OR Apache-2.0
//! The text of a `data/cpus/*.toml` file, read into a [`CpuModel`].
//!
//! Problem: a simulation is as good as its table. A key with a typing error that is skipped, a
//! clock in MHz where kHz are meant, or a table whose rows are swapped all give results that
//! look right.
//!
//! Idea: a number is never given alone, and nothing is skipped. Each is an inline table
//!
//! ```text
//!   relax_ns = { value = 670_000, source = "DIM 4", sureness = "verified" }
//!   level.turbo: up_to_cores = [2, 16], clock_khz = [3_700_000, 2_800_000], source, sureness
//!   rules.class: heavy-512 = [1, 2]          level of a single instruction, level when dense
//! ```
//!
//! and an unknown number is left out. Unknown keys are refused, and so is what no CPU
//! can be: a frequency of 0, a table that gets faster with more active cores, a higher level
//! that is faster than a lower one, a rule that names a level which is not there.
//!
//! Limits: tables may name more cores than the part has (Intel's registers do, see intel/pepc), and
//! a level may have no turbo table; code that computes with it must say what it does then.

use std::collections::BTreeMap;

use serde::Deserialize;
use toml::Spanned;

use crate::{
    ClassRule, Costs, CpuModel, DataError, InsnClass, Khz, Known, LicenseLevel, Ns, Power, Smt,
    Sourced, Sureness, Transition, TurboBin,
};

/// Version of the files' format; grows when a key changes its meaning.
pub const CPU_FILE_SCHEMA: u32 = 1;

/// Clocks that a part can have. Outside of it someone wrote another unit than kHz.
const CLOCKS_KHZ: std::ops::RangeInclusive<u32> = 100_000..=20_000_000;

/// Longest time of a transition or cost. A larger one is not in nanoseconds.
const LONGEST_NS: u64 = 1_000_000_000;

/// Where a reader of an error finds how it is done right.
const EXAMPLE: &str = "compare with crates/cpumodel/data/cpus/xeon-gold-6130.toml";

impl CpuModel {
    /// The model that a file's text describes.
    pub fn from_toml(text: &str) -> Result<CpuModel, DataError> {
        let file: CpuFile =
            toml::from_str(text).map_err(|error| DataError::from_toml(text, &error, EXAMPLE))?;
        Reader { text }.model(file)
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CpuFile {
    schema: Spanned<u32>,
    id: Spanned<String>,
    name: Spanned<String>,
    microarchitecture: Option<Value<String>>,
    nr_cores: Option<Value<u32>>,
    cores_per_llc: Option<Value<u32>>,
    dense_per_cycle: Option<Value<f64>>,
    level_is_package_wide: Option<Value<bool>>,
    level: Spanned<Vec<Spanned<LevelTable>>>,
    rules: Spanned<RulesTable>,
    #[serde(default)]
    transition: TransitionTable,
    #[serde(default)]
    costs: CostsTable,
    #[serde(default)]
    smt: SmtTable,
    #[serde(default)]
    power: PowerTable,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Value<T> {
    value: Spanned<T>,
    source: Spanned<String>,
    sureness: SurenessName,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum SurenessName {
    Verified,
    Derived,
    SecondHand,
    Recalled,
    Assumed,
}

impl From<SurenessName> for Sureness {
    fn from(name: SurenessName) -> Sureness {
        match name {
            SurenessName::Verified => Sureness::Verified,
            SurenessName::Derived => Sureness::Derived,
            SurenessName::SecondHand => Sureness::SecondHand,
            SurenessName::Recalled => Sureness::Recalled,
            SurenessName::Assumed => Sureness::Assumed,
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LevelTable {
    name: Spanned<String>,
    base_khz: Option<Value<u32>>,
    turbo: Option<Spanned<TurboTable>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TurboTable {
    up_to_cores: Spanned<Vec<u32>>,
    clock_khz: Spanned<Vec<Spanned<u32>>>,
    source: Spanned<String>,
    sureness: SurenessName,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RulesTable {
    class: BTreeMap<Spanned<String>, Spanned<[u8; 2]>>,
    source: Spanned<String>,
    sureness: SurenessName,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct TransitionTable {
    voltage_only_ns: Option<Value<u64>>,
    throttle_ns: Option<Value<u64>>,
    throttle_frac: Option<Value<f64>>,
    halt_ns: Option<Value<u64>>,
    relax_ns: Option<Value<u64>>,
    pcu_period_ns: Option<Value<u64>>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct CostsTable {
    context_switch_ns: Option<Value<u64>>,
    migration_ns: Option<Value<u64>>,
    refill_core_ns: Option<Value<u64>>,
    refill_llc_ns: Option<Value<u64>>,
    ipi_ns: Option<Value<u64>>,
    trap_ns: Option<Value<u64>>,
    syscall_ns: Option<Value<u64>>,
    idle_exit_ns: Option<Value<u64>>,
    tick_ns: Option<Value<u64>>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct SmtTable {
    threads_per_core: Option<Value<u32>>,
    throughput_frac: Option<Value<f64>>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct PowerTable {
    tdp_w: Option<Value<f64>>,
    idle_w: Option<Value<f64>>,
    limit_w: Option<Value<f64>>,
}

/// Turns the tables into the model; knows the text, for the lines of its errors.
struct Reader<'a> {
    text: &'a str,
}

impl Reader<'_> {
    fn model(&self, file: CpuFile) -> Result<CpuModel, DataError> {
        if *file.schema.get_ref() != CPU_FILE_SCHEMA {
            let what = format!("schema {} is not known", file.schema.get_ref());
            let next = format!("this version reads schema {CPU_FILE_SCHEMA}");
            return Err(DataError::new(self.text, file.schema.span(), what, next));
        }
        let levels = self.levels(file.level)?;
        let rules = self.rules(file.rules, levels.len())?;
        let (smt, power) = (file.smt, file.power);
        Ok(CpuModel {
            id: self.id(&file.id)?,
            name: self.words(&file.name)?,
            microarchitecture: self.known(file.microarchitecture, |_| Ok(()))?,
            nr_cores: self.known(file.nr_cores, |cores| within(*cores, 1, 4096))?,
            cores_per_llc: self.known(file.cores_per_llc, |cores| within(*cores, 1, 4096))?,
            levels,
            rules: Some(rules),
            dense_per_cycle: self.known(file.dense_per_cycle, |rate| {
                if *rate > 0.0 && *rate <= 8.0 { Ok(()) } else { Err("outside of 0..=8".into()) }
            })?,
            level_is_package_wide: self.known(file.level_is_package_wide, |_| Ok(()))?,
            transition: self.transition(file.transition)?,
            costs: self.costs(file.costs)?,
            smt: Smt {
                threads_per_core: self.known(smt.threads_per_core, |n| within(*n, 1, 8))?,
                throughput_frac: self.known(smt.throughput_frac, |f| within(*f, 1.0, 2.0))?,
            },
            power: Power {
                tdp_w: self.known(power.tdp_w, |watts| within(*watts, 1.0, 2000.0))?,
                idle_w: self.known(power.idle_w, |watts| within(*watts, 0.0, 1000.0))?,
                limit_w: self.known(power.limit_w, |watts| within(*watts, 1.0, 2000.0))?,
            },
        })
    }

    fn id(&self, id: &Spanned<String>) -> Result<String, DataError> {
        let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        if id.get_ref().is_empty() || !id.get_ref().chars().all(fits) {
            let what = format!("\"{}\" is not a valid id", id.get_ref());
            let next = "use lower-case letters, digits and hyphens";
            return Err(DataError::new(self.text, id.span(), what, next));
        }
        Ok(id.get_ref().clone())
    }

    fn words(&self, text: &Spanned<String>) -> Result<String, DataError> {
        if text.get_ref().trim().is_empty() {
            return Err(DataError::new(self.text, text.span(), "the text is empty", EXAMPLE));
        }
        Ok(text.get_ref().clone())
    }

    /// A value that passes `check`, with its source.
    fn known<T>(
        &self,
        given: Option<Value<T>>,
        check: impl Fn(&T) -> Result<(), String>,
    ) -> Result<Known<T>, DataError> {
        let Some(given) = given else { return Ok(None) };
        check(given.value.get_ref()).map_err(|why| {
            DataError::new(self.text, given.value.span(), format!("the value is {why}"), EXAMPLE)
        })?;
        let source = self.words(&given.source)?;
        let value = given.value.into_inner();
        Ok(Some(Sourced { value, source, sureness: given.sureness.into() }))
    }

    fn time(&self, given: Option<Value<u64>>) -> Result<Known<Ns>, DataError> {
        let known = self.known(given, |ns| within(*ns, 0, LONGEST_NS))?;
        Ok(known.map(|known| known.map(Ns)))
    }

    fn clock(&self, given: Option<Value<u32>>) -> Result<Known<Khz>, DataError> {
        let known = self.known(given, |khz| is_clock(*khz))?;
        Ok(known.map(|known| known.map(Khz)))
    }

    fn transition(&self, table: TransitionTable) -> Result<Transition, DataError> {
        Ok(Transition {
            voltage_only_ns: self.time(table.voltage_only_ns)?,
            throttle_ns: self.time(table.throttle_ns)?,
            throttle_frac: self.known(table.throttle_frac, |frac| within(*frac, 0.0, 1.0))?,
            halt_ns: self.time(table.halt_ns)?,
            relax_ns: self.time(table.relax_ns)?,
            pcu_period_ns: self.time(table.pcu_period_ns)?,
        })
    }

    fn costs(&self, table: CostsTable) -> Result<Costs, DataError> {
        Ok(Costs {
            context_switch_ns: self.time(table.context_switch_ns)?,
            migration_ns: self.time(table.migration_ns)?,
            refill_core_ns: self.time(table.refill_core_ns)?,
            refill_llc_ns: self.time(table.refill_llc_ns)?,
            ipi_ns: self.time(table.ipi_ns)?,
            trap_ns: self.time(table.trap_ns)?,
            syscall_ns: self.time(table.syscall_ns)?,
            idle_exit_ns: self.time(table.idle_exit_ns)?,
            tick_ns: self.time(table.tick_ns)?,
        })
    }

    fn levels(
        &self,
        tables: Spanned<Vec<Spanned<LevelTable>>>,
    ) -> Result<Vec<LicenseLevel>, DataError> {
        let span = tables.span();
        let mut levels = Vec::new();
        for table in tables.into_inner() {
            let at = table.span();
            let table = table.into_inner();
            let level = LicenseLevel {
                name: self.words(&table.name)?,
                base: self.clock(table.base_khz)?,
                turbo: table.turbo.map(|turbo| self.turbo(turbo.into_inner())).transpose()?,
            };
            if let Some(why) = levels.iter().find_map(|lower| is_faster(&level, lower)) {
                let next = "list the levels in order, the fastest first";
                return Err(DataError::new(self.text, at, why, next));
            }
            levels.push(level);
        }
        match levels.first() {
            None => Err(DataError::new(self.text, span, "there is no [[level]]", EXAMPLE)),
            Some(level) if level.turbo.is_none() => {
                let what = "level 0 has no [level.turbo]";
                let next = "its clocks are needed to compute slowdowns; give at least one bucket";
                Err(DataError::new(self.text, span, what, next))
            }
            Some(_) => Ok(levels),
        }
    }

    fn turbo(&self, table: TurboTable) -> Result<Sourced<Vec<TurboBin>>, DataError> {
        let (cores, clocks) = (table.up_to_cores.get_ref(), table.clock_khz.get_ref());
        if cores.is_empty() || cores.len() != clocks.len() {
            let what = format!("{} core counts and {} clocks", cores.len(), clocks.len());
            let next = "give one clock for each count, and at least one";
            return Err(DataError::new(self.text, table.clock_khz.span(), what, next));
        }
        if cores[0] == 0 || cores.windows(2).any(|pair| pair[0] >= pair[1]) {
            let next = "begin above 0 and let each be larger than the one before";
            let span = table.up_to_cores.span();
            return Err(DataError::new(self.text, span, "the core counts do not ascend", next));
        }
        for clock in clocks {
            is_clock(*clock.get_ref()).map_err(|why| {
                let what = format!("the clock is {why}");
                DataError::new(self.text, clock.span(), what, "clocks are in kHz")
            })?;
        }
        if let Some(pair) = clocks.windows(2).find(|pair| pair[0].get_ref() < pair[1].get_ref()) {
            let what = format!("{} kHz with more active cores than before", pair[1].get_ref());
            let next = "more active cores are never faster; check the order of the rows";
            return Err(DataError::new(self.text, pair[1].span(), what, next));
        }
        let bins = cores
            .iter()
            .zip(clocks)
            .map(|(cores, clock)| TurboBin { up_to_cores: *cores, clock: Khz(*clock.get_ref()) });
        let (value, source) = (bins.collect(), self.words(&table.source)?);
        Ok(Sourced { value, source, sureness: table.sureness.into() })
    }

    fn rules(
        &self,
        table: Spanned<RulesTable>,
        nr_levels: usize,
    ) -> Result<Sourced<BTreeMap<InsnClass, ClassRule>>, DataError> {
        let (span, table) = (table.span(), table.into_inner());
        let mut value = BTreeMap::new();
        for (name, pair) in &table.class {
            let found = InsnClass::ALL.iter().find(|(_, known)| known == name.get_ref());
            let Some((class, _)) = found else {
                let names = InsnClass::ALL.map(|(_, name)| name).join(", ");
                let what = format!("\"{}\" is not a class of instructions", name.get_ref());
                return Err(DataError::new(
                    self.text,
                    name.span(),
                    what,
                    format!("known: {names}"),
                ));
            };
            let [single_level, dense_level] = *pair.get_ref();
            let problem = if usize::from(dense_level.max(single_level)) >= nr_levels {
                format!("there are {nr_levels} levels, from 0")
            } else if dense_level < single_level {
                "dense code asks for no less than a single instruction".into()
            } else {
                value.insert(*class, ClassRule { single_level, dense_level });
                continue;
            };
            let what = format!("level {}", dense_level.max(single_level));
            return Err(DataError::new(self.text, pair.span(), what, problem));
        }
        match value.get(&InsnClass::Scalar) {
            Some(ClassRule { dense_level: 0, .. }) => {}
            _ => {
                let next = "write scalar = [0, 0]: level 0 is what scalar code runs at";
                return Err(DataError::new(self.text, span, "scalar code has no level 0", next));
            }
        }
        let source = self.words(&table.source)?;
        Ok(Sourced { value, source, sureness: table.sureness.into() })
    }
}

/// Whether a level is faster than a lower one somewhere, in words.
fn is_faster(level: &LicenseLevel, lower: &LicenseLevel) -> Option<String> {
    let clock = |table: &[TurboBin], cores: u32| {
        table.iter().find(|bin| bin.up_to_cores >= cores).or(table.last()).map(|bin| bin.clock)
    };
    if let (Some(one), Some(other)) = (&level.turbo, &lower.turbo) {
        // A table only changes after its own counts, so these are all that need a look.
        let counts = one.value.iter().chain(&other.value).map(|bin| bin.up_to_cores);
        for cores in counts {
            if clock(&one.value, cores) > clock(&other.value, cores) {
                let names = (&level.name, &lower.name);
                return Some(format!(
                    "{} is faster than {} at {cores} active cores",
                    names.0, names.1
                ));
            }
        }
    }
    let bases = (level.base.as_ref()?, lower.base.as_ref()?);
    (bases.0.value > bases.1.value)
        .then(|| format!("the base clock of {} is above that of {}", level.name, lower.name))
}

fn is_clock(khz: u32) -> Result<(), String> {
    if CLOCKS_KHZ.contains(&khz) {
        return Ok(());
    }
    let (least, most) = (CLOCKS_KHZ.start(), CLOCKS_KHZ.end());
    Err(format!("{khz} kHz, outside of {least}..={most} kHz"))
}

fn within<T: PartialOrd + std::fmt::Display>(value: T, least: T, most: T) -> Result<(), String> {
    if value >= least && value <= most {
        return Ok(());
    }
    Err(format!("{value}, outside of {least}..={most}"))
}

impl<T> Sourced<T> {
    /// The same knowledge about a value computed from it.
    pub fn map<U>(self, to: impl FnOnce(T) -> U) -> Sourced<U> {
        Sourced { value: to(self.value), source: self.source, sureness: self.sureness }
    }
}
