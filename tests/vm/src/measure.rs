// SPDX-License-Identifier: MIT OR Apache-2.0
//! Results of benchmarks, in the form that `./x bench` collects.

use std::fs;

use anyhow::{Context, Result, ensure};
use serde::Serialize;

/// What another program or setting reached in the same run.
#[derive(Clone, Serialize)]
pub struct Baseline {
    /// Who.
    pub name: String,
    /// What it reached, in the result's unit.
    pub value: f64,
}

/// One figure.
#[derive(Clone, Serialize)]
pub struct Figure {
    /// Stable name.
    pub name: String,
    /// Median, or the count.
    pub value: f64,
    /// Unit.
    pub unit: &'static str,
    /// `higher` or `lower`.
    pub better: &'static str,
    /// Number of repetitions or samples.
    pub n: u64,
    /// Least and greatest repetition.
    pub min: f64,
    /// See `min`.
    pub max: f64,
    /// Peer.
    pub baseline: Option<Baseline>,
}

impl Figure {
    /// From repetitions, of which the median counts.
    pub fn of(
        name: &str,
        unit: &'static str,
        better: &'static str,
        values: &[f64],
    ) -> Result<Self> {
        ensure!(!values.is_empty(), "{name}: nothing was measured");
        Ok(Figure {
            name: name.into(),
            value: median(values),
            unit,
            better,
            n: values.len() as u64,
            min: values.iter().copied().fold(f64::INFINITY, f64::min),
            max: values.iter().copied().fold(f64::NEG_INFINITY, f64::max),
            baseline: None,
        })
    }

    /// A count out of `n`.
    pub fn count(name: &str, count: u64, n: u64) -> Self {
        let value = count as f64;
        Figure {
            name: name.into(),
            value,
            unit: "samples",
            better: "lower",
            n,
            min: value,
            max: value,
            baseline: None,
        }
    }

    /// The same with what a peer reached.
    pub fn against(mut self, name: &str, value: f64) -> Self {
        self.baseline = Some(Baseline { name: name.into(), value });
        self
    }
}

/// Median of values in any order, of which there is at least one.
pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let n = sorted.len();
    if n % 2 == 1 { sorted[n / 2] } else { (sorted[n / 2 - 1] + sorted[n / 2]) / 2.0 }
}

/// Write the figures where the host collects them, and print them.
pub fn publish(bench: &str, figures: &[Figure]) -> Result<()> {
    for f in figures {
        let peer =
            f.baseline.as_ref().map(|b| format!(", {} {:.2}", b.name, b.value)).unwrap_or_default();
        println!(
            "{} {:.2} {} (n {}, {:.2}..{:.2}{peer})",
            f.name, f.value, f.unit, f.n, f.min, f.max
        );
    }
    let dir =
        std::env::var("TURBOLANE_OUT").context("TURBOLANE_OUT does not say where results go")?;
    fs::write(format!("{dir}/{bench}.json"), serde_json::to_string(figures)?)
        .with_context(|| format!("{dir} cannot be written"))
}
