// SPDX-License-Identifier: MIT OR Apache-2.0
//! Published figures next to simulated ones: what `papers` says.
//!
//! Problem: the papers print losses, gains, megabytes per second and rankings; a simulation of one
//! configuration yields throughput, CPU time, a clock. Someone who computes one from the other by
//! hand for a hundred rows compares different things in some of them.
//!
//! Idea: the simulation answers for a configuration and a **measure**, nothing else; what a row
//! means in measures is said once, in `value.rs`:
//!
//! ```text
//!   throughput-loss     1 - T / T_against              throughput-gain   T / T_against - 1
//!   cpu-time-increase   C / C_against - 1
//!   loss-removed        1 - loss / loss_against,  losses against the variant "none" of `against`
//!   throughput          T / T_cal * published_cal,  cal = the calibrating row of that workload
//!   clock, latency      as measured (longest, or mean)
//! ```
//!
//! where C is CPU time per unit of work. A row that is none of these (the cost of a trap, say) is
//! answered by its id. Absolute throughput is compared on the scale of the paper: a simulated
//! request has no bytes, so the calibrating row fixes the unit, and the row itself, if it is that
//! one, is met by definition and not counted.
//!
//! **What comes out** is the mean over the seeds, with their standard deviation. Some constants of
//! the model are near-free: no unmitigated figure and no source of its own sets them. Each of them
//! is set elsewhere in its plausible range, one at a time; what then comes out, from the least to
//! the most, is the row's range (`judge.rs`). A row is
//!
//! ```text
//!   met        the entire range is within the tolerance
//!   missed     the entire range is outside, on one side
//!   undecided  neither: which it is depends on a constant that no one knows. No hit
//! ```
//!
//! and a ranking holds if it does with every seed and value, is violated if it does with none, and
//! is undecided otherwise; one that lacks a value is open.
//!
//! **What counts** (`score.rs`): rows and rankings that predict. What follows from the model's
//! inputs is compared too; a hit of it is not counted, all else is.
//!
//! **Why ours differs** is not said in words but by another simulation: the same experiments with
//! the changes that are held to be the causes, all of them at once, so that no two can contradict
//! each other. They explain a miss if they close at least half of its gap, or make the ranking
//! hold. They explain nothing if, with them, a row of any paper leaves its tolerance, whether it
//! calibrates or is a hit, or if one that is outside goes farther ([`broken`]). A miss that nothing
//! explains is named at the end.
//!
//! The papers measured their prototypes; the result of Turbolane's policy in the same experiment is
//! shown alongside and not compared, and so is the emulated machine's, where it ran the experiment.

mod judge;
mod score;
mod text;
mod value;

use serde::{Deserialize, Serialize};

use crate::published::{Config, Order, Paper, Row};
use report::SCHEMA;

pub use judge::{Strict, broken};
pub use score::Score;

/// What a simulation of one configuration yields.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Measure {
    /// Units of work per second.
    Throughput,
    /// CPU time of a unit of work, ns.
    CpuTime,
    /// Mean clock of what was measured, kHz.
    Clock,
    /// Longest response time, ns.
    LatencyMax,
    /// Mean response time, ns.
    LatencyMean,
}

/// Who answers: simulations with one seed, or values that they kept.
pub trait Simulated {
    /// A measure of a configuration; `None` if it was not simulated.
    fn measure(&self, config: &Config, measure: Measure) -> Option<f64>;
    /// The value of a row that is no measure of a configuration, in the row's unit.
    fn figure(&self, id: &str) -> Option<f64>;
}

/// The same experiments with seed after seed.
pub type Runs<'a> = Vec<Box<dyn Simulated + 'a>>;

/// The experiments of one paper, in all their forms. Forms other than the model's may have fewer
/// runs; theirs have the seeds of the model's first ones.
pub trait Experiments {
    /// The model as it is.
    fn model(&self) -> Runs<'_>;
    /// Turbolane's policy in the place of the papers' prototypes.
    fn turbolane(&self) -> Runs<'_>;
    /// A near-free constant elsewhere in its range, for each plausible value.
    fn elsewhere(&self) -> Vec<Changed<'_>>;
    /// The changes that are held to be the causes of misses; for this row or ranking, if one is.
    fn what_if(&self, id: &str) -> Option<WhatIfRuns<'_>>;
}

/// The experiments with something changed.
pub struct Changed<'a> {
    /// What, as "constant = value".
    pub change: String,
    /// The results.
    pub runs: Runs<'a>,
}

/// The experiments with what is held to be the cause.
pub struct WhatIfRuns<'a> {
    /// The change that concerns the row, in words that follow "if".
    pub change: String,
    /// Rows and rankings that the changes break, of any paper.
    pub breaks: &'a [String],
    /// The results.
    pub runs: Runs<'a>,
}

/// The complete document.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Reproduction {
    /// See [`SCHEMA`].
    pub schema: u32,
    /// Seeds 1 to this one were simulated.
    pub seeds: u64,
    /// All rows and rankings counted.
    pub score: Score,
    /// Ids of the misses and violated rankings that nothing explains.
    pub unexplained: Vec<String>,
    /// The near-free constants.
    pub constants: Vec<Constant>,
    /// Paper by paper.
    pub papers: Vec<PaperResult>,
}

/// A constant that no unmitigated figure sets.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Constant {
    /// Its name.
    pub name: String,
    /// What the model has.
    pub model: String,
    /// Why the other values are plausible.
    pub source: String,
    /// What else was tried.
    pub elsewhere: Vec<Value>,
}

/// One value of a near-free constant.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Value {
    /// The value.
    pub value: String,
    /// Calibrating rows that it breaks. With one, it is not plausible, and no part of a range.
    pub breaks: Vec<String>,
}

/// One paper.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PaperResult {
    /// Short name.
    pub document: String,
    /// Title.
    pub title: String,
    /// Its rows.
    pub rows: Vec<RowResult>,
    /// Its rankings.
    pub orders: Vec<OrderResult>,
}

/// What came out of a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// Within the tolerance; the ranking holds.
    Met,
    /// It depends on a near-free constant, or a ranking on the seed.
    Undecided,
    /// Outside of the tolerance; the ranking is violated.
    Missed,
}

/// One row next to ours.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RowResult {
    /// As published.
    pub published: Row,
    /// Ours, in the row's unit, mean over the seeds; `null` if it was not simulated.
    pub simulated: Option<f64>,
    /// Its standard deviation over the seeds; `null` with one seed.
    pub stddev: Option<f64>,
    /// What near-free constants make of it; `null` if nothing else.
    pub range: Option<Range>,
    /// Distance of the mean from the published value or range, signed.
    pub error: Option<f64>,
    /// Unit of `error`: `pp` or `%`.
    pub error_unit: String,
    /// What came out; `null` if nothing was compared.
    pub verdict: Option<Verdict>,
    /// A changed experiment, of a miss; `null` if there is none.
    pub what_if: Option<WhatIf>,
    /// What Turbolane's policy yields in a mitigated row, in its unit; `null` if not simulated.
    pub turbolane: Option<f64>,
}

/// From the least to the most that near-free constants make of a row.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Range {
    /// In the row's unit.
    pub least: f64,
    /// The constant and its value there; empty if it is the model as it is.
    pub least_if: String,
    /// In the row's unit.
    pub most: f64,
    /// The constant and its value there; empty if it is the model as it is.
    pub most_if: String,
}

/// A miss in a changed experiment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WhatIf {
    /// What was changed, in words that follow "if".
    pub change: String,
    /// What it yields: one value of a row, those of a ranking in its order.
    pub simulated: Vec<Option<f64>>,
    /// Calibrating rows and hits that the change breaks; with one, it explains nothing.
    pub breaks: Vec<String>,
    /// Whether it closes at least half of the gap, or the ranking holds, and nothing breaks.
    pub explains: bool,
}

/// One ranking next to ours.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OrderResult {
    /// As published.
    pub published: Order,
    /// Ours, in the published order, as measured, means over the seeds; `null` where it was not
    /// simulated.
    pub simulated: Vec<Option<f64>>,
    /// With so many seeds and values of near-free constants it was simulated.
    pub runs: u32,
    /// In so many of them it holds.
    pub held: u32,
    /// What came out; `null` if a value is missing.
    pub verdict: Option<Verdict>,
    /// A changed experiment, of a violated one; `null` if there is none.
    pub what_if: Option<WhatIf>,
}

impl Reproduction {
    /// The figures of papers next to those of their experiments.
    pub fn new(
        papers: &[(&Paper, &dyn Experiments)],
        seeds: u64,
        constants: Vec<Constant>,
    ) -> Reproduction {
        let papers: Vec<_> =
            papers.iter().map(|(paper, experiments)| judge::paper(paper, *experiments)).collect();
        let (score, unexplained) = score::of(&papers);
        Reproduction { schema: SCHEMA, seeds, score, unexplained, constants, papers }
    }
}
