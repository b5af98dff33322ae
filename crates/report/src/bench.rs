// SPDX-License-Identifier: MIT OR Apache-2.0
//! What `./x bench GROUP --json FILE` writes: results of benchmarks, and where they come from.
//!
//! A result carries its unit, what is better, how many repetitions it comes from and their
//! extremes: a number without them is not accepted.

use serde::{Deserialize, Serialize};

use crate::SCHEMA;

/// The document.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct BenchReport {
    /// See [`SCHEMA`].
    pub schema: u32,
    /// Group of benchmarks, as in `./x bench GROUP`.
    pub group: String,
    /// The commit that was measured, with `-dirty` if files differed from it.
    pub commit: String,
    /// Where the numbers come from.
    pub machine: BenchMachine,
    /// The results, by name.
    pub results: Vec<BenchResult>,
}

/// The machine that ran the benchmarks, or the emulator that they ran in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct BenchMachine {
    /// Name of the CPU.
    pub cpu: String,
    /// CPUs that were available.
    pub cpus: usize,
    /// Its memory.
    pub memory_mib: u64,
    /// Its kernel's release.
    pub kernel: String,
    /// Version of the emulator; `none` if no guest was booted.
    pub emulator: String,
    /// Kernels of the guests; `null` if no guest was booted.
    pub guest_kernel: Option<String>,
}

/// A result.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct BenchResult {
    /// What was measured.
    pub name: String,
    /// The value, in `unit`.
    pub value: f64,
    /// Its unit, in words.
    pub unit: String,
    /// Which values are better.
    pub better: Better,
    /// Repetitions that `value` comes from.
    pub n: u64,
    /// The smallest of them, in `unit`.
    pub min: f64,
    /// The largest of them, in `unit`.
    pub max: f64,
    /// What the value is compared with; `null` if with nothing.
    pub baseline: Option<Baseline>,
}

/// Which values are better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Better {
    /// The higher ones.
    Higher,
    /// The lower ones.
    Lower,
}

/// What a value is compared with.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Baseline {
    /// What it is.
    pub name: String,
    /// Its value, in the result's unit.
    pub value: f64,
}

impl BenchReport {
    /// A document of results, which are sorted by name.
    pub fn new(
        group: &str,
        commit: String,
        machine: BenchMachine,
        mut results: Vec<BenchResult>,
    ) -> Self {
        results.sort_by(|a, b| a.name.cmp(&b.name));
        BenchReport { schema: SCHEMA, group: group.to_owned(), commit, machine, results }
    }
}
