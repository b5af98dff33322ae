// SPDX-License-Identifier: MIT OR Apache-2.0
//! `lane.scalar_only_overhead_pct`: guest instructions per unit of work on loads without any
//! wide code, against the kernel's own scheduler. scx_layered is measured beside it if the
//! guest has it.
//!
//! Two loads: `hogs` compute only; `requests` do 100 us of work per wakeup and pass a token on
//! through a pipe, like a server's workers. There is always someone to run, so the instruction
//! count of all CPUs is work plus scheduling.

use anyhow::{Result, ensure};

use super::layered;
use crate::guest::{Child, tsc, work};
use crate::lane::Lane;
use crate::measure::{Figure, median, publish};

const REPETITIONS: usize = 7;

type Load = (&'static str, fn() -> Result<u64>);
const LOADS: [Load; 2] = [("hogs", hogs), ("requests", requests)];

/// Eight processes compute; returns the units of work done.
fn hogs() -> Result<u64> {
    const UNITS: u64 = 1500;
    let mut children = Vec::new();
    for _ in 0..8 {
        children.push(Child::fork(|| {
            for _ in 0..UNITS {
                work(2000);
            }
        })?);
    }
    for child in &mut children {
        ensure!(child.wait()? == 0, "a worker failed");
    }
    Ok(8 * UNITS)
}

/// Eight pairs of processes pass a token to and fro, with work in between.
fn requests() -> Result<u64> {
    const TURNS: u64 = 250;
    let mut children = Vec::new();
    for _ in 0..8 {
        let (mut there, mut back) = ([0; 2], [0; 2]);
        for pipe in [&mut there, &mut back] {
            // SAFETY: room for two descriptors.
            let result = unsafe { libc::pipe(pipe.as_mut_ptr()) };
            ensure!(result == 0, "there is no pipe left");
        }
        children.push(Child::fork(|| turns(TURNS, back[0], there[1], true))?);
        children.push(Child::fork(|| turns(TURNS, there[0], back[1], false))?);
        for fd in there.into_iter().chain(back) {
            // SAFETY: our own descriptors; the children have theirs.
            unsafe { libc::close(fd) };
        }
    }
    for child in &mut children {
        ensure!(child.wait()? == 0, "a worker failed");
    }
    Ok(16 * TURNS)
}

fn turns(count: u64, from: i32, to: i32, begins: bool) {
    let mut token = [1u8];
    for turn in 0..count {
        if !(begins && turn == 0) {
            // SAFETY: one byte into a buffer of one byte.
            unsafe { libc::read(from, token.as_mut_ptr().cast(), 1) };
        }
        work(20_000);
        // SAFETY: one byte from a buffer of one byte.
        unsafe { libc::write(to, token.as_ptr().cast(), 1) };
    }
}

/// Instructions per unit of work, one value per repetition.
fn measure(load: fn() -> Result<u64>) -> Result<Vec<f64>> {
    load()?;
    (0..REPETITIONS)
        .map(|_| {
            let start = tsc();
            let units = load()?;
            Ok((tsc() - start) as f64 / units as f64)
        })
        .collect()
}

/// All loads under the scheduler that runs now.
fn measure_all() -> Result<Vec<Vec<f64>>> {
    LOADS.iter().map(|(_, load)| measure(*load)).collect()
}

/// Measure and publish.
pub fn run() -> Result<()> {
    let kernel = measure_all()?;
    let lane = Lane::start(&["--mode", "scx", "--wide-cpus", "2-3", "--unclassified", "scalar"])?;
    let ours = measure_all()?;
    lane.stop()?;
    let layered = layered::under(measure_all)?;
    let mut figures = Vec::new();
    let mut worst: Option<Figure> = None;
    for (i, (name, _)) in LOADS.iter().enumerate() {
        let base = median(&kernel[i]);
        let pct =
            |values: &[f64]| values.iter().map(|v| 100.0 * (v / base - 1.0)).collect::<Vec<_>>();
        let mut figure = Figure::of(
            &format!("lane.scalar_only_overhead_pct.{name}"),
            "%",
            "lower",
            &pct(&ours[i]),
        )?;
        if let Some(layered) = &layered {
            figure = figure.against("scx_layered", median(&pct(&layered[i])));
        }
        figures.push(Figure::of(
            &format!("lane.kernel_spread_pct.{name}"),
            "%",
            "lower",
            &pct(&kernel[i]),
        )?);
        if worst.as_ref().is_none_or(|w| figure.value > w.value) {
            worst = Some(figure.clone());
        }
        figures.push(figure);
    }
    if let Some(mut worst) = worst {
        worst.name = "lane.scalar_only_overhead_pct".into();
        figures.push(worst);
    }
    publish("overhead", &figures)
}
