// SPDX-License-Identifier: MIT OR Apache-2.0
//! From runs to verdicts: means over seeds, ranges over near-free constants, and what a change
//! breaks.
//!
//! A changed experiment may have fewer seeds than the model. Its value is therefore the model's
//! mean over all seeds, plus the mean difference between the two with the seeds that both have.

use super::value::{ranked, value};
use super::{
    Changed, Experiments, OrderResult, PaperResult, Range, RowResult, Runs, Verdict, WhatIf,
};
use crate::published::{Order, Paper, Row, Use};

/// Part of a gap that a change must close to explain a miss.
const CLOSED: f64 = 0.5;

/// What a change may not break.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strict {
    /// Calibrating rows: for another value of a constant.
    Calibration,
    /// All that is compared, and rankings that hold: for the cause of a miss.
    All,
}

/// One paper, compared.
pub(super) fn paper(paper: &Paper, experiments: &dyn Experiments) -> PaperResult {
    let judge = Judge {
        paper,
        experiments,
        model: experiments.model(),
        turbolane: experiments.turbolane(),
        elsewhere: experiments.elsewhere(),
    };
    PaperResult {
        document: paper.document.clone(),
        title: paper.title.clone(),
        rows: paper.rows.iter().map(|row| judge.row(row)).collect(),
        orders: paper.orders.iter().map(|order| judge.order(order)).collect(),
    }
}

/// Ids of what a change breaks: rows that leave their tolerance, or are outside already and go
/// farther, and rankings that no longer hold with every seed.
pub fn broken(paper: &Paper, model: &Runs, changed: &Runs, strict: Strict) -> Vec<String> {
    let concerned = |purpose| match strict {
        Strict::Calibration => purpose == Use::Calibrates,
        Strict::All => purpose != Use::Context,
    };
    let leaves = |row: &&Row| {
        let error = |runs| Some(row.error(mean(&values(paper, row, runs)?)));
        let (Some(before), Some(after)) = (error(model), error(changed)) else { return false };
        let tolerance = row.quantity.tolerance();
        let goes_farther = tolerance.allows(before) || after.abs() > before.abs();
        concerned(row.purpose) && !tolerance.allows(after) && goes_farther
    };
    let overturned = |order: &&Order| {
        let holds =
            |runs: &Runs<'_>| runs.iter().all(|run| ranked(order, run.as_ref()).1 == Some(true));
        concerned(order.purpose) && holds(model) && !holds(changed)
    };
    let rows = paper.rows.iter().filter(leaves).map(|row| row.id.clone());
    rows.chain(paper.orders.iter().filter(overturned).map(|order| order.id.clone())).collect()
}

struct Judge<'a> {
    paper: &'a Paper,
    experiments: &'a dyn Experiments,
    model: Runs<'a>,
    turbolane: Runs<'a>,
    elsewhere: Vec<Changed<'a>>,
}

impl Judge<'_> {
    fn row(&self, row: &Row) -> RowResult {
        let tolerance = row.quantity.tolerance();
        let mut result = RowResult {
            published: row.clone(),
            simulated: None,
            stddev: None,
            range: None,
            error: None,
            error_unit: tolerance.unit().into(),
            verdict: None,
            what_if: None,
            turbolane: None,
        };
        let Some(ours) = values(self.paper, row, &self.model) else { return result };
        let at = mean(&ours);
        let range = self.range(row, &ours);
        let verdict = match &range {
            None => verdict(row, at, at),
            Some(range) => verdict(row, range.least, range.most),
        };
        if verdict == Verdict::Missed {
            result.what_if = self.what_if_row(row, &ours);
        }
        if row.mitigated {
            result.turbolane = values(self.paper, row, &self.turbolane).map(|values| mean(&values));
        }
        RowResult {
            simulated: Some(at),
            stddev: stddev(&ours),
            range,
            error: Some(row.error(at)),
            verdict: Some(verdict),
            ..result
        }
    }

    /// The row's value with a change, from ours without it by seed.
    fn with(&self, row: &Row, ours: &[f64], changed: &Runs<'_>) -> Option<f64> {
        let theirs = values(self.paper, row, changed)?;
        let differences: Vec<f64> = theirs.iter().zip(ours).map(|(a, b)| a - b).collect();
        Some(mean(ours) + mean(&differences))
    }

    fn range(&self, row: &Row, ours: &[f64]) -> Option<Range> {
        let at = mean(ours);
        let mut range =
            Range { least: at, least_if: String::new(), most: at, most_if: String::new() };
        for changed in &self.elsewhere {
            let Some(value) = self.with(row, ours, &changed.runs) else { continue };
            if value < range.least {
                (range.least, range.least_if) = (value, changed.change.clone());
            }
            if value > range.most {
                (range.most, range.most_if) = (value, changed.change.clone());
            }
        }
        (range.least < range.most).then_some(range)
    }

    fn what_if_row(&self, row: &Row, ours: &[f64]) -> Option<WhatIf> {
        let other = self.experiments.what_if(&row.id)?;
        let value = self.with(row, ours, &other.runs);
        let gap = row.error(mean(ours)).abs();
        let nearer = value.is_some_and(|value| row.error(value).abs() <= (1.0 - CLOSED) * gap);
        Some(WhatIf {
            change: other.change,
            simulated: vec![value],
            breaks: other.breaks.to_vec(),
            explains: nearer && other.breaks.is_empty(),
        })
    }

    fn order(&self, order: &Order) -> OrderResult {
        let all = self.model.iter().chain(self.elsewhere.iter().flat_map(|one| &one.runs));
        let holds: Option<Vec<bool>> = all.map(|run| ranked(order, run.as_ref()).1).collect();
        let holds = holds.unwrap_or_default();
        let held = holds.iter().filter(|holds| **holds).count();
        let verdict = match held {
            _ if holds.is_empty() => None,
            0 => Some(Verdict::Missed),
            held if held == holds.len() => Some(Verdict::Met),
            _ => Some(Verdict::Undecided),
        };
        OrderResult {
            published: order.clone(),
            simulated: means(order, &self.model),
            runs: holds.len() as u32,
            held: held as u32,
            verdict,
            what_if: if verdict == Some(Verdict::Missed) {
                self.what_if_order(order)
            } else {
                None
            },
        }
    }

    fn what_if_order(&self, order: &Order) -> Option<WhatIf> {
        let other = self.experiments.what_if(&order.id)?;
        let holds = other.runs.iter().all(|run| ranked(order, run.as_ref()).1 == Some(true));
        Some(WhatIf {
            change: other.change,
            simulated: means(order, &other.runs),
            breaks: other.breaks.to_vec(),
            explains: holds && other.breaks.is_empty(),
        })
    }
}

/// What a range that may be a single value is next to the published figure.
fn verdict(row: &Row, least: f64, most: f64) -> Verdict {
    let tolerance = row.quantity.tolerance();
    let (low, high) = (row.error(least), row.error(most));
    match (tolerance.allows(low), tolerance.allows(high)) {
        (true, true) => Verdict::Met,
        (false, false) if (low > 0.0) == (high > 0.0) => Verdict::Missed,
        _ => Verdict::Undecided,
    }
}

/// A row's values by seed; `None` if one is missing.
fn values(paper: &Paper, row: &Row, runs: &Runs<'_>) -> Option<Vec<f64>> {
    let values: Option<Vec<f64>> = runs.iter().map(|run| value(paper, row, run.as_ref())).collect();
    values.filter(|values| !values.is_empty())
}

/// A ranking's values over the seeds.
fn means(order: &Order, runs: &Runs<'_>) -> Vec<Option<f64>> {
    let by_seed: Vec<_> = runs.iter().map(|run| ranked(order, run.as_ref()).0).collect();
    let mean_of = |place: usize| {
        let values: Option<Vec<f64>> = by_seed.iter().map(|values| values[place]).collect();
        values.filter(|values| !values.is_empty()).map(|values| mean(&values))
    };
    (0..order.best_first.len()).map(mean_of).collect()
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

fn stddev(values: &[f64]) -> Option<f64> {
    let mean = mean(values);
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    (values.len() > 1).then(|| (squares / (values.len() - 1) as f64).sqrt())
}
