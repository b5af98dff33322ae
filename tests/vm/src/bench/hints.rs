// SPDX-License-Identifier: MIT OR Apache-2.0
//! `lane.hint_ns`: begin and end of a section when nothing has to move, on this machine.
//! `mark.preload_ns`: the same around a call of a marked function, beside a pair of uprobes. The
//! measurements are the programs `hint_bench` and `mark_bench` (src/bin), which print a figure per
//! line; here they are run and collected.

use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

use crate::measure::{Figure, publish};

/// A line of either program; case and ABI are `hint_bench`'s.
#[derive(Deserialize)]
struct Line {
    name: String,
    #[serde(default)]
    case: String,
    #[serde(default)]
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
    let lines = lines(&mut beside("hint_bench")?)?;
    let mut figures: Vec<Figure> =
        lines.iter().map(|l| figure(l, format!("{}.{}.{}", l.name, l.case, l.abi))).collect();
    figures.push(bar(&lines)?);
    publish("hints", &figures)
}

/// What the bar is about, alone.
pub fn nothing_to_move() -> Result<Figure> {
    bar(&lines(&mut beside("hint_bench")?)?)
}

/// What a mark adds to a call.
pub fn marks() -> Result<()> {
    let library = std::env::current_exe()?.with_file_name("libturbolane_marks.so");
    ensure!(library.exists(), "{} is not there", library.display());
    let mut bench = beside("mark_bench")?;
    bench.env("LD_PRELOAD", library).env("TURBOLANE_MARKS", "libc.so.6:bsearch@2");
    let lines = lines(&mut bench)?;
    let of = |name: &str| {
        let line = lines.iter().find(|line| line.name == name);
        line.with_context(|| format!("mark_bench says nothing of {name}"))
    };
    let uprobes = of("mark.uprobes_ns")?;
    let mark = of("mark.preload_ns")?;
    let figure = figure(mark, mark.name.clone()).against("a pair of uprobes", uprobes.median);
    publish("marks", &[figure])
}

/// The slower of the two ABIs stands for all.
fn bar(lines: &[Line]) -> Result<Figure> {
    let bar = lines.iter().filter(|l| l.case == CASE).max_by(|a, b| a.median.total_cmp(&b.median));
    let bar = bar.with_context(|| format!("hint_bench has no case {CASE}"))?;
    Ok(figure(bar, bar.name.clone()))
}

/// A program that was built with this one.
fn beside(name: &str) -> Result<Command> {
    Ok(Command::new(std::env::current_exe()?.with_file_name(name)))
}

/// What a program prints.
fn lines(program: &mut Command) -> Result<Vec<Line>> {
    let output = program.stdin(Stdio::null()).stderr(Stdio::inherit()).output();
    let output = output.with_context(|| format!("{program:?} cannot be started"))?;
    ensure!(output.status.success(), "{program:?} ended with {}", output.status);
    let text = String::from_utf8(output.stdout)?;
    text.lines().map(|line| Ok(serde_json::from_str(line)?)).collect()
}
