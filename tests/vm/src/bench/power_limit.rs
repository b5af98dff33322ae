// SPDX-License-Identifier: MIT OR Apache-2.0
//! Group `predict`: the power limit of a package (crates/cpumodel/src/power_limit.rs) beside what
//! is known of real parts. On this machine, no guest; nothing here is a time of this machine.
//!
//! `predict.power_limit_error_pct` is about the one published measurement of clocks under a limit:
//! two Xeon 6962P, all 288 CPUs busy with scalar code, 3.25 to 3.3 GHz. Its inputs are the limit
//! and the clock with one busy sibling per core.
//!
//! `predict.power_table_error_pct.*` asks turbo tables instead: if a package of n active cores has
//! as much power as one of N, the clock with n follows from that with N. So far as manufacturers
//! choose tables by power, the model's cube law must give them; each figure is the worst row of
//! level 0's table, beneath the highest clock. Tables that leave power unused, or that current
//! limits, do not keep to it.

use anyhow::{Context, Result};
use cpumodel::{CpuModel, Platform, PowerLimit, TurboBin};
use sim::engine::Options;
use sim::policy_spec::{PolicySpec, simulate};
use sim::program::{Builder, Group, Workload};
use sim::rng::Dist;

use crate::measure::{Figure, publish};

/// CPU files whose tables of level 0 come from registers, of parts that a power limit rules.
const FILES: [&str; 5] = [
    "xeon-6980p",
    "granite-rapids-64c",
    "xeon-platinum-8460h",
    "xeon-platinum-8592plus",
    "xeon-platinum-8568yplus",
];
/// What was measured, MHz.
const MEASURED_MHZ: (f64, f64) = (3250.0, 3300.0);

/// Compute and publish.
pub fn power_limit() -> Result<()> {
    let mhz = full_6962p_mhz()?;
    let (low, high) = MEASURED_MHZ;
    let error_pct = |measured: f64| (mhz / measured - 1.0).abs() * 100.0;
    println!("6962P, all CPUs busy: {mhz:.0} MHz, measured {low:.0} to {high:.0}");
    let middle = error_pct((low + high) / 2.0);
    let mut figures = vec![figure(
        "power_limit_error_pct".into(),
        middle,
        error_pct(low).min(error_pct(high)),
        error_pct(low).max(error_pct(high)),
    )];
    for id in FILES {
        let model = model(id)?;
        let table = model.levels[0].turbo.as_ref().context("it has a table")?;
        figures.push(of_table(id, &table.value)?);
    }
    publish("predict", &figures)
}

fn figure(name: String, value: f64, min: f64, max: f64) -> Figure {
    Figure {
        name: format!("predict.{name}"),
        value,
        unit: "%",
        better: "lower",
        n: 1,
        min,
        max,
        baseline: None,
    }
}

fn model(id: &str) -> Result<CpuModel> {
    Ok(CpuModel::built_in(id).context("it is built in")??)
}

/// Mean clock of both packages, all CPUs busy, after the limit has settled.
fn full_6962p_mhz() -> Result<f64> {
    let platform = Platform::new(&model("xeon-6962p")?);
    let mut load = Workload::new();
    let forever = load.program(Builder::new().work(0, Dist::Fixed(u64::MAX >> 24)).end());
    load.group(Group::new("spin", 288, forever));
    let options =
        Options { warmup_ns: 200_000_000, duration_ns: 1_000_000_000, ..Default::default() };
    let fair: PolicySpec = "fair".parse().expect("it is a policy");
    let done = simulate(&platform, 2, load, &fair, options, None)?;
    Ok(done.outcome.mean_khz.context("it ran")? / 1e3)
}

/// The worst row of a table.
fn of_table(name: &str, table: &[TurboBin]) -> Result<Figure> {
    let last = table.last().context("it has rows")?;
    let mut errors = Vec::new();
    for row in table {
        let khz = settled_khz(table[0].clock.0, last, row.up_to_cores);
        let error_pct = (khz / f64::from(row.clock.0) - 1.0) * 100.0;
        println!("{name}: {} cores: {:.0} MHz, {error_pct:+.1} %", row.up_to_cores, khz / 1e3);
        errors.push(error_pct.abs());
    }
    let (least, most) = errors
        .iter()
        .fold((f64::MAX, 0.0_f64), |(least, most), &error| (least.min(error), most.max(error)));
    Ok(figure(format!("power_table_error_pct.{name}"), most, least, most))
}

/// Clock of so many cores, none above `top_khz`, with the power of `full`, a full package.
fn settled_khz(top_khz: u32, full: &TurboBin, cores: u32) -> f64 {
    let mut platform = Platform::new(&CpuModel::default());
    let nr_cores = full.up_to_cores as usize;
    platform.nr_cores = nr_cores;
    platform.clock_khz = vec![vec![top_khz; nr_cores + 1]];
    platform.clock_khz[0][nr_cores] = full.clock.0;
    (platform.idle_w, platform.core_w) = (0.0, 1.0);
    platform.limit_w = Some(nr_cores as f64);
    let mut limit = PowerLimit::new(&platform).expect("it has one");
    for _ in 0..50 {
        limit.look(f64::from(cores) * platform.busy_core_w(0, limit.ceiling_khz()));
    }
    f64::from(limit.ceiling_khz())
}
