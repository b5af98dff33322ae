// SPDX-License-Identifier: MIT OR Apache-2.0
//! `turbolane profile --pid` on a machine with dim silicon, for loads that need their level all the
//! time, for a part of the time, or hardly ever. What the machine itself wrote down is the truth:
//! for each load there are two marks in its log, between which the load runs undisturbed; then it
//! is profiled.
//!
//! ```text
//! vmtests silicon-profile
//! ```
//!
//! Leaves `profiles.json` in `$TURBOLANE_OUT`, which xtask compares with the log.

use std::fs;
use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use crate::guest::{Child, nr_cpus, set_affinity};
use crate::lane::turbolane;
use crate::point::mark;
use crate::silicon::{Class, ask_for_full_clock, scalar, wide};

/// Where the loads run.
const CPU: usize = 1;
/// Between the marks: ten turns of the longest load.
const TIME: Duration = Duration::from_millis(40);
/// Of each profile. With 150 the interval of a share is 16 points wide at most, were samples
/// independent; of a periodic load they are better than that (`crates/profile`).
const SAMPLES: &str = "150";

/// A load: in turn so many turns of ten instructions, eight of which are of a class, and so many
/// scalar instructions.
struct Load {
    name: &'static str,
    class: Class,
    wide_turns: u64,
    scalar_insns: u64,
}

const fn load(name: &'static str, class: Class, wide_turns: u64, scalar_insns: u64) -> Load {
    Load { name, class, wide_turns, scalar_insns }
}

/// Sections and gaps are long beside what the profiler takes to see a level come back (80 us), or
/// very short: then what it says is about the section that comes next as well (`crates/profile`,
/// "watch").
const LOADS: [Load; 5] = [
    load("steady", Class::Heavy512, 10_000, 0),
    // 0.7 and 2 ms at full clock.
    load("bursts", Class::Heavy512, 133_000, 5_600_000),
    // 1 and 0.5 ms, shorter than the hold: the level never falls.
    load("gaps", Class::Heavy256, 240_000, 1_400_000),
    // 20 us and 2 ms.
    load("sparse", Class::Heavy512, 4_000, 5_600_000),
    load("scalar", Class::Light256, 0, 10_000),
];

/// Profiles all loads.
pub fn profiles() -> Result<()> {
    (0..nr_cpus()).try_for_each(ask_for_full_clock)?;
    set_affinity(0, &[0])?;
    let profiles: Vec<Value> = (1u8..).zip(&LOADS).map(profile).collect::<Result<_>>()?;
    let out = std::env::var("TURBOLANE_OUT").context("TURBOLANE_OUT does not say where to")?;
    fs::write(Path::new(&out).join("profiles.json"), Value::from(profiles).to_string())
        .context("cannot write the profiles")
}

/// One load, whose marks are twice its number and one more.
fn profile((number, load): (u8, &Load)) -> Result<Value> {
    let child = Child::fork(|| play(load))?;
    // Past its start.
    sleep(Duration::from_millis(10));
    mark(2 * number)?;
    sleep(TIME);
    mark(2 * number + 1)?;
    let pid = child.pid.to_string();
    let text = turbolane(&["profile", "--pid", &pid, "--samples", SAMPLES, "--json"])?;
    println!("{}: {text}", load.name);
    let report: Value = serde_json::from_str(&text).context("what profile printed")?;
    Ok(json!({
        "load": load.name,
        "mark": 2 * number,
        "reduced_pct": report["reduced_pct"],
        "avoidable_pct": report["avoidable_pct"],
    }))
}

fn play(load: &Load) {
    if let Err(error) = set_affinity(0, &[CPU]) {
        eprintln!("{}: {error:#}", load.name);
        return;
    }
    loop {
        if load.wide_turns > 0 {
            wide(load.class, load.wide_turns);
        }
        if load.scalar_insns > 0 {
            scalar(load.scalar_insns);
        }
    }
}
