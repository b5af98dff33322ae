// SPDX-License-Identifier: MIT OR Apache-2.0
//! Modelled timelines: a program without a recording, described by what was published about it.
//!
//! ```toml
//! schema = 1
//! name = "server"
//! about = "a server that encrypts what it compresses"
//! machine = "core-i9-7940x"                 # default of --machine
//! active_cores = 14                         # of its package, all along [default: all]
//! work = "request"                          # what a mark "request" begins
//! repeat = 1000                             # the periods below, so many times
//!
//! [code.cipher]                             # kinds of code; "scalar" is always there
//! class = "heavy-512"
//! per_cycle = 1.0                           # heavy instructions per cycle
//! sensitive_frac = 0.96                     # part of the work that follows the clock [default: 1]
//! # or as measured: ipc = { low_khz = 2_100_000, high_khz = 2_800_000, gain_frac = 0.01 }
//! [variant.none.code.cipher]                # the same work without wide instructions
//! class = "scalar"
//! scale = 1.96                              # takes so many times the cycles
//!
//! [[period]]
//! code = "cipher"
//! cycles = 40_000                           # a number, or [least, most], drawn by the seed
//! marks = ["request", "force", { delay_ns = 0 }, { switch = 2 }]
//! [[period]]
//! idle_ns = [1_000, 9_000]
//! ```
//!
//! Cycles are those of level 0. Moments are given at the begin of their period; `timeline.rs` says
//! what they mean. Classes become licence levels by the rules of the machine that replays it.

use std::collections::BTreeMap;
use std::ops::Range;

use cpumodel::{DataError, InsnClass, Platform};
use serde::Deserialize;
use toml::Spanned;

use crate::rng::Rng;
use crate::{Moment, Timeline, Work, sensitive_frac_of_ipc};

/// Name and text of each built-in model.
pub const MODEL_FILES: [(&str, &str); 1] =
    [("dim-nginx", include_str!("../../../data/timelines/dim-nginx.toml"))];

/// Version of the files' format; grows when a key changes its meaning.
const SCHEMA: u32 = 1;
/// Most periods of a timeline: 64 bytes each must fit into memory.
const PERIODS_MAX: usize = 10_000_000;
/// Largest amount of cycles or ns of a period: their sum stays below 2^64.
const AMOUNT_MAX: u64 = 1 << 40;
/// Where a reader of an error finds how it is done right.
const EXAMPLE: &str = "compare with data/timelines/dim-nginx.toml";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ModelFile {
    schema: Spanned<u32>,
    name: String,
    about: String,
    machine: String,
    active_cores: Option<Spanned<usize>>,
    work: String,
    repeat: Spanned<usize>,
    #[serde(default)]
    code: BTreeMap<String, Spanned<CodeTable>>,
    #[serde(default)]
    variant: BTreeMap<String, VariantTable>,
    period: Vec<Spanned<PeriodTable>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CodeTable {
    class: String,
    #[serde(default)]
    per_cycle: f64,
    sensitive_frac: Option<f32>,
    ipc: Option<IpcTable>,
    scale: Option<f64>,
}

/// Instructions per cycle are higher at the low clock than at the high one by this part.
#[derive(Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
struct IpcTable {
    low_khz: u32,
    high_khz: u32,
    gain_frac: f64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct VariantTable {
    code: BTreeMap<String, Spanned<CodeTable>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PeriodTable {
    code: Option<String>,
    cycles: Option<Amount>,
    idle_ns: Option<Amount>,
    #[serde(default, rename = "marks")]
    moments: Vec<MomentName>,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(untagged)]
enum Amount {
    Fixed(u64),
    Uniform([u64; 2]),
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
enum MomentName {
    Request,
    Force,
    DelayNs(u64),
    Switch(u8),
}

impl From<MomentName> for Moment {
    fn from(name: MomentName) -> Moment {
        match name {
            MomentName::Request => Moment::Request,
            MomentName::Force => Moment::Force,
            MomentName::DelayNs(delay_ns) => Moment::DelayNs(delay_ns),
            MomentName::Switch(level) => Moment::Switch(level),
        }
    }
}

/// A kind of code.
#[derive(Clone, Copy, Debug)]
struct Code {
    class: InsnClass,
    per_cycle: f64,
    sensitive_frac: f32,
    scale: f64,
}

const SCALAR: Code =
    Code { class: InsnClass::Scalar, per_cycle: 0.0, sensitive_frac: 1.0, scale: 1.0 };

/// A period as a distribution.
#[derive(Clone, Debug)]
struct PeriodModel {
    /// `None`: idle.
    code: Option<String>,
    least: u64,
    most: u64,
    moments: Vec<Moment>,
}

/// A modelled timeline.
#[derive(Clone, Debug)]
pub struct Model {
    /// Its name.
    pub name: String,
    /// What it is, in a sentence.
    pub about: String,
    /// Id of the CPU model that it was made for.
    pub machine: String,
    /// Active cores of the package; `None`: all.
    pub active_cores: Option<usize>,
    /// What a unit of work is.
    pub work: String,
    repeat: usize,
    codes: BTreeMap<String, Code>,
    variants: BTreeMap<String, BTreeMap<String, Code>>,
    periods: Vec<PeriodModel>,
}

impl Model {
    /// The built-in model of that name; `None` if there is none. The error is a broken built-in
    /// file, which a test excludes.
    pub fn built_in(name: &str) -> Option<Result<Model, DataError>> {
        let (_, text) = MODEL_FILES.iter().find(|(known, _)| *known == name)?;
        Some(Model::from_toml(text))
    }

    /// The model that a file's text describes.
    pub fn from_toml(text: &str) -> Result<Model, DataError> {
        let file: ModelFile =
            toml::from_str(text).map_err(|error| DataError::from_toml(text, &error, EXAMPLE))?;
        Reader { text }.model(file)
    }

    /// Names of its variants.
    pub fn variants(&self) -> impl Iterator<Item = &str> {
        self.variants.keys().map(String::as_str)
    }

    /// Its timeline on a platform: drawn by the seed; `None` if there is no such variant. The same
    /// periods are drawn for every variant, and scaled.
    pub fn timeline(
        &self,
        platform: &Platform,
        variant: Option<&str>,
        seed: u64,
    ) -> Option<Timeline> {
        let changed =
            variant.map(|name| self.variants.get(name)).map_or(Some(None), |v| v.map(Some));
        let changed = changed?;
        let code_of = |name: &str| {
            let code = changed.and_then(|codes| codes.get(name)).or(self.codes.get(name));
            *code.unwrap_or(&SCALAR)
        };
        let mut rng = Rng::new(seed);
        let mut timeline = Timeline::default();
        for _ in 0..self.repeat {
            for period in &self.periods {
                let amount = rng.between(period.least, period.most);
                let work = match &period.code {
                    None => Work::Idle { time_ns: amount },
                    Some(name) => work(platform, code_of(name), amount),
                };
                timeline.push(work, &period.moments);
            }
        }
        Some(timeline)
    }
}

fn work(platform: &Platform, code: Code, cycles: u64) -> Work {
    Work::Code {
        level: platform.level_of(code.class, code.per_cycle),
        cycles: (cycles as f64 * code.scale) as u64,
        sensitive_frac: code.sensitive_frac,
    }
}

struct Reader<'a> {
    text: &'a str,
}

impl Reader<'_> {
    fn refuse<T>(&self, at: Range<usize>, what: String, next: &str) -> Result<T, DataError> {
        Err(DataError::new(self.text, at, what, next))
    }

    fn model(&self, file: ModelFile) -> Result<Model, DataError> {
        if *file.schema.get_ref() != SCHEMA {
            let what = format!("schema {} is not {SCHEMA}", file.schema.get_ref());
            return self.refuse(file.schema.span(), what, "use the version that wrote the file");
        }
        let codes = self.codes(&file.code, &[])?;
        let mut variants = BTreeMap::new();
        for (name, table) in &file.variant {
            let known: Vec<&String> = codes.keys().collect();
            variants.insert(name.clone(), self.codes(&table.code, &known)?);
        }
        let periods = file.period.iter().map(|period| self.period(period, &codes));
        let periods = periods.collect::<Result<Vec<_>, _>>()?;
        let repeat = *file.repeat.get_ref();
        let too_many = repeat.saturating_mul(periods.len()) > PERIODS_MAX;
        if repeat == 0 || periods.is_empty() || too_many {
            let what = format!("{repeat} times {} periods", periods.len());
            let next = format!("have from 1 to {PERIODS_MAX} periods in total");
            return self.refuse(file.repeat.span(), what, &next);
        }
        if let Some(active) = file.active_cores.as_ref().filter(|active| *active.get_ref() == 0) {
            return self.refuse(active.span(), "no active core".into(), "write at least 1");
        }
        Ok(Model {
            name: file.name,
            about: file.about,
            machine: file.machine,
            active_cores: file.active_cores.map(Spanned::into_inner),
            work: file.work,
            repeat,
            codes,
            variants,
            periods,
        })
    }

    /// Kinds of code; those of a variant must be among the known ones.
    fn codes(
        &self,
        tables: &BTreeMap<String, Spanned<CodeTable>>,
        known: &[&String],
    ) -> Result<BTreeMap<String, Code>, DataError> {
        let mut codes = BTreeMap::new();
        for (name, table) in tables {
            if name == "scalar" || !(known.is_empty() || known.contains(&name)) {
                let what = format!("the code \"{name}\" cannot be changed here");
                return self.refuse(table.span(), what, "define it under [code], not \"scalar\"");
            }
            codes.insert(name.clone(), self.code(table)?);
        }
        Ok(codes)
    }

    fn code(&self, table: &Spanned<CodeTable>) -> Result<Code, DataError> {
        let CodeTable { class, per_cycle, sensitive_frac, ipc, scale } = table.get_ref();
        let Some((class, _)) = InsnClass::ALL.iter().find(|(_, name)| name == class) else {
            let names: Vec<&str> = InsnClass::ALL.iter().map(|(_, name)| *name).collect();
            let what = format!("there is no class \"{class}\"");
            return self.refuse(table.span(), what, &format!("choose from {}", names.join(", ")));
        };
        let sensitive = match (sensitive_frac, ipc) {
            (Some(frac), None) => *frac,
            (None, None) => 1.0,
            (None, Some(IpcTable { low_khz, high_khz, gain_frac }))
                if 0 < *low_khz && low_khz < high_khz && (0.0..=10.0).contains(gain_frac) =>
            {
                sensitive_frac_of_ipc(*low_khz, *high_khz, *gain_frac) as f32
            }
            _ => {
                let what = "the clock sensitivity of this code is invalid".into();
                let next = "write sensitive_frac, or ipc with low_khz below high_khz";
                return self.refuse(table.span(), what, next);
            }
        };
        let scale = scale.unwrap_or(1.0);
        let makes_sense = (0.0..=64.0).contains(per_cycle)
            && (0.0..=1.0).contains(&sensitive)
            && (1e-6..=1e6).contains(&scale);
        if !makes_sense {
            let what = "a number of this code is out of range".into();
            let next = "per_cycle is from 0 to 64, sensitive_frac from 0 to 1, scale above 0";
            return self.refuse(table.span(), what, next);
        }
        Ok(Code { class: *class, per_cycle: *per_cycle, sensitive_frac: sensitive, scale })
    }

    fn period(
        &self,
        table: &Spanned<PeriodTable>,
        codes: &BTreeMap<String, Code>,
    ) -> Result<PeriodModel, DataError> {
        let PeriodTable { code, cycles, idle_ns, moments } = table.get_ref();
        let amount = match (code, cycles, idle_ns) {
            (Some(_), Some(cycles), None) => *cycles,
            (None, None, Some(idle_ns)) => *idle_ns,
            _ => {
                let what = "a period has either code and cycles, or idle_ns".into();
                return self.refuse(table.span(), what, EXAMPLE);
            }
        };
        if let Some(name) =
            code.as_ref().filter(|name| *name != "scalar" && !codes.contains_key(*name))
        {
            let what = format!("there is no code \"{name}\"");
            return self.refuse(table.span(), what, "define it under [code]");
        }
        let (least, most) = match amount {
            Amount::Fixed(amount) => (amount, amount),
            Amount::Uniform([least, most]) => (least, most),
        };
        if least > most || most > AMOUNT_MAX {
            let what = format!("from {least} to {most} is not an amount");
            let next = format!("write [least, most], at most {AMOUNT_MAX}");
            return self.refuse(table.span(), what, &next);
        }
        let moments = moments.iter().map(|&moment| moment.into()).collect();
        Ok(PeriodModel { code: code.clone(), least, most, moments })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn platform() -> Platform {
        Platform::new(&cpumodel::CpuModel::built_in("core-i9-7940x").unwrap().unwrap())
    }

    const SMALL: &str = r#"
schema = 1
name = "small"
about = "a test"
machine = "core-i9-7940x"
work = "request"
repeat = 2
[code.cipher]
class = "heavy-512"
per_cycle = 1.0
sensitive_frac = 0.5
[variant.none.code.cipher]
class = "scalar"
scale = 2.0
[[period]]
code = "cipher"
cycles = 100
marks = ["request", { delay_ns = 7 }]
[[period]]
code = "scalar"
cycles = [10, 20]
marks = ["force", { switch = 1 }]
[[period]]
idle_ns = 5
"#;

    /// Everything in a file arrives in the timeline, and a variant changes what it names.
    #[test]
    fn a_model_becomes_a_timeline() {
        let model = Model::from_toml(SMALL).unwrap();
        assert_eq!(model.variants().collect::<Vec<_>>(), ["none"]);
        let timeline = model.timeline(&platform(), None, 1).unwrap();
        let [cipher, scalar, idle] = &timeline.periods()[..3] else { panic!() };
        assert_eq!(cipher.work, Work::Code { level: 2, cycles: 100, sensitive_frac: 0.5 });
        assert_eq!(timeline.moments(cipher), [Moment::Request, Moment::DelayNs(7)]);
        assert!(matches!(scalar.work, Work::Code { level: 0, cycles: 10..=20, .. }));
        assert_eq!(timeline.moments(scalar), [Moment::Force, Moment::Switch(1)]);
        assert_eq!(idle.work, Work::Idle { time_ns: 5 });
        assert_eq!(timeline.periods().len(), 6);
        let none = model.timeline(&platform(), Some("none"), 1).unwrap();
        let doubled = Work::Code { level: 0, cycles: 200, sensitive_frac: 1.0 };
        assert_eq!(none.periods()[0].work, doubled);
        assert_eq!(none.periods()[1], timeline.periods()[1]);
        assert!(model.timeline(&platform(), Some("avx2"), 1).is_none());
    }

    /// What was measured as instructions per cycle becomes a share of the work (DIM 4.2).
    #[test]
    fn ipc_is_read() {
        let ipc = "ipc = { low_khz = 2_100_000, high_khz = 2_800_000, gain_frac = 0.059 }";
        let model = Model::from_toml(&SMALL.replace("sensitive_frac = 0.5", ipc)).unwrap();
        let timeline = model.timeline(&platform(), None, 1).unwrap();
        let Work::Code { sensitive_frac, .. } = timeline.periods()[0].work else { panic!() };
        assert!((sensitive_frac - 0.777).abs() < 1e-3, "{sensitive_frac}");
    }

    /// An error has its line and says what to do.
    #[test]
    fn mistakes_are_named_with_their_line() {
        for (from, to, line, what) in [
            ("schema = 1", "schema = 2", 2, "schema 2"),
            ("repeat = 2", "repeat = 0", 7, "0 times 3 periods"),
            ("repeat = 2", "repeat = 99999999", 7, "99999999 times"),
            ("repeat = 2", "repeat = 2\nactive_cores = 0", 8, "no active core"),
            ("\"heavy-512\"", "\"heavy-1024\"", 8, "no class"),
            ("= 0.5", "= 1.5", 8, "out of range"),
            (
                "= 0.5",
                "= 0.5\nipc = { low_khz = 1, high_khz = 2, gain_frac = 0.1 }",
                8,
                "clock sensitivity",
            ),
            (
                "sensitive_frac = 0.5",
                "ipc = { low_khz = 2, high_khz = 1, gain_frac = 0.1 }",
                8,
                "clock sensitivity",
            ),
            ("scale = 2.0", "scale = 0.0", 12, "out of range"),
            ("none.code.cipher", "none.code.other", 12, "cannot be changed"),
            ("code = \"cipher\"", "code = \"other\"", 15, "no code \"other\""),
            ("idle_ns = 5", "marks = []", 23, "either code and cycles"),
            ("[10, 20]", "[20, 10]", 19, "not an amount"),
            ("\"force\"", "\"fork\"", 22, "unknown variant"),
        ] {
            let text = SMALL.replace(from, to);
            let error = Model::from_toml(&text).unwrap_err();
            assert!(error.what.contains(what), "{to}: {error}");
            assert!(error.line.abs_diff(line) <= 1, "{to}: {error}, expected line {line}");
            assert!(!error.next.is_empty());
        }
    }

    /// Every built-in model is read and has a timeline on its machine.
    #[test]
    fn built_in_models_are_sound() {
        for (name, _) in MODEL_FILES {
            let model = Model::built_in(name).unwrap().unwrap();
            assert_eq!(model.name, name);
            assert!(!model.timeline(&platform(), None, 1).unwrap().periods().is_empty());
        }
    }

    proptest::proptest! {
        /// No text makes the reader panic: rubbish, and files with something replaced.
        #[test]
        fn nothing_panics(junk in "\\PC{0,60}", at in 0usize..600, cut in 0usize..40) {
            let at = (0..=at.min(SMALL.len())).rev().find(|&i| SMALL.is_char_boundary(i)).unwrap();
            let end = (at + cut).min(SMALL.len());
            let _ = Model::from_toml(&format!("{}{junk}{}", &SMALL[..at], &SMALL[end..]));
            let _ = Model::from_toml(&junk);
        }
    }
}
