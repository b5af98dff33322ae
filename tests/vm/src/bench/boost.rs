// SPDX-License-Identifier: MIT OR Apache-2.0
//! Group `boost`: TURBO's locks with real threads and a real kernel, on an emulated FX-8120 whose
//! P-states change the speed of what runs.
//!
//! `turbolane bench locks` measures; from which section size a strategy beats spinning is compared
//! with what TURBO's slides show and with what the model says (`bench locks --model fx-8120`).
//! Seven threads leave a core for what writes P-states for others or executes sections; where
//! threads sleep, and the hardware boosts those that are awake, there are eight, as in the paper.
//! Time is virtual.
//!
//! | figure | what |
//! |---|---|
//! | `boost.break_even_cycles.*` | the size, beside the slides' |
//! | `boost.break_even_error_pct.*` | its difference from the slides' |
//! | `boost.break_even_model_error_pct.*` | the same from the model's |
//! | `boost.hybrid_gap_pct` | the lock that measures and chooses, against the best fixed strategy of each size, by the time of a section; its costs come from other sizes |

use std::process::Command;

use anyhow::{Context, Result, ensure};
use report::locks::{LockBench, Sweep};

use super::predict::built_in;
use crate::guest::modprobe;
use crate::measure::{Figure, publish};

/// Strategies that boost by hand, around their break-evens.
const BY_HAND: [&str; 3] = ["owner", "delegate", "migrate"];
const SIZES_BY_HAND: &str = "70000,100000,140000,200000,300000,400000,500000,600000,700000,1000000";
const THREADS_BY_HAND: &str = "7";

/// Threads that sleep, and the hardware's own boost.
const ASLEEP: [&str; 1] = ["futex"];
const SIZES_ASLEEP: &str = "500000,1000000,1200000,1400000,1600000,2000000,4000000";
const THREADS_ASLEEP: &str = "8";

/// Of each point: tens of sections.
const TIME: &str = "4ms";

/// Owners boosted by themselves and by another core, sections that move, and the lock that chooses.
pub fn locks() -> Result<()> {
    modprobe("msr")?;
    let sizes = ["--sections", SIZES_BY_HAND, "--time", TIME];
    let sweep = sweep(&[&sizes[..], &["--threads", THREADS_BY_HAND, "--boost"]].concat())?;
    let mut figures = break_evens(&sweep, &BY_HAND, "")?;
    let gaps = gaps_pct(&sweep)?;
    let mut gap = Figure::of("boost.hybrid_gap_pct", "%", "lower", &gaps)?;
    gap.value = gap.max;
    figures.push(gap);
    publish("boost-locks", &figures)
}

/// Waiters that sleep.
pub fn asleep() -> Result<()> {
    let sizes = ["--sections", SIZES_ASLEEP, "--time", TIME];
    let sweep = sweep(&[&sizes[..], &["--threads", THREADS_ASLEEP]].concat())?;
    publish("boost-asleep", &break_evens(&sweep, &ASLEEP, "-amd")?)
}

/// What `turbolane bench locks` says; its table goes to the log.
fn sweep(args: &[&str]) -> Result<Sweep> {
    let done = Command::new("turbolane").args(["bench", "locks", "--json"]).args(args).output()?;
    ensure!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let mut bench: LockBench = serde_json::from_slice(&done.stdout)?;
    println!("{}", bench.text(100));
    bench.sweeps.pop().context("bench locks says nothing")
}

/// Where each strategy begins to pay, beside the slides and the model.
fn break_evens(sweep: &Sweep, strategies: &[&str], vendor: &str) -> Result<Vec<Figure>> {
    let paper = built_in("turbo")?;
    let modelled = self::sweep(&["--model", "fx-8120", "--threads", &sweep.threads.to_string()])?;
    let of = |sweep: &Sweep, strategy: &str| -> Result<f64> {
        let found = sweep.break_evens.iter().find(|even| even.strategy == strategy);
        found
            .and_then(|even| even.section_cycles)
            .with_context(|| format!("{strategy} beats spinning nowhere"))
    };
    let mut figures = Vec::new();
    for &strategy in strategies {
        let id = format!("turbo-break-even-{strategy}{vendor}");
        let slide = paper.rows.iter().find(|row| row.id == id).context(id)?.value;
        let (found, model) = (of(sweep, strategy)?, of(&modelled, strategy)?);
        let figure = |what: &str, unit, value: f64| {
            Figure::of(&format!("boost.{what}.{strategy}"), unit, "lower", &[value])
        };
        let error_pct = |other: f64| ((found / other - 1.0) * 100.0).abs();
        figures.push(figure("break_even_cycles", "cycles", found)?.against("TURBO 7, 9", slide));
        figures.push(figure("break_even_error_pct", "%", error_pct(slide))?);
        figures.push(figure("break_even_model_error_pct", "%", error_pct(model))?);
    }
    Ok(figures)
}

/// By how much a section takes longer under the lock that chooses than under the best of the
/// others, at each size.
fn gaps_pct(sweep: &Sweep) -> Result<Vec<f64>> {
    let chosen = sweep.points.iter().filter(|point| point.strategy == "hybrid");
    let gap = |point: &report::locks::Point| {
        let others = sweep.points.iter().filter(|other| {
            other.section_cycles == point.section_cycles && other.strategy != "hybrid"
        });
        let best_ns = others.filter_map(|other| other.time_ns).reduce(f64::min)?;
        Some((point.time_ns? / best_ns - 1.0) * 100.0)
    };
    chosen.map(|point| gap(point).context("the hybrid lock was not measured")).collect()
}
