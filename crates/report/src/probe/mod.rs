// SPDX-License-Identifier: MIT OR Apache-2.0
//! What `turbolane probe` found out about a CPU: as a document, a table ([`text`]), a page
//! ([`html`]), a file for `turbolane sim --machine` ([`machine_file`]), and its raw samples
//! ([`raw`]).

mod html;
mod machine_file;
pub mod raw;
mod text;
mod verdict;

use serde::{Deserialize, Serialize};

pub use machine_file::machine_file;
pub use verdict::verdict;

/// A median with its confidence interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Estimate {
    /// The median.
    pub value: f64,
    /// Lower end of the interval (95 %, from order statistics).
    pub low: f64,
    /// Upper end.
    pub high: f64,
    /// Repetitions that it rests on.
    pub n: usize,
}

impl Estimate {
    /// Half the width of the interval over the value.
    pub fn half_width_frac(&self) -> f64 {
        if self.value == 0.0 { 0.0 } else { (self.high - self.low) / 2.0 / self.value.abs() }
    }
}

/// From which instruction the hardware counts the time until it raises the clock again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum CountedFrom {
    /// The last wide one: the rule of Skylake-SP.
    Last,
    /// The first wide one.
    First,
    /// Blocks of different lengths do not show it.
    Unclear,
}

/// What the probe found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ProbeReport {
    /// See [`crate::SCHEMA`].
    pub schema: u32,
    /// Brand string, or the id of a simulated CPU.
    pub machine: String,
    /// Its cores; unknown in reports of before.
    #[serde(default)]
    pub cores: raw::Cores,
    /// Random seed.
    pub seed: u64,
    /// The worst drop of the clock with the most CPUs active, in words; empty in reports of before.
    #[serde(default)]
    pub verdict: String,
    /// Why the measurement is not complete; `null` if every interval is narrow enough.
    pub partial: Option<String>,
    /// Repetitions that were measured.
    pub repetitions: usize,
    /// Of them, those taken in the quiet bin.
    pub quiet: usize,
    /// The frequency meter.
    pub meter: Meter,
    /// Bins of the clock before each block, fastest first.
    pub bins: Vec<Bin>,
    /// By kernel, density and active CPUs.
    pub rows: Vec<Row>,
    /// What was left out.
    pub skipped: Vec<raw::Skipped>,
    /// What the probe cannot know here, in words.
    pub unknown: Vec<String>,
}

/// The frequency meter and how it was checked.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Meter {
    /// Frequency of the time stamp counter.
    pub tsc_khz: f64,
    /// What reading it costs.
    pub overhead_ns: f64,
    /// The chains.
    pub chains: Vec<raw::Chain>,
    /// Who else says how fast the clock is.
    pub witnesses: Vec<raw::Witness>,
}

/// Share of the repetitions that began in one bin of the clock, while so many CPUs were active.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Bin {
    /// Active CPUs.
    pub active: u32,
    /// Centre of the bin of 100 MHz.
    pub clock_khz: u32,
    /// Share of the repetitions.
    pub share_frac: f64,
    /// Whether it is the quiet one.
    pub quiet: bool,
}

/// One cell: a kernel at a density while so many CPUs are active. `null` is not visible, or too few
/// quiet repetitions; `notes` say which.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Row {
    /// Kernel, density, active CPUs.
    #[serde(flatten)]
    pub cell: raw::Cell,
    /// Its class in CPU files.
    pub class: String,
    /// Quiet repetitions.
    pub quiet: usize,
    /// Clock of scalar code before the block.
    pub before_khz: Option<Estimate>,
    /// Clock in the block when it has settled.
    pub steady_khz: Option<Estimate>,
    /// Clock of scalar code right after the block.
    pub after_khz: Option<Estimate>,
    /// Instructions under test per cycle when settled.
    pub wide_per_cycle: Option<Estimate>,
    /// Length of the throttle at the start.
    pub throttle_ns: Option<Estimate>,
    /// Dispatch rate in it, over the settled one, per cycle.
    pub throttle_frac: Option<Estimate>,
    /// The core was halted at the start for so long.
    pub halt_ns: Option<Estimate>,
    /// From the start until it dispatches at the settled rate.
    pub full_ns: Option<Estimate>,
    /// Time that the start cost against settled code (DIM 4.1).
    pub lower_cost_ns: Option<Estimate>,
    /// From the last wide instruction to the higher clock.
    pub relax_from_last_ns: Option<Estimate>,
    /// From the first one.
    pub relax_from_first_ns: Option<Estimate>,
    /// Which of the two is the same for short and long blocks; `null` without a relax time.
    pub counted_from: Option<CountedFrom>,
    /// The core was halted for so long when the clock rose.
    pub raise_halt_ns: Option<Estimate>,
    /// Time after which the higher clock has paid for both changes (DIM 4.3); `null` if the clock
    /// does not fall.
    pub break_even_ns: Option<f64>,
    /// The reason for each `null`, and what to be careful about.
    pub notes: Vec<String>,
    /// The typical course of a repetition, for charts.
    pub course: Vec<Point>,
}

/// A point of the typical course: medians over the quiet repetitions.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Point {
    /// Since the start of the block.
    pub at_ns: f64,
    /// Clock.
    pub clock_khz: Option<f64>,
    /// Rate of the kernel over its settled rate.
    pub rate_frac: Option<f64>,
}
