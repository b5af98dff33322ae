// SPDX-License-Identifier: MIT OR Apache-2.0
//! What `turbolane verify` found: two kinds of runs of a command, and whether they differ.

use serde::{Deserialize, Serialize};

use crate::text::{Align, Table, wrap};

/// The document.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct VerifyReport {
    /// See [`crate::SCHEMA`].
    pub schema: u32,
    /// Draws the order of the runs.
    pub seed: u64,
    /// Runs of each kind, warming up not counted.
    pub runs: usize,
    /// The smallest difference that matters.
    pub margin_pct: f64,
    /// The one kind.
    pub a: Side,
    /// The other.
    pub b: Side,
    /// What is compared: `time`, or the pattern of the number in the output.
    pub metric: String,
    /// Whether less of it is better.
    pub smaller_is_better: bool,
    /// The comparison of the metric.
    pub effect: Effect,
    /// The comparison of CPU time, less being better.
    pub cpu_time: Effect,
    /// What the effect means, in words.
    pub verdict: String,
}

/// One kind of runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Side {
    /// What was executed.
    pub command: String,
    /// Run by run, in the order in which they were made.
    pub samples: Vec<Sample>,
}

/// One run.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// Its place in the order of all runs.
    pub order: usize,
    /// Time from start to end.
    pub time_ns: u64,
    /// CPU time of the command and its children, user and system.
    pub cpu_time_ns: u64,
    /// The number in its output; `null` if none was asked for.
    pub metric: Option<f64>,
}

/// A change from a to b.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Effect {
    /// Median of a.
    pub a: f64,
    /// Median of b.
    pub b: f64,
    /// Change from a to b.
    pub change_pct: f64,
    /// Interval of 95 %.
    pub low_pct: f64,
    /// See `low_pct`.
    pub high_pct: f64,
    /// In one word.
    pub verdict: Verdict,
    /// Runs of each kind that it would take to tell; `null` if it can be told.
    pub runs_needed: Option<usize>,
}

/// What a change means.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// b is better.
    Better,
    /// b is worse.
    Worse,
    /// A difference larger than the margin is ruled out.
    NoDifference,
    /// It cannot be told.
    NotEnoughRuns,
}

impl Effect {
    /// In words.
    pub fn words(&self, margin_pct: f64) -> String {
        let (change, low, high) = (self.change_pct, self.low_pct, self.high_pct);
        let interval = format!("{change:+.1} %, 95 % interval {low:+.1} to {high:+.1} %");
        match self.verdict {
            Verdict::Better => format!("better: {interval}"),
            Verdict::Worse => format!("worse: {interval}"),
            Verdict::NoDifference => {
                format!("no difference found: more than {margin_pct} % is ruled out ({interval})")
            }
            Verdict::NotEnoughRuns => format!(
                "not enough runs to tell ({interval}); a difference of {margin_pct} % takes about {} \
                 of each kind",
                self.runs_needed.map_or("more".into(), |runs| runs.to_string())
            ),
        }
    }
}

impl VerifyReport {
    /// The report as text of at most `width` columns.
    pub fn text(&self, width: usize) -> String {
        let mut text = wrap("A: ", &self.a.command, width);
        text += &wrap("B: ", &self.b.command, width);
        text += &format!("{} runs of each in random order, seed {}\n\n", self.runs, self.seed);
        let mut table = Table::new(&[
            ("", Align::Left),
            ("A", Align::Right),
            ("B", Align::Right),
            ("B AGAINST A", Align::Left),
        ]);
        let shown = |value: f64, is_time: bool| match is_time {
            true => format!("{:.3} s", value / 1e9),
            false => format!("{value:.4}"),
        };
        for (name, effect, is_time) in [
            (self.metric.as_str(), &self.effect, self.metric == "time"),
            ("CPU time", &self.cpu_time, true),
        ] {
            table.row(vec![
                name.into(),
                shown(effect.a, is_time),
                shown(effect.b, is_time),
                effect.words(self.margin_pct),
            ]);
        }
        text += &table.text(width);
        text + "\n" + &wrap("verdict: ", &self.verdict, width)
    }
}
