// SPDX-License-Identifier: MIT OR Apache-2.0
//! What counts: see the head of the module.

use serde::{Deserialize, Serialize};

use super::{OrderResult, PaperResult, RowResult, Verdict, WhatIf};
use crate::published::Use;

/// How well it went.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Score {
    /// Rows that count: those that predict, and those that follow and are no hit.
    pub predicted: u32,
    /// Of those: within their tolerance.
    pub within: u32,
    /// Of those: within it or not, depending on a near-free constant.
    pub undecided: u32,
    /// Of those: outside of it.
    pub missed: u32,
    /// Hits that follow from the model's inputs, and so do not count.
    pub follow: u32,
    /// `within` of `predicted` in percent: what was not simulated is no hit. `null` without rows.
    pub within_tolerance_pct: Option<f64>,
    /// Rankings that count, as rows do.
    pub orders: u32,
    /// Of those: hold with every seed and value.
    pub orders_held: u32,
    /// Of those: hold with some.
    pub orders_undecided: u32,
    /// Of those: hold with none.
    pub order_violations: u32,
    /// Rankings that hold and follow from the model's inputs.
    pub orders_follow: u32,
    /// Rows and rankings that are missed and not explained.
    pub unexplained: u32,
}

/// Counts, and the ids of misses that nothing explains.
pub(super) fn of(papers: &[PaperResult]) -> (Score, Vec<String>) {
    let mut score = Score::default();
    papers.iter().flat_map(|paper| &paper.rows).for_each(|row| score.add_row(row));
    papers.iter().flat_map(|paper| &paper.orders).for_each(|order| score.add_order(order));
    if score.predicted > 0 {
        let share = f64::from(score.within) / f64::from(score.predicted);
        score.within_tolerance_pct = Some(100.0 * share);
    }
    let open: Vec<String> = papers.iter().flat_map(unexplained).collect();
    score.unexplained = open.len() as u32;
    (score, open)
}

impl Score {
    fn add_row(&mut self, row: &RowResult) {
        match (row.published.purpose, row.verdict) {
            (Use::Follows, Some(Verdict::Met)) => self.follow += 1,
            (Use::Predicts | Use::Follows, verdict) => {
                self.predicted += 1;
                self.within += u32::from(verdict == Some(Verdict::Met));
                self.undecided += u32::from(verdict == Some(Verdict::Undecided));
                self.missed += u32::from(verdict == Some(Verdict::Missed));
            }
            _ => {}
        }
    }

    fn add_order(&mut self, order: &OrderResult) {
        match (order.published.purpose, order.verdict) {
            (Use::Follows, Some(Verdict::Met)) => self.orders_follow += 1,
            (Use::Predicts | Use::Follows, verdict) => {
                self.orders += 1;
                self.orders_held += u32::from(verdict == Some(Verdict::Met));
                self.orders_undecided += u32::from(verdict == Some(Verdict::Undecided));
                self.order_violations += u32::from(verdict == Some(Verdict::Missed));
            }
            _ => {}
        }
    }
}

fn unexplained(paper: &PaperResult) -> impl Iterator<Item = String> {
    let open = |purpose, verdict, what_if: &Option<WhatIf>| {
        !matches!(purpose, Use::Context | Use::Calibrates)
            && verdict == Some(Verdict::Missed)
            && !what_if.as_ref().is_some_and(|what_if| what_if.explains)
    };
    let rows = paper.rows.iter().filter(move |row| {
        let published = &row.published;
        open(published.purpose, row.verdict, &row.what_if)
    });
    let orders = paper.orders.iter().filter(move |order| {
        let published = &order.published;
        open(published.purpose, order.verdict, &order.what_if)
    });
    let ids = rows.map(|row| &row.published.id).chain(orders.map(|order| &order.published.id));
    ids.cloned().collect::<Vec<_>>().into_iter()
}
