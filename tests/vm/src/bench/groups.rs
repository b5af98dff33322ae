// SPDX-License-Identifier: MIT OR Apache-2.0
//! `lane.cpu_weight_error_pct` and `lane.cpu_max_error_pct`: how far the CPU time that control
//! groups get is from what is due to them, in percent of that, worst of the groups and cases. The
//! kernel's own scheduler in the same guest is shown next to it. 4 CPUs, one of them wide, in
//! virtual time: on a busy host the time in which the emulator does not run a CPU is charged to the
//! task that has it, and light tasks have few slices that could even it out.

use std::time::Duration;

use anyhow::Result;

use crate::cgroups::{Group, measure, share_error_pct};
use crate::lane::Lane;
use crate::measure::{Figure, publish};

const SETTLE: Duration = Duration::from_secs(2);
const TIME: Duration = Duration::from_secs(10);

/// Errors of each case.
fn weights() -> Result<Vec<f64>> {
    let mut errors = Vec::new();
    {
        let heavy = Group::top("heavy")?.weight(1000)?.hogs(6)?;
        let light = Group::top("light")?.weight(10)?.hogs(6)?;
        // Once more than the others: the light group's share is small.
        let got = measure(&[&heavy, &light], SETTLE, 3 * TIME)?;
        errors.push(share_error_pct(&got, &[1000.0, 10.0]));
    }
    {
        let crowd = Group::top("crowd")?.hogs(20)?;
        let few = Group::top("few")?.hogs(4)?;
        let got = measure(&[&crowd, &few], SETTLE, TIME)?;
        errors.push(share_error_pct(&got, &[1.0, 1.0]));
    }
    let a = Group::top("a")?.weight(300)?;
    let b = Group::top("b")?.weight(100)?.hogs(5)?;
    let a1 = a.child("a1")?.weight(100)?.hogs(5)?;
    let a2 = a.child("a2")?.weight(200)?.hogs(8)?;
    let got = measure(&[&a1, &a2, &b], SETTLE, TIME)?;
    errors.push(share_error_pct(&got, &[1.0, 2.0, 1.0]));
    drop((a1, a2, a));
    Ok(errors)
}

/// Errors of each case.
fn limits() -> Result<Vec<f64>> {
    let mut errors = Vec::new();
    let error_pct = |got: f64, due: f64| (got / due - 1.0).abs() * 100.0;
    for (percent, tasks) in [(10, 1), (10, 8), (50, 4), (150, 6)] {
        let group = Group::top("limited")?.percent(percent)?.hogs(tasks)?;
        let got = measure(&[&group], SETTLE, TIME)?[0];
        errors.push(error_pct(got, f64::from(percent) / 100.0));
    }
    let outer = Group::top("outer")?.percent(60)?;
    let inner = outer.child("inner")?.percent(200)?.hogs(4)?;
    errors.push(error_pct(measure(&[&inner], SETTLE, TIME)?[0], 0.6));
    drop((inner, outer));
    Ok(errors)
}

fn worst(name: &str, ours: &[f64], kernel: &[f64]) -> Result<Figure> {
    let max = |values: &[f64]| values.iter().copied().fold(0.0, f64::max);
    let mut figure = Figure::of(name, "%", "lower", ours)?.against("kernel", max(kernel));
    figure.value = figure.max;
    Ok(figure)
}

/// Measure and publish.
pub fn run() -> Result<()> {
    let kernel = (weights()?, limits()?);
    let lane = Lane::start(&["--mode", "scx", "--wide-cpus", "3"])?;
    let ours = (weights()?, limits()?);
    lane.stop()?;
    println!("by case, lane: {ours:.2?}; kernel: {kernel:.2?}");
    publish(
        "groups",
        &[
            worst("lane.cpu_weight_error_pct", &ours.0, &kernel.0)?,
            worst("lane.cpu_max_error_pct", &ours.1, &kernel.1)?,
        ],
    )
}
