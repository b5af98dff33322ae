// SPDX-License-Identifier: MIT OR Apache-2.0
//! Group `best`: every scenario on every CPU model, by every detection, with the lane's defaults:
//! whether it is ever worse than nothing, and how far it is from the best choice (`sim::best`). On
//! this machine, no guest; nothing here is a time of this machine.
//!
//! Speeds are means of three seeds. `best.worst_by_chance_pct`: how far the fair scheduler is from
//! itself with three others, at most.
//!
//! Each figure comes for the loads and machines that constants were chosen on (`tuned`), and for
//! those that were held out of every choice (`held_out`); `sim::best::HELD_OUT` and
//! `cpumodel::HELD_OUT_CPUS` name these.

use ::sim::best::{DETECTIONS, HELD_OUT, Place, Verdict};
use ::sim::compare::loss;
use anyhow::{Context, Result};
use cpumodel::HELD_OUT_CPUS;
use rayon::prelude::*;

use crate::measure::{Figure, publish};

/// The web servers of the papers, whose loss is to be removed, each on its own machine.
const SERVERS: [&str; 3] = ["sfma-nginx", "systor-nginx", "thesis-nginx"];
/// Seeds of those.
const SEEDS: u64 = 3;

/// Compute and publish.
pub fn run() -> Result<()> {
    println!(
        "held out: {} on any machine, any load on {}",
        HELD_OUT.join(", "),
        HELD_OUT_CPUS.join(", ")
    );
    let verdicts = verdicts()?;
    let mut figures = Vec::new();
    for (detection, _) in DETECTIONS {
        for (group, held_out) in [("tuned", false), ("held_out", true)] {
            let of = |(place, verdict): &&(Place, Verdict)| {
                place.is_held_out() == held_out && verdict.detection == detection
            };
            let all: Vec<&(Place, Verdict)> = verdicts.iter().filter(of).collect();
            figures.extend(summaries(&format!("{detection}.{group}"), &all)?);
        }
    }
    figures.extend(removed()?);
    publish("best", &figures)
}

/// All places, as many at a time as there are CPUs; in order.
fn verdicts() -> Result<Vec<(Place, Verdict)>> {
    let judged = |place: Place| place.verdicts().map(|verdicts| (place, verdicts));
    let done: Result<Vec<_>, _> = Place::all()?.into_par_iter().map(judged).collect();
    let mut all = Vec::new();
    for (place, verdicts) in done.context("a comparison")? {
        for verdict in verdicts {
            print(&place, &verdict);
            let place = Place::new(&place.scenario.name, place.cpu)?.context("it was there")?;
            all.push((place, verdict));
        }
    }
    Ok(all)
}

fn print(place: &Place, verdict: &Verdict) {
    println!(
        "{:18} {:20} {:5} against nothing {:+6.1} % (chance {:+.1}), standing by {:+6.1} %; {:5.1} % below {}{}",
        place.scenario.name,
        place.cpu,
        verdict.detection,
        verdict.against_nothing_pct,
        verdict.chance_pct,
        verdict.against_standing_by_pct,
        verdict.gap_to_best_pct,
        verdict.best,
        if place.is_held_out() { " (held out)" } else { "" },
    );
}

/// The worst place of a figure, with how many there were and their mean.
fn summaries(name: &str, all: &[&(Place, Verdict)]) -> Result<Vec<Figure>> {
    let values = |of: fn(&Verdict) -> Option<f64>| -> Vec<f64> {
        all.iter().filter_map(|(_, verdict)| of(verdict)).collect()
    };
    let worst = |figure: &str, unit, better, values: Vec<f64>| {
        let least = values.iter().copied().fold(f64::INFINITY, f64::min);
        let most = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let value = if better == "higher" { least } else { most };
        Figure {
            name: format!("best.{figure}.{name}"),
            value,
            unit,
            better,
            n: values.len() as u64,
            min: least,
            max: most,
            baseline: None,
        }
    };
    let gaps = values(|verdict| Some(verdict.gap_to_best_pct));
    let mean = gaps.iter().sum::<f64>() / gaps.len().max(1) as f64;
    let mean = Figure::of(&format!("best.mean_gap_to_best_pct.{name}"), "%", "lower", &[mean])?;
    let nothing = values(|verdict| Some(verdict.against_nothing_pct));
    let standing_by = values(|verdict| Some(verdict.against_standing_by_pct));
    let chance = values(|verdict| Some(verdict.chance_pct));
    let migrations = values(|verdict| verdict.migrations_for_nothing_per_s);
    let mut figures = vec![
        worst("worst_against_nothing_pct", "%", "higher", nothing),
        worst("worst_against_standing_by_pct", "%", "higher", standing_by),
        worst("worst_by_chance_pct", "%", "higher", chance),
        worst("gap_to_best_pct", "%", "lower", gaps),
        mean,
    ];
    if !migrations.is_empty() {
        figures.push(worst("migrations_for_nothing_per_s", "1/s", "lower", migrations));
    }
    Ok(figures)
}

/// The share of the licence loss that the defaults remove.
fn removed() -> Result<Vec<Figure>> {
    let mut figures = Vec::new();
    for detection in ["hint", "trap"] {
        for server in SERVERS {
            let policy = format!("lane:detect={detection}");
            let losses: Result<Vec<_>, _> =
                (1..=SEEDS).map(|seed| loss(server, &policy, seed)).collect();
            let losses = losses.with_context(|| format!("{server} under {policy}"))?;
            let shares: Vec<f64> = losses.iter().map(|loss| loss.removed_pct()).collect();
            let name = format!("best.loss_removed_pct.{detection}.{server}");
            figures.push(Figure::of(&name, "%", "higher", &shares)?);
        }
    }
    Ok(figures)
}
