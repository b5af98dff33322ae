// SPDX-License-Identifier: MIT OR Apache-2.0
//! Licence levels by Debian's own `perf`, imported by `turbolane record --perf-script`: the test
//! PMU counts, a load says when it executes which level's instructions, and the import must agree.
//!
//! The PMU cannot sample. So its counters are members of a group, read whenever a clock of perf,
//! which leads the group, takes a sample: it works for any PMU.

use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::record_levels::{GRANT, RELAX, cycles_agree, phases, summary, times_agree};
use crate::fake_pmu::FakePmu;
use crate::lane::turbolane;

const PERIOD: Duration = Duration::from_millis(3);

/// A sample is taken when the clock is due and its CPU has its turn, up to a tick later.
const RESOLUTION: Duration = PERIOD.saturating_add(Duration::from_millis(4));

/// The clock, and the counters of levels 0, 1 and 2. By number: with perf's names for them come
/// periods, and a member that has one is asked to sample.
const GROUP: &str = "{cpu-clock,r728,r1828,r2028}:S";

/// What perf has sampled is what the load did.
pub fn everything() -> Result<()> {
    let pmu = FakePmu::load(GRANT, RELAX)?;
    let (data, text, file) = ("/tmp/levels.perf", "/tmp/levels.txt", "/tmp/levels.trace");
    let period = PERIOD.as_nanos().to_string();
    let mut record = perf();
    // The clock that the load writes down.
    record.args(["record", "-q", "-a", "-k", "CLOCK_MONOTONIC", "-c", &period, "-e", GROUP]);
    record.args(["-o", data, "--", "vmtests", "levels-load"]);
    let phases = phases(&output(record)?)?;
    let mut script = perf();
    script.args(["script", "--header", "-i", data]);
    std::fs::write(text, output(script)?)?;
    turbolane(&["record", "-q", "--perf-script", text, "-o", file])?;
    let summary = summary(file)?;
    cycles_agree(&phases, &summary, RESOLUTION).with_context(|| summary.to_string())?;
    times_agree(&phases, file, RESOLUTION)?;
    pmu.unload()
}

fn perf() -> Command {
    let mut perf = Command::new("perf");
    perf.stdin(Stdio::null()).stderr(Stdio::inherit());
    perf
}

fn output(mut command: Command) -> Result<String> {
    let done = command.output().with_context(|| format!("{command:?} cannot be started"))?;
    ensure!(done.status.success(), "{command:?} ended with {}", done.status);
    Ok(String::from_utf8_lossy(&done.stdout).into_owned())
}
