// SPDX-License-Identifier: MIT OR Apache-2.0
//! Group `dvfs`: how fast timelines are replayed, and how much of DIM comes out. On this machine,
//! no guest.
//!
//! The timeline is the built-in model of a web server, 1,148 periods and 459 changes of the clock
//! per simulated second. CPU time counts, not wall time: what else runs on the machine does not. A
//! repetition is a tenth of a second or more. The bar is for one CPU under any policy but the
//! oracle, so the slowest policy of each repetition counts; the oracle, which tries every decision,
//! has a row of its own.

use ::dvfs::{Core, Model, Spec, Timeline};
use anyhow::{Context, Result, ensure};
use machine::{CpuModel, Platform};
use std::process::Command;

use super::sim::cpu_s;
use crate::measure::{Figure, publish};

/// Repetitions.
const N: usize = 7;
/// CPU time of a repetition at least, s.
const REPETITION_S: f64 = 0.1;
/// Policies that decide as time goes by.
const ONLINE: [(&str, Spec); 7] = [
    ("fixed", Spec::Fixed(670_000)),
    ("break_even", Spec::BreakEven),
    ("random", Spec::Random),
    ("average", Spec::Average),
    ("share", Spec::Share),
    ("hints", Spec::Hints(u64::MAX)),
    ("switches", Spec::Switches(670_000)),
];

/// Measure and publish.
pub fn run() -> Result<()> {
    let model = Model::built_in("dim-nginx").context("it is built in")??;
    let cpu = CpuModel::built_in(&model.machine).context("it is built in")??;
    let platform = Platform::new(&cpu);
    let core = Core::new(&platform, platform.nr_cores);
    let timeline = model.timeline(&platform, Some("calls"), 1).context("it has the variant")?;
    let mut figures = Vec::new();
    let mut slowest = [f64::INFINITY; N];
    for (name, spec) in ONLINE {
        let speeds = speeds(&core, &timeline, spec)?;
        slowest.iter_mut().zip(&speeds).for_each(|(least, speed)| *least = least.min(*speed));
        let name = format!("dvfs.sim_speed.{name}");
        figures.push(Figure::of(&name, "s/s", "higher", &speeds)?);
    }
    figures.push(Figure::of("dvfs.sim_speed", "s/s", "higher", &slowest)?);
    let speeds = speeds(&core, &timeline, Spec::Oracle)?;
    figures.push(Figure::of("dvfs.sim_speed.oracle", "s/s", "higher", &speeds)?);
    figures.push(reproduced()?);
    publish("dvfs", &figures)
}

/// Simulated seconds per second of CPU time.
fn speeds(core: &Core, timeline: &Timeline, spec: Spec) -> Result<Vec<f64>> {
    let mut speeds = Vec::new();
    // the first fills caches
    for repetition in 0..=N {
        let (mut simulated_s, at_s) = (0.0, cpu_s());
        while cpu_s() - at_s < REPETITION_S {
            let outcome = spec.run(core, &[timeline], repetition as u64)?;
            simulated_s += outcome.time_ns as f64 / 1e9;
        }
        if repetition > 0 {
            speeds.push(simulated_s / (cpu_s() - at_s));
        }
    }
    Ok(speeds)
}

/// Share of DIM's predicted rows that come out, as `turbolane reproduce` counts it. The program
/// lies beside this one.
fn reproduced() -> Result<Figure> {
    let program = std::env::current_exe()?.with_file_name("turbolane");
    let output = Command::new(&program)
        .args(["reproduce", "DIM", "--json"])
        .output()
        .with_context(|| format!("cannot run {}", program.display()))?;
    // 1: a ranking does not hold
    ensure!(matches!(output.status.code(), Some(0 | 1)), "{} failed", program.display());
    let document: serde_json::Value = serde_json::from_slice(&output.stdout)?;
    let score = &document["score"];
    let share = score["within_tolerance_pct"].as_f64().context("DIM has rows that predict")?;
    let rows = score["predicted"].as_u64().context("a number of rows")?;
    let name = "reproduce.dim_rows_within_tolerance_pct".into();
    let (min, max) = (share, share);
    Ok(Figure {
        name,
        value: share,
        unit: "%",
        better: "higher",
        n: rows,
        min,
        max,
        baseline: None,
    })
}
