// SPDX-License-Identifier: MIT OR Apache-2.0
//! Group `predict`: how much of what the papers published the simulator predicts (`crates/papers`,
//! means of all seeds). On this machine, no guest; nothing here is a time of this machine, so what
//! else runs does not matter.

use anyhow::{Context, Result};
use papers::Effort;
use papers::published::{PAPER_FILES, Paper};

use crate::measure::{Figure, publish};

/// Compute and publish.
pub fn reproduce() -> Result<()> {
    let papers: Vec<Paper> =
        PAPER_FILES.iter().map(|(name, _)| built_in(name)).collect::<Result<_>>()?;
    let result = papers::reproduce(&papers, Effort::FULL);
    println!("not explained: {}", result.unexplained.join(", "));
    let score = result.score;
    let figure = |name: &str, value: f64, unit, better, n: u32| Figure {
        name: format!("reproduce.{name}"),
        value,
        unit,
        better,
        n: n.into(),
        min: value,
        max: value,
        baseline: None,
    };
    let (rows, orders) = (score.predicted, score.orders);
    let within_pct = score.within_tolerance_pct.context("there are rows that predict")?;
    let (violations, unexplained) = (score.order_violations.into(), score.unexplained.into());
    publish(
        "reproduce",
        &[
            figure("rows_within_tolerance_pct", within_pct, "%", "higher", rows),
            figure("rows_undecided", score.undecided.into(), "rows", "lower", rows),
            figure("rows_missed", score.missed.into(), "rows", "lower", rows),
            figure("orders_undecided", score.orders_undecided.into(), "rankings", "lower", orders),
            figure("order_violations", violations, "rankings", "lower", orders),
            figure("unexplained_misses", unexplained, "rows", "lower", rows + orders),
        ],
    )
}

/// A paper's figures.
pub fn built_in(name: &str) -> Result<Paper> {
    Ok(Paper::built_in(name).context("it is built in")??)
}
