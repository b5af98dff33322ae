// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a published figure is.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// What was measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Quantity {
    /// Work per time.
    Throughput,
    /// Percent less throughput than `against`: `1 - T / T_against`.
    ThroughputLoss,
    /// Percent more throughput than `against`: `T / T_against - 1`.
    ThroughputGain,
    /// Percent more CPU time for the same work than `against`: `C / C_against - 1`.
    CpuTimeIncrease,
    /// Percent more energy for the same work than `against`: `E / E_against - 1`.
    EnergyIncrease,
    /// Percent of a slowdown that a policy takes away.
    LossRemoved,
    /// Mean clock.
    Clock,
    /// Time that one operation takes.
    Cost,
    /// Time that a user waits at most, or as the title says.
    Latency,
    /// Time that a user waits on average.
    LatencyMean,
    /// Percent of a whole.
    Share,
    /// Events, per run, second or request: see the unit.
    Count,
    /// One quantity divided by another.
    Ratio,
}

/// What a row is for; see the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Use {
    /// The model may be fitted to it.
    Calibrates,
    /// The model must come out here by itself.
    Predicts,
    /// It comes out of what was put in, or is another row's figure in other units: a hit proves
    /// nothing and is not counted, a miss is.
    Follows,
    /// A figure of another row once more, by other means: compared, but not counted again.
    Repeats,
    /// Not compared.
    Context,
}

/// How near is near enough.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Tolerance {
    /// The two values, both in percent, differ by at most so many points.
    Points(f64),
    /// The two values differ by at most so many percent of the published one.
    Percent(f64),
}

impl Tolerance {
    /// The error of `ours` in the tolerance's own measure, with its sign; the published value
    /// must not be 0 where percents of it are meant.
    pub fn error(self, published: f64, ours: f64) -> f64 {
        match self {
            Tolerance::Points(_) => ours - published,
            Tolerance::Percent(_) => 100.0 * (ours - published) / published,
        }
    }

    /// Whether an error of that size is near enough.
    pub fn allows(self, error: f64) -> bool {
        match self {
            Tolerance::Points(limit) | Tolerance::Percent(limit) => error.abs() <= limit,
        }
    }

    /// The unit of [`Tolerance::error`].
    pub fn unit(self) -> &'static str {
        match self {
            Tolerance::Points(_) => "pp",
            Tolerance::Percent(_) => "%",
        }
    }
}

/// Slowdowns and throughputs may differ by so many points of percent.
const POINTS: f64 = 2.0;
/// All else by so many percent.
const PERCENT: f64 = 15.0;

impl Quantity {
    /// Whether the quantity compares two configurations.
    pub fn is_relative(self) -> bool {
        use Quantity::{
            CpuTimeIncrease, EnergyIncrease, LossRemoved, ThroughputGain, ThroughputLoss,
        };
        matches!(
            self,
            CpuTimeIncrease | EnergyIncrease | LossRemoved | ThroughputGain | ThroughputLoss
        )
    }

    /// How near a prediction must come: 2 percentage points for throughput and slowdown, 15 % for
    /// the rest. A throughput in MB/s is compared in percent of the published one.
    pub fn tolerance(self) -> Tolerance {
        match self {
            Quantity::ThroughputLoss
            | Quantity::ThroughputGain
            | Quantity::CpuTimeIncrease
            | Quantity::EnergyIncrease => Tolerance::Points(POINTS),
            Quantity::Throughput => Tolerance::Percent(POINTS),
            _ => Tolerance::Percent(PERCENT),
        }
    }
}

/// Where a figure is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    /// Section, e.g. `5.2.2`.
    pub section: String,
    /// Figure, table or `text`.
    pub part: String,
    /// Printed page on which the section begins; `null` if the document gives none.
    pub section_page: Option<u32>,
}

/// What was run, on what, under whom. Names are keys of [`Paper::workloads`] and
/// [`Paper::policies`], and ids of CPU files.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Config {
    /// Id of the CPU file.
    pub machine: String,
    /// What was run.
    pub workload: String,
    /// Widest instructions of the offender: `none`, `avx2`, `avx512`.
    pub variant: String,
    /// Who schedules, and how.
    pub policy: String,
}

/// One published number.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// Its name; unique over all papers, e.g. `sfma-nginx-avx512-loss`.
    pub id: String,
    /// Where it is.
    pub place: Place,
    /// What was measured.
    pub quantity: Quantity,
    /// What exactly, in a few words.
    pub title: String,
    /// The value.
    pub value: f64,
    /// Its unit.
    pub unit: String,
    /// Other end of a published range; `null` for a single value.
    pub value_to: Option<f64>,
    /// Published standard deviation, in the unit of the value; `null` if none was given.
    pub stddev: Option<f64>,
    /// Whether the paper itself calls the value approximate.
    pub approximate: bool,
    /// What was run.
    pub config: Config,
    /// What a relative quantity compares with; `null` for an absolute one.
    pub against: Option<Config>,
    /// Whether core specialisation was at work.
    pub mitigated: bool,
    /// What the row is for.
    #[serde(rename = "use")]
    pub purpose: Use,
    /// Of a row that calibrates: the number of the model that was set by it; else empty.
    pub sets: String,
    /// Of a row that follows: from what; else empty.
    pub follows: String,
    /// What the emulated machine yields in the same experiment; `null` if it has not run it.
    pub silicon: Option<Silicon>,
    /// Further conditions, doubts, and for context why it is not compared; may be empty.
    pub note: String,
}

/// A figure of the dim-silicon machine (docs/experiments/silicon.md): real programs on a real
/// kernel, whose clocks are a model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Silicon {
    /// In the row's unit.
    pub value: f64,
    /// Which experiment, and in what it differs from the paper's.
    pub how: String,
}

impl Row {
    /// Distance of `ours` from the published value or range, in the tolerance's measure.
    pub fn error(&self, ours: f64) -> f64 {
        let end = self.value_to.unwrap_or(self.value);
        let (low, high) = (self.value.min(end), self.value.max(end));
        if ours >= low && ours <= high && self.value_to.is_some() {
            return 0.0;
        }
        let nearest = if ours < low { low } else { high };
        self.quantity.tolerance().error(nearest, ours)
    }
}

/// Published numbers of one kind, e.g. a column of a table.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Series {
    /// Its name.
    pub id: String,
    /// Where it is.
    pub place: Place,
    /// What was measured.
    pub quantity: Quantity,
    /// What exactly, in a few words.
    pub title: String,
    /// Name of each value.
    pub labels: Vec<String>,
    /// The values.
    pub values: Vec<f64>,
    /// Their unit.
    pub unit: String,
    /// What was run.
    pub config: Config,
    /// Whether core specialisation was at work.
    pub mitigated: bool,
    /// Further conditions; may be empty.
    pub note: String,
}

/// A published ranking: configurations, best first.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Order {
    /// Its name.
    pub id: String,
    /// Where it is.
    pub place: Place,
    /// What is compared.
    pub quantity: Quantity,
    /// The paper's statement in our words.
    pub title: String,
    /// Best first. "Better" is more throughput and clock, less of all else.
    pub best_first: Vec<Config>,
    /// True: equals satisfy it too ("at least as good as").
    pub or_equal: bool,
    /// What the row is for: `predicts`, `follows` or `context`.
    #[serde(rename = "use")]
    pub purpose: Use,
    /// Of a ranking that follows: from what; else empty.
    pub follows: String,
    /// Further conditions; may be empty.
    pub note: String,
}

impl Order {
    /// Whether more of the quantity is better.
    pub fn more_is_better(&self) -> bool {
        use Quantity::{Clock, LossRemoved, Throughput, ThroughputGain};
        matches!(self.quantity, Throughput | Clock | ThroughputGain | LossRemoved)
    }

    /// The first pair of neighbours that values in the order of `best_first` violate.
    pub fn violation(&self, values: &[f64]) -> Option<(usize, usize)> {
        assert_eq!(values.len(), self.best_first.len(), "one value for each configuration");
        let holds = |better: f64, worse: f64| {
            let (more, less) =
                if self.more_is_better() { (better, worse) } else { (worse, better) };
            more > less || (self.or_equal && more == less)
        };
        (1..values.len()).map(|at| (at - 1, at)).find(|&(a, b)| !holds(values[a], values[b]))
    }
}

/// One document's figures.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Paper {
    /// Short name, e.g. `SYSTOR`.
    pub document: String,
    /// Its title.
    pub title: String,
    /// Its authors and year.
    pub authors: String,
    /// What was run, by name.
    pub workloads: BTreeMap<String, String>,
    /// Policies, by name.
    pub policies: BTreeMap<String, String>,
    /// Numbers.
    pub rows: Vec<Row>,
    /// Columns of numbers.
    pub series: Vec<Series>,
    /// Rankings.
    pub orders: Vec<Order>,
}

impl Paper {
    /// The row of that id.
    pub fn row(&self, id: &str) -> Option<&Row> {
        self.rows.iter().find(|row| row.id == id)
    }
}
