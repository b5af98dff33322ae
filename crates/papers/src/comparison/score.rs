// SPDX-License-Identifier: MIT OR Apache-2.0
//! What counts: see the head of the module.

use serde::{Deserialize, Serialize};

use super::{PaperResult, Verdict, WhatIf};
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
    let rows = papers.iter().flat_map(|paper| &paper.rows);
    let rows = Tally::of(rows.map(|row| (row.published.purpose, row.verdict)));
    let orders = papers.iter().flat_map(|paper| &paper.orders);
    let orders = Tally::of(orders.map(|order| (order.published.purpose, order.verdict)));
    let share = || f64::from(rows.met) / f64::from(rows.counted);
    let open: Vec<String> = papers.iter().flat_map(unexplained).collect();
    let score = Score {
        predicted: rows.counted,
        within: rows.met,
        undecided: rows.undecided,
        missed: rows.missed,
        follow: rows.follow,
        within_tolerance_pct: (rows.counted > 0).then(|| 100.0 * share()),
        orders: orders.counted,
        orders_held: orders.met,
        orders_undecided: orders.undecided,
        order_violations: orders.missed,
        orders_follow: orders.follow,
        unexplained: open.len() as u32,
    };
    (score, open)
}

/// How many rows, or rankings, have which verdict: of those that count.
#[derive(Default)]
struct Tally {
    counted: u32,
    met: u32,
    undecided: u32,
    missed: u32,
    /// Met, and does not count.
    follow: u32,
}

impl Tally {
    fn of(all: impl Iterator<Item = (Use, Option<Verdict>)>) -> Tally {
        let mut tally = Tally::default();
        for (purpose, verdict) in all {
            match (purpose, verdict) {
                (Use::Follows, Some(Verdict::Met)) => tally.follow += 1,
                (Use::Predicts | Use::Follows, verdict) => {
                    tally.counted += 1;
                    tally.met += u32::from(verdict == Some(Verdict::Met));
                    tally.undecided += u32::from(verdict == Some(Verdict::Undecided));
                    tally.missed += u32::from(verdict == Some(Verdict::Missed));
                }
                _ => {}
            }
        }
        tally
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
