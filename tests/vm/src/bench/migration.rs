// SPDX-License-Identifier: MIT OR Apache-2.0
//! `lane.migration_instructions`: guest instructions, of all CPUs, from a hint on a scalar CPU
//! to the next instruction on a wide CPU. The other CPUs are idle, so that what is counted is
//! the migration. Baseline: sched_setaffinity to another CPU under the kernel's scheduler.

use std::time::Duration;

use anyhow::{Result, ensure};

use crate::guest::{cpu, nr_cpus, set_affinity, spin, tsc};
use crate::lane::Lane;
use crate::measure::{Figure, median, publish};

const ROUNDS: usize = 300;
const PAUSE: Duration = Duration::from_micros(300);

fn by_affinity() -> Result<Vec<f64>> {
    let mut counts = Vec::new();
    let last = nr_cpus() - 1;
    for round in 0..ROUNDS {
        spin(PAUSE);
        let to = if round % 2 == 0 { last } else { 0 };
        let start = tsc();
        set_affinity(0, &[to])?;
        counts.push((tsc() - start) as f64);
    }
    set_affinity(0, &(0..=last).collect::<Vec<_>>())?;
    Ok(counts)
}

fn by_hint() -> Result<(Vec<f64>, Vec<f64>)> {
    let (mut there, mut back) = (Vec::new(), Vec::new());
    let wide_cpu = nr_cpus() - 1;
    for _ in 0..ROUNDS {
        // Asleep, so that the other CPU gets its turn: where instructions are counted, a CPU
        // that spins is left alone until its next timer.
        std::thread::sleep(PAUSE);
        spin(PAUSE);
        if cpu() == wide_cpu {
            continue;
        }
        let start = tsc();
        let begun = turbolane::wide_begin(2);
        let arrived = tsc();
        ensure!(
            begun.is_ok() && cpu() == wide_cpu,
            "the hint did not lead to CPU {wide_cpu} but {}",
            cpu()
        );
        there.push((arrived - start) as f64);
        spin(PAUSE);
        let start = tsc();
        let _ = turbolane::wide_end();
        let arrived = tsc();
        if cpu() != wide_cpu {
            back.push((arrived - start) as f64);
        }
    }
    Ok((there, back))
}

/// Measure and publish.
pub fn run() -> Result<()> {
    let affinity = by_affinity()?;
    let lane = Lane::start(&["--mode", "scx", "--wide-cpus", "1"])?;
    // The first section connects to the scheduler; that is not a migration's cost.
    let _ = turbolane::wide_begin(2);
    let _ = turbolane::wide_end();
    let (there, back) = by_hint()?;
    lane.stop()?;
    let unit = "instructions";
    publish(
        "migration",
        &[
            Figure::of("lane.migration_instructions", unit, "lower", &there)?
                .against("sched_setaffinity, kernel scheduler", median(&affinity)),
            Figure::of("lane.return_instructions", unit, "lower", &back)?,
        ],
    )
}
