// SPDX-License-Identifier: MIT OR Apache-2.0
//! The file's tables, as they are written; see the module for an example.

use std::collections::BTreeMap;

use serde::Deserialize;
use toml::Spanned;

/// What a scenario is one of the judges of, among the built-in ones; see `crate::compare`.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub enum Question {
    /// How near automatic sizing comes to the best fixed size: needs a load that does not end, and
    /// a variant `avx512`.
    Sizing,
    /// How much of the licence loss a policy removes: needs the variants `avx512` and `none`.
    Mitigation,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ScenarioFile {
    pub schema: Spanned<u32>,
    pub name: String,
    pub about: String,
    pub machine: String,
    pub packages: Option<Spanned<usize>>,
    pub duration_ns: Spanned<u64>,
    #[serde(default)]
    pub warmup_ns: u64,
    #[serde(default)]
    pub judges: Vec<Question>,
    #[serde(default)]
    pub code: BTreeMap<String, Spanned<CodeTable>>,
    #[serde(default)]
    pub variant: BTreeMap<String, VariantTable>,
    #[serde(default)]
    pub fair_locks: Vec<String>,
    #[serde(default)]
    pub barrier: BTreeMap<String, usize>,
    #[serde(default)]
    pub group: Vec<Spanned<GroupTable>>,
    #[serde(default)]
    pub source: Vec<Spanned<SourceTable>>,
}

#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CodeTable {
    pub class: String,
    #[serde(default)]
    pub per_cycle: f64,
    pub scale: Option<f64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct VariantTable {
    #[serde(default)]
    pub code: BTreeMap<String, Spanned<CodeTable>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct GroupTable {
    pub name: String,
    #[serde(default)]
    pub tasks: usize,
    pub cpus: Option<Spanned<String>>,
    pub weight: Option<u32>,
    #[serde(default)]
    pub scalar: bool,
    #[serde(default)]
    pub kernel: bool,
    #[serde(default)]
    pub start_ns: u64,
    pub refill: Option<f64>,
    /// Part of its work that follows the clock, 0..=1.
    pub sensitive_frac: Option<f64>,
    /// Clock at which that is so.
    pub reference_khz: Option<u32>,
    /// What a completion is, for tables.
    pub work: Option<String>,
    /// What each of its tasks does.
    #[serde(default)]
    pub program: Vec<Spanned<StepTable>>,
    /// Or what each does by itself: the i-th task the i-th of them.
    #[serde(default)]
    pub programs: Vec<Vec<Spanned<StepTable>>>,
}

/// A step has exactly one of the fields that name it, and those that belong to it.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct StepTable {
    pub work: Option<String>,
    pub wide: Option<String>,
    pub level: Option<u8>,
    pub wide_begin: Option<u8>,
    pub wide_end: Option<bool>,
    /// With `wide` and `wide_end`: what follows is announced to be scalar for so long.
    pub scalar_for_ns: Option<u64>,
    pub cycles: Option<Amount>,
    pub syscall_cycles: Option<Amount>,
    pub sleep_ns: Option<Amount>,
    pub take: Option<String>,
    pub put: Option<String>,
    pub done: Option<bool>,
    #[serde(rename = "yield")]
    pub yields: Option<bool>,
    pub end: Option<bool>,
    pub lock: Option<String>,
    pub unlock: Option<String>,
    pub barrier: Option<String>,
    pub fork: Option<String>,
    pub repeat: Option<Amount>,
    pub steps: Option<Vec<Spanned<StepTable>>>,
}

impl StepTable {
    /// Names of the verbs that it has.
    pub(super) fn verbs(&self) -> Vec<&'static str> {
        let all: [(&'static str, bool); 16] = [
            ("work", self.work.is_some()),
            ("wide", self.wide.is_some()),
            ("wide_begin", self.wide_begin.is_some()),
            ("wide_end", self.wide_end == Some(true)),
            ("syscall_cycles", self.syscall_cycles.is_some()),
            ("sleep_ns", self.sleep_ns.is_some()),
            ("take", self.take.is_some()),
            ("put", self.put.is_some()),
            ("done", self.done == Some(true)),
            ("yield", self.yields == Some(true)),
            ("end", self.end == Some(true)),
            ("lock", self.lock.is_some()),
            ("unlock", self.unlock.is_some()),
            ("barrier", self.barrier.is_some()),
            ("fork", self.fork.is_some()),
            ("repeat", self.repeat.is_some()),
        ];
        all.into_iter().filter(|(_, there)| *there).map(|(verb, _)| verb).collect()
    }
}

/// A number, a range or a mean.
#[derive(Clone, Copy, Deserialize)]
#[serde(untagged, expecting = "an amount: a number, [least, most] or { mean = N }")]
pub(super) enum Amount {
    Fixed(u64),
    Range([u64; 2]),
    Mean { mean: u64 },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SourceTable {
    pub name: String,
    pub to: String,
    pub clients: Option<usize>,
    pub think_ns: Option<Amount>,
    pub gap_ns: Option<Amount>,
    #[serde(default)]
    pub start_ns: u64,
}
