// SPDX-License-Identifier: MIT OR Apache-2.0
//! How far a dim-silicon machine is from what was planted in it, as a program in the guest sees it.

use anyhow::Result;

use crate::guest::set_affinity;
use crate::measure::{Figure, publish};
use crate::silicon::{ask_for_full_clock, errors_pct};
use crate::silicon_probe::{KERNELS, probe};
use crate::silicon_scores::{Scored, scores};
use crate::silicon_tiers::{KINDS, throughputs};

/// Bursts of each class.
const BURSTS: usize = 5;

/// Clocks before, in and after bursts of each class, and the hold of each level; the worst of each.
pub fn clocks() -> Result<()> {
    set_affinity(0, &[1])?;
    ask_for_full_clock(1)?;
    let (clocks, relaxes) = errors_pct(BURSTS)?;
    let worst = |name: &str, errors: &[f64]| -> Result<Figure> {
        let mut figure = Figure::of(name, "%", "lower", errors)?;
        figure.value = figure.max;
        Ok(figure)
    };
    publish(
        "silicon-clocks",
        &[worst("silicon.clock_error_pct", &clocks)?, worst("silicon.relax_error_pct", &relaxes)?],
    )
}

/// What the probe makes of the machine: the worst of all quantities of three kernels.
pub fn probes() -> Result<()> {
    let errors: Vec<f64> = probe(&KERNELS)?.iter().map(|found| found.error_pct).collect();
    let mut figure = Figure::of("silicon.probe_error_pct", "%", "lower", &errors)?;
    figure.value = figure.max;
    publish("silicon-probe", &[figure])
}

/// Power scores of processes that share cores and say nothing: how far the worst of them is off.
pub fn power_scores() -> Result<()> {
    let errors: Vec<f64> = scores()?.iter().map(Scored::error).collect();
    let mut figure = Figure::of("silicon.score_error", "level", "lower", &errors)?;
    figure.value = figure.max;
    publish("silicon-scores", &[figure])
}

/// Three tiers with AMX: what each kind of code gains over the kernel's scheduler, beside what it
/// gains where one class of CPUs has both kinds of wide code.
pub fn tiers() -> Result<()> {
    let [nothing, one_class, tiers] = throughputs()?;
    println!("turns/s of {KINDS:?}: {nothing:.0?}, one class {one_class:.0?}, tiers {tiers:.0?}");
    let figures = KINDS.iter().enumerate().map(|(at, (_, kind))| {
        let gain_pct = |turns: f64| (turns / nothing[at] - 1.0) * 100.0;
        let name = format!("silicon.tiers_gain_pct.{kind}");
        let figure = Figure::of(&name, "%", "higher", &[gain_pct(tiers[at])])?;
        Ok(figure.against("one class of wide CPUs", gain_pct(one_class[at])))
    });
    publish("tiers", &figures.collect::<Result<Vec<Figure>>>()?)
}
