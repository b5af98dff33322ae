// SPDX-License-Identifier: MIT OR Apache-2.0
//! `lane.hint_ns`: begin and end of a section when nothing has to move, on this machine. The
//! measurement is the program `hint_bench` (src/bin), which prints a figure per line; here it is
//! run and collected.

use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

use crate::measure::{Figure, publish};

/// A line of `hint_bench`.
#[derive(Deserialize)]
struct Line {
    name: String,
    case: String,
    abi: String,
    n: u64,
    median: f64,
    min: f64,
    max: f64,
}

/// What the bar is about: a scheduler runs, and nothing has to move.
const CASE: &str = "mapped_nothing_to_move";

fn figure(line: &Line, name: String) -> Figure {
    let &Line { n, median: value, min, max, .. } = line;
    Figure { name, value, unit: "ns", better: "lower", n, min, max, baseline: None }
}

/// Measure and publish.
pub fn run() -> Result<()> {
    let lines = lines()?;
    let mut figures: Vec<Figure> =
        lines.iter().map(|l| figure(l, format!("{}.{}.{}", l.name, l.case, l.abi))).collect();
    figures.push(bar(&lines)?);
    publish("hints", &figures)
}

/// What the bar is about, alone.
pub fn nothing_to_move() -> Result<Figure> {
    bar(&lines()?)
}

/// The slower of the two ABIs stands for all.
fn bar(lines: &[Line]) -> Result<Figure> {
    let bar = lines.iter().filter(|l| l.case == CASE).max_by(|a, b| a.median.total_cmp(&b.median));
    let bar = bar.with_context(|| format!("hint_bench has no case {CASE}"))?;
    Ok(figure(bar, bar.name.clone()))
}

/// What `hint_bench` prints.
fn lines() -> Result<Vec<Line>> {
    let program = std::env::current_exe()?.with_file_name("hint_bench");
    let output = Command::new(&program).stdin(Stdio::null()).stderr(Stdio::inherit()).output();
    let output = output.with_context(|| format!("{} cannot be started", program.display()))?;
    ensure!(output.status.success(), "{} ended with {}", program.display(), output.status);
    let text = String::from_utf8(output.stdout)?;
    text.lines().map(|line| Ok(serde_json::from_str(line)?)).collect()
}
