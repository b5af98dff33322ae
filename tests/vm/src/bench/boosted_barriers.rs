// SPDX-License-Identifier: MIT OR Apache-2.0
//! Group `boost`, a fork-join program that knows nothing of it (`c/ranks.c`):
//! libturbolane_preload.so boosts those for whom its barrier waits, on an emulated FX-8120. Time is
//! virtual.
//!
//! | figure | what |
//! |---|---|
//! | `boost.barrier_gain_pct.*` | iterations per second of PageRank whose threads have as many vertices each, so that one has most edges |
//! | `boost.barrier_short_gain_pct.*` | the same with iterations an eighth as long |
//! | `boost.barrier_overhead_pct` | threads with as many edges each: what watching the barrier costs where no thread is late for long |

use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::boosted_programs::{NONE, Rules, more_pct};
use crate::guest::{install, modprobe};
use crate::measure::{Figure, publish};

const OWNER: Rules = Rules(Some("barriers = owner\n"));
const DELEGATE: Rules = Rules(Some("barriers = delegate\n"));

const PROGRAM: &str = "/tmp/ranks";
/// Runs of each.
const RUNS: usize = 3;
/// A CPU for each; one is left for who writes P-states.
const THREADS: &str = "7";
/// Vertices as powers of two, and iterations.
const LONG: [&str; 2] = ["16", "30"];
const SHORT: [&str; 2] = ["13", "240"];

/// See the head.
pub fn run() -> Result<()> {
    modprobe("msr")?;
    install(PROGRAM, include_bytes!(concat!(env!("OUT_DIR"), "/ranks")))?;
    let mut figures = Vec::new();
    for (name, size) in [("barrier_gain_pct", LONG), ("barrier_short_gain_pct", SHORT)] {
        let plain = iterations_per_s(&NONE, size, "vertices")?;
        for (who, rules) in [("owner", &OWNER), ("delegate", &DELEGATE)] {
            let gains = more_pct(&plain, &iterations_per_s(rules, size, "vertices")?);
            figures.push(Figure::of(&format!("boost.{name}.{who}"), "%", "higher", &gains)?);
        }
    }
    let plain = iterations_per_s(&NONE, SHORT, "edges")?;
    let watched = iterations_per_s(&OWNER, SHORT, "edges")?;
    let costs: Vec<f64> = more_pct(&plain, &watched).iter().map(|pct| -pct).collect();
    figures.push(Figure::of("boost.barrier_overhead_pct", "%", "lower", &costs)?);
    publish("boost-barriers", &figures)
}

fn iterations_per_s(rules: &Rules, [scale, iterations]: [&str; 2], by: &str) -> Result<Vec<f64>> {
    let run = |_| {
        let mut program = Command::new(PROGRAM);
        program.args([THREADS, scale, iterations, by]).envs(rules.environment()?);
        let done = program.output()?;
        let (said, why) =
            (String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
        ensure!(done.status.success() && why.is_empty(), "ranks: {why}");
        println!("2^{scale} vertices by {by}, {rules:?}: {}", said.trim());
        let ns: f64 = said.split(' ').next().context("ranks says nothing")?.parse()?;
        Ok(1e9 / ns)
    };
    (0..RUNS).map(run).collect()
}
