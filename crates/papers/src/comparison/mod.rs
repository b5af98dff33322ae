// SPDX-License-Identifier: MIT OR Apache-2.0
//! Published figures next to simulated ones: what `papers` says.
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
//! A ranking holds if the simulated values are in its order; one that lacks a value is open.
//!
//! Why ours differs is not said in words but by another simulation: the same experiment with the
//! one change that is held to be the cause. It explains a miss if it brings the value nearer to the
//! published one, or makes the ranking hold; otherwise the miss is not explained.
//!
//! The papers measured their prototypes; the result of Turbolane's policy in the same experiment is
//! shown alongside and not compared.

mod text;

use serde::{Deserialize, Serialize};

use crate::published::{Config, Order, Paper, Quantity, Row, Use};
use report::SCHEMA;

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

/// Who answers: a simulation, or values that it kept.
pub trait Simulated {
    /// A measure of a configuration; `None` if it was not simulated.
    fn measure(&self, config: &Config, measure: Measure) -> Option<f64>;
    /// The value of a row that is no measure of a configuration, in the row's unit.
    fn figure(&self, id: &str) -> Option<f64>;
    /// The experiment of that row or ranking with the change that is held to be the cause of a
    /// miss.
    fn what_if(&self, id: &str) -> Option<Variation<'_>>;
    /// All experiments with Turbolane's policy in the place of the papers' prototypes.
    fn turbolane(&self) -> Option<Box<dyn Simulated + '_>>;
}

/// The same experiments with something changed.
pub struct Variation<'a> {
    /// What, in words that follow "if".
    pub change: &'a str,
    /// Who answers.
    pub simulated: Box<dyn Simulated + 'a>,
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

/// One row next to ours.
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
    /// A changed experiment, of a miss; `null` if there is none.
    pub what_if: Option<WhatIf>,
    /// What Turbolane's policy yields in a mitigated row, in its unit; `null` if not simulated.
    pub turbolane: Option<f64>,
}

/// A miss in a changed experiment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WhatIf {
    /// What was changed, in words that follow "if".
    pub change: String,
    /// What it yields: one value of a row, those of a ranking in its order.
    pub simulated: Vec<Option<f64>>,
    /// Whether it comes nearer, or the ranking holds.
    pub explains: bool,
}

/// One ranking next to ours.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OrderResult {
    /// As published.
    pub published: Order,
    /// Ours, in the published order, as measured; `null` where it was not simulated.
    pub simulated: Vec<Option<f64>>,
    /// Whether ours are in that order; `null` if a value is missing.
    pub holds: Option<bool>,
    /// A changed experiment, of a violated one; `null` if there is none.
    pub what_if: Option<WhatIf>,
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
    /// Rows outside of their tolerance and violated rankings that no one explained.
    pub unexplained: u32,
}

impl Reproduction {
    /// The papers' figures next to those of `simulated`.
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
        }
        let missed = |row: &&RowResult| {
            matches!(row.published.purpose, Use::Predicts | Use::Repeats)
                && row.within == Some(false)
        };
        let open = paper.rows.iter().filter(missed).filter(|row| !explains(&row.what_if));
        self.unexplained += open.count() as u32;
        for order in paper.orders.iter().filter(|order| order.published.purpose == Use::Predicts) {
            self.orders += 1;
            self.orders_compared += u32::from(order.holds.is_some());
            self.order_violations += u32::from(order.holds == Some(false));
            self.unexplained += u32::from(order.holds == Some(false) && !explains(&order.what_if));
        }
    }
}

fn explains(what_if: &Option<WhatIf>) -> bool {
    what_if.as_ref().is_some_and(|what_if| what_if.explains)
}

fn compare(paper: &Paper, simulated: &dyn Simulated) -> PaperResult {
    PaperResult {
        document: paper.document.clone(),
        title: paper.title.clone(),
        rows: paper.rows.iter().map(|row| compare_row(paper, row, simulated)).collect(),
        orders: paper.orders.iter().map(|order| rank(order, simulated)).collect(),
    }
}

fn compare_row(paper: &Paper, row: &Row, simulated: &dyn Simulated) -> RowResult {
    let value_of = |simulated: &dyn Simulated| {
        let compared = row.purpose != Use::Context;
        let value = compared.then(|| value(paper, row, simulated)).flatten();
        value.filter(|value| value.is_finite())
    };
    let ours = value_of(simulated);
    let error = ours.map(|ours| row.error(ours));
    let tolerance = row.quantity.tolerance();
    let within = error.map(|error| tolerance.allows(error));
    let what_if = |error: f64| {
        let other = simulated.what_if(&row.id)?;
        let value = value_of(other.simulated.as_ref());
        Some(WhatIf {
            change: other.change.into(),
            simulated: vec![value],
            explains: value.is_some_and(|value| row.error(value).abs() < error.abs()),
        })
    };
    RowResult {
        published: row.clone(),
        simulated: ours,
        error,
        error_unit: tolerance.unit().into(),
        within,
        what_if: error.filter(|_| within == Some(false)).and_then(what_if),
        turbolane: if row.mitigated {
            simulated.turbolane().and_then(|simulated| value_of(simulated.as_ref()))
        } else {
            None
        },
    }
}

fn rank(order: &Order, simulated: &dyn Simulated) -> OrderResult {
    let (ours, holds) = ranked(order, simulated);
    let what_if = || {
        let other = simulated.what_if(&order.id)?;
        let (values, holds) = ranked(order, other.simulated.as_ref());
        let explains = holds == Some(true);
        Some(WhatIf { change: other.change.into(), simulated: values, explains })
    };
    let what_if = if holds == Some(false) { what_if() } else { None };
    OrderResult { published: order.clone(), simulated: ours, holds, what_if }
}

/// The values in the published order, and whether they are in it.
fn ranked(order: &Order, simulated: &dyn Simulated) -> (Vec<Option<f64>>, Option<bool>) {
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
    (ours, holds)
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
