// SPDX-License-Identifier: MIT OR Apache-2.0
//! Group `sim`: what the simulator says about the policy: `mitigation.*` and `sizing.*` by
//! `sim::compare`, as the tests of crates/sim use it. On this machine, no guest; nothing here is a
//! time of this machine, so what else runs does not matter.

use ::sim::compare::{CompareError, Loss, Parts, Stage, loss, sizing_gap, sizing_reaction};
use ::sim::scenario::{Question, Scenario};
use anyhow::{Context, Result};
use rayon::prelude::*;

use crate::measure::{Figure, publish};

/// Seeds of a comparison; their spread is given with it.
const SEEDS: u64 = 3;
/// Simulated time of a run of sizing, after a second to settle.
const SIZED_NS: u64 = 4_000_000_000;

/// How wide code is noticed: name, settings of `lane`. Hints are the scenarios' own sections, which
/// contain the network's system calls where the papers' marks do; traps are what needs no change to
/// a program.
const DETECTIONS: [(&str, &str); 2] =
    [("hint", ""), ("trap", ",detect=trap,remigrate=syscall-entry")];

/// Compute and publish.
pub fn run() -> Result<()> {
    let mut figures = mitigation()?;
    figures.extend(sizing()?);
    figures.extend(reaction()?);
    publish("sim-results", &figures)
}

/// `f` of all, as many at a time as there are CPUs; in order.
fn in_parallel<T: Sync, R: Send>(
    all: &[T],
    f: impl Fn(&T) -> Result<R, CompareError> + Sync,
) -> Result<Vec<R>> {
    all.par_iter().map(|one| f(one).context("a comparison")).collect()
}

/// Every detection with every scenario.
fn pairs(scenarios: &[&'static str]) -> Vec<(&'static str, &'static str, &'static str)> {
    let with = |&(name, settings): &(&'static str, &'static str)| {
        scenarios.iter().map(move |&scenario| (name, settings, scenario)).collect::<Vec<_>>()
    };
    DETECTIONS.iter().flat_map(with).collect()
}

/// The share of the licence loss that is removed, with automatic sizing; the summary is the worst
/// load, detected by traps. And of that load, what the rest is made of.
fn mitigation() -> Result<Vec<Figure>> {
    let scenarios: Vec<&'static str> = Scenario::that_judge(Question::Mitigation).collect();
    let pairs = pairs(&scenarios);
    let losses = in_parallel(&pairs, |(_, settings, scenario)| {
        let policy = format!("lane:wide=auto{settings}");
        (1..=SEEDS).map(|seed| loss(scenario, &policy, seed)).collect::<Result<Vec<_>, _>>()
    })?;
    let mut figures = Vec::new();
    let mut trapped = Vec::new();
    for ((detection, _, scenario), losses) in pairs.iter().zip(losses) {
        let shares: Vec<f64> = losses.iter().map(Loss::removed_pct).collect();
        let name = format!("mitigation.loss_removed_pct.{detection}.{scenario}");
        let figure = Figure::of(&name, "%", "higher", &shares)?;
        if *detection == "trap" {
            trapped.push((figure.clone(), losses));
        }
        figures.push(figure);
    }
    let worst = trapped.into_iter().min_by(|a, b| a.0.value.total_cmp(&b.0.value));
    let (worst, losses) = worst.context("there are loads")?;
    let parts = |of: fn(&Parts) -> f64| losses.iter().map(|loss| of(&loss.left)).collect();
    let left: [(&str, Vec<f64>); 3] = [
        ("clock", parts(|left| left.clock_pct)),
        ("work", parts(|left| left.work_pct)),
        ("idle", parts(|left| left.idle_pct)),
    ];
    for (part, values) in left {
        figures.push(Figure::of(&format!("mitigation.left_{part}_pct"), "%", "lower", &values)?);
    }
    let worst = Figure { name: "mitigation.loss_removed_pct".into(), ..worst };
    // SFMA's abstract: over 70 %; SYSTOR's 4.1: 71 %
    figures.push(worst.against("SFMA, SYSTOR", 71.0));
    Ok(figures)
}

/// Automatic sizing against every fixed size.
fn sizing() -> Result<Vec<Figure>> {
    let scenarios: Vec<&'static str> = Scenario::that_judge(Question::Sizing).collect();
    let pairs = pairs(&scenarios);
    let gaps = in_parallel(&pairs, |(_, settings, scenario)| {
        let most = Stage::new(scenario)?.nr_cores() - 1;
        sizing_gap(scenario, settings, 1..=most, SEEDS, SIZED_NS)
    })?;
    let (mut figures, mut changes) = (Vec::new(), Vec::new());
    for ((detection, _, scenario), gap) in pairs.iter().zip(gaps) {
        println!("{detection} {scenario}: the best fixed size is {} cores", gap.best_cores);
        let least = gap.by_seed_pct.iter().copied().fold(gap.gap_pct, f64::min);
        let most = gap.by_seed_pct.iter().copied().fold(gap.gap_pct, f64::max);
        figures.push(Figure {
            name: format!("sizing.gap_to_best_static_pct.{detection}.{scenario}"),
            value: gap.gap_pct,
            unit: "%",
            better: "lower",
            n: SEEDS,
            min: least,
            max: most,
            baseline: None,
        });
        let name = format!("sizing.changes_per_s.{detection}.{scenario}");
        changes.push(Figure::of(&name, "1/s", "lower", &[gap.changes_per_s])?);
    }
    for (detection, name) in [
        ("hint", "sizing.worst_gap_to_best_static_pct"),
        ("trap", "sizing.worst_gap_with_traps_pct"),
    ] {
        let of = figures.iter().filter(|figure| figure.name.contains(&format!(".{detection}.")));
        let worst = of.max_by(|a, b| a.value.total_cmp(&b.value)).context("there are loads")?;
        let worst = Figure { name: name.into(), ..worst.clone() };
        // THESIS 5.2.2: its automatic sizing against its best static set
        figures.push(worst.against("THESIS", 9.4));
    }
    figures.append(&mut changes);
    Ok(figures)
}

/// How quickly automatic sizing follows.
fn reaction() -> Result<Vec<Figure>> {
    let seeds: Vec<u64> = (1..=SEEDS).collect();
    let times = in_parallel(&seeds, |seed| sizing_reaction(*seed))?;
    let ms = |ns: fn(&::sim::compare::Reaction) -> u64| -> Vec<f64> {
        times.iter().map(|reaction| ns(reaction) as f64 / 1e6).collect()
    };
    Ok(vec![
        Figure::of("sizing.grows_ms", "ms", "lower", &ms(|reaction| reaction.grows_ns))?,
        Figure::of("sizing.shrinks_ms", "ms", "lower", &ms(|reaction| reaction.shrinks_ns))?,
    ])
}
