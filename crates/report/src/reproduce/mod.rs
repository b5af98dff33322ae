// SPDX-License-Identifier: MIT OR Apache-2.0
//! Published figures beside simulated ones: what `turbolane reproduce` says.
//!
//! Problem: the papers print losses, gains, megabytes per second and rankings; a simulation of one
//! configuration yields throughput, CPU time, a clock. Whoever computes one from the other by hand
//! for a hundred rows compares apples with pears in some of them.
//!
//! Idea: the simulation answers for a configuration and a **measure**, nothing else; what a row
//! means in measures is said once, here:
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
//! A ranking holds if the simulated values stand in its order; one that lacks a value is open.

mod text;

use serde::{Deserialize, Serialize};

use crate::SCHEMA;
use crate::papers::{Config, Order, Paper, Quantity, Row, Use};

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

/// Who answers: a simulation, or values that it left behind.
pub trait Simulated {
    /// A measure of a configuration; `None` if it was not simulated.
    fn measure(&self, config: &Config, measure: Measure) -> Option<f64>;
    /// The value of a row that is no measure of a configuration, in the row's unit.
    fn figure(&self, id: &str) -> Option<f64>;
    /// Why ours differs from the row or ranking of that id; `None` if nobody said.
    fn why(&self, id: &str) -> Option<String>;
}

/// The whole document.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Reproduction {
    /// See [`SCHEMA`].
    pub schema: u32,
    /// The simulation's seed.
    pub seed: u64,
    /// All rows and rankings counted.
    pub score: Score,
    /// Paper by paper.
    pub papers: Vec<PaperResult>,
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

/// One row beside ours.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RowResult {
    /// As published.
    pub published: Row,
    /// Ours, in the row's unit; `null` if it was not simulated.
    pub simulated: Option<f64>,
    /// Distance from the published value or range, signed.
    pub error: Option<f64>,
    /// Unit of `error`: `pp` or `%`.
    pub error_unit: String,
    /// Whether the error is within the tolerance; `null` if nothing was compared.
    pub within: Option<bool>,
    /// Why it differs; `null` if nobody said.
    pub why: Option<String>,
}

/// One ranking beside ours.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OrderResult {
    /// As published.
    pub published: Order,
    /// Ours, in the published order, as measured; `null` where it was not simulated.
    pub simulated: Vec<Option<f64>>,
    /// Whether ours stand in that order; `null` if a value is missing.
    pub holds: Option<bool>,
    /// Why it does not; `null` if nobody said.
    pub why: Option<String>,
}

/// How well it went.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Score {
    /// Rows that predict.
    pub predicted: u32,
    /// Of those: simulated.
    pub compared: u32,
    /// Of those: within their tolerance.
    pub within: u32,
    /// `within` of `predicted` in percent: what was not simulated is no hit. `null` without rows.
    pub within_tolerance_pct: Option<f64>,
    /// Rankings that predict.
    pub orders: u32,
    /// Of those: simulated.
    pub orders_compared: u32,
    /// Of those: violated.
    pub order_violations: u32,
    /// Rows outside of their tolerance and violated rankings that nobody explained.
    pub unexplained: u32,
}

impl Reproduction {
    /// The papers' figures beside those of `simulated`.
    pub fn new(papers: &[Paper], simulated: &dyn Simulated, seed: u64) -> Self {
        let results: Vec<_> = papers.iter().map(|paper| compare(paper, simulated)).collect();
        let mut score = Score::default();
        results.iter().for_each(|paper| score.add(paper));
        if score.predicted > 0 {
            let share = f64::from(score.within) / f64::from(score.predicted);
            score.within_tolerance_pct = Some(100.0 * share);
        }
        Reproduction { schema: SCHEMA, seed, score, papers: results }
    }
}

impl Score {
    fn add(&mut self, paper: &PaperResult) {
        for row in paper.rows.iter().filter(|row| row.published.purpose == Use::Predicts) {
            self.predicted += 1;
            self.compared += u32::from(row.within.is_some());
            self.within += u32::from(row.within == Some(true));
            self.unexplained += u32::from(row.within == Some(false) && row.why.is_none());
        }
        for order in paper.orders.iter().filter(|order| order.published.purpose == Use::Predicts) {
            self.orders += 1;
            self.orders_compared += u32::from(order.holds.is_some());
            self.order_violations += u32::from(order.holds == Some(false));
            self.unexplained += u32::from(order.holds == Some(false) && order.why.is_none());
        }
    }
}

fn compare(paper: &Paper, simulated: &dyn Simulated) -> PaperResult {
    let row = |row: &Row| {
        let ours = match row.purpose {
            Use::Context => None,
            _ => value(paper, row, simulated).filter(|ours| ours.is_finite()),
        };
        let error = ours.map(|ours| row.error(ours));
        let tolerance = row.quantity.tolerance();
        RowResult {
            published: row.clone(),
            simulated: ours,
            error,
            error_unit: tolerance.unit().into(),
            within: error.map(|error| tolerance.allows(error)),
            why: simulated.why(&row.id),
        }
    };
    PaperResult {
        document: paper.document.clone(),
        title: paper.title.clone(),
        rows: paper.rows.iter().map(row).collect(),
        orders: paper.orders.iter().map(|order| rank(order, simulated)).collect(),
    }
}

fn rank(order: &Order, simulated: &dyn Simulated) -> OrderResult {
    let ours: Vec<_> = order
        .best_first
        .iter()
        .map(|config| simulated.measure(config, measure(order.quantity)?))
        .map(|value| value.filter(|value| value.is_finite()))
        .collect();
    let known: Option<Vec<f64>> = ours.iter().copied().collect();
    // A loss is measured as throughput, of which more is better; so the measure decides.
    let holds = known.map(|values| match measure(order.quantity) {
        Some(Measure::Throughput | Measure::Clock) => stands(&values, order.or_equal),
        _ => stands(&values.iter().map(|value| -value).collect::<Vec<_>>(), order.or_equal),
    });
    let why = simulated.why(&order.id);
    OrderResult { published: order.clone(), simulated: ours, holds, why }
}

/// Whether each value is above the next, or equal where that is allowed.
fn stands(values: &[f64], or_equal: bool) -> bool {
    values.windows(2).all(|pair| pair[0] > pair[1] || (or_equal && pair[0] == pair[1]))
}

/// The measure that a quantity is computed from.
fn measure(quantity: Quantity) -> Option<Measure> {
    match quantity {
        Quantity::Throughput | Quantity::ThroughputLoss | Quantity::ThroughputGain => {
            Some(Measure::Throughput)
        }
        Quantity::CpuTimeIncrease => Some(Measure::CpuTime),
        Quantity::Clock => Some(Measure::Clock),
        Quantity::Latency => Some(Measure::LatencyMax),
        Quantity::LatencyMean => Some(Measure::LatencyMean),
        _ => None,
    }
}

/// Our value of a row in its unit.
fn value(paper: &Paper, row: &Row, simulated: &dyn Simulated) -> Option<f64> {
    if let Some(figure) = simulated.figure(&row.id) {
        return Some(figure);
    }
    let of = |config: &Config, measure| simulated.measure(config, measure);
    let ratio = |measure| Some(of(&row.config, measure)? / of(row.against.as_ref()?, measure)?);
    match row.quantity {
        Quantity::ThroughputLoss => Some(100.0 * (1.0 - ratio(Measure::Throughput)?)),
        Quantity::ThroughputGain => Some(100.0 * (ratio(Measure::Throughput)? - 1.0)),
        Quantity::CpuTimeIncrease => Some(100.0 * (ratio(Measure::CpuTime)? - 1.0)),
        Quantity::LossRemoved => loss_removed(paper, row, simulated),
        Quantity::Throughput => scaled(paper, row, simulated),
        Quantity::Clock => Some(of(&row.config, Measure::Clock)? / 1e6),
        _ => None,
    }
}

/// Percent of the loss of `against` that `config` takes away. Both losses are against the variant
/// "none" under the policy of `against`, in CPU time where the paper measured that.
fn loss_removed(paper: &Paper, row: &Row, simulated: &dyn Simulated) -> Option<f64> {
    let before = row.against.as_ref()?;
    let none = Config { variant: "none".into(), ..before.clone() };
    let by_cpu_time = paper
        .rows
        .iter()
        .any(|other| other.config == *before && other.quantity == Quantity::CpuTimeIncrease);
    let measure = if by_cpu_time { Measure::CpuTime } else { Measure::Throughput };
    let of = |config| simulated.measure(config, measure);
    let (now, before, none) = (of(&row.config)?, of(before)?, of(&none)?);
    Some(100.0 * (1.0 - (now / none - 1.0) / (before / none - 1.0)))
}

/// Throughput on the paper's scale; `None` for the row that fixes the scale.
fn scaled(paper: &Paper, row: &Row, simulated: &dyn Simulated) -> Option<f64> {
    let scale = paper.rows.iter().find(|other| {
        other.purpose == Use::Calibrates
            && other.quantity == Quantity::Throughput
            && other.unit == row.unit
            && (&other.config.machine, &other.config.workload)
                == (&row.config.machine, &row.config.workload)
    })?;
    if scale.id == row.id {
        return None;
    }
    let of = |config| simulated.measure(config, Measure::Throughput);
    Some(of(&row.config)? / of(&scale.config)? * scale.value)
}
