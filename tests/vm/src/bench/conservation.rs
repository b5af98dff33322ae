// SPDX-License-Identifier: MIT OR Apache-2.0
//! `lane.idle_while_runnable_pct`: under loads with more runnable tasks than CPUs that may run
//! them, the share of time that these CPUs were idle, by the kernel's own accounting.

use std::time::Duration;

use anyhow::Result;

use crate::conservation::{LOADS, idle_pct};
use crate::lane::Lane;
use crate::measure::{Figure, publish};

/// Measure and publish: the kernel's scheduler on the same loads is the baseline (without wide
/// and scalar CPUs, so all CPUs count).
pub fn run() -> Result<()> {
    let mut figures = Vec::new();
    let mut worst = Vec::new();
    for (name, roles, cpus) in LOADS {
        let kernel = idle_pct(roles, &[0, 1, 2, 3], Duration::from_secs(4))?;
        let lane = Lane::start(&["--mode", "scx", "--wide-cpus", "2-3"])?;
        let mut values = Vec::new();
        for _ in 0..3 {
            values.push(idle_pct(roles, cpus, Duration::from_secs(4))?);
        }
        lane.stop()?;
        let name = format!("lane.idle_while_runnable_pct.{name}");
        let figure = Figure::of(&name, "%", "lower", &values)?;
        worst.push(figure.value);
        figures.push(figure.against("kernel scheduler", kernel));
    }
    let worst = worst.into_iter().fold(0.0, f64::max);
    let mut all = Figure::of("lane.idle_while_runnable_pct", "%", "lower", &[worst])?;
    all.n = 3 * LOADS.len() as u64;
    figures.push(all);
    publish("conservation", &figures)
}
