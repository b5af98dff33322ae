// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a row or ranking is in one run's measures; the table of the module's head, computed.

use super::{Measure, Simulated};
use crate::published::{Config, Order, Paper, Quantity, Row, Use};

/// The values in the published order, and whether they are in it.
pub(super) fn ranked(order: &Order, simulated: &dyn Simulated) -> (Vec<Option<f64>>, Option<bool>) {
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

/// Our value of a row in its unit; `None` if it was not simulated, or is not compared.
pub(super) fn value(paper: &Paper, row: &Row, simulated: &dyn Simulated) -> Option<f64> {
    if row.purpose == Use::Context {
        return None;
    }
    computed(paper, row, simulated).filter(|value| value.is_finite())
}

fn computed(paper: &Paper, row: &Row, simulated: &dyn Simulated) -> Option<f64> {
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
