// SPDX-License-Identifier: MIT OR Apache-2.0
//! Pauses of a running lane: the kernel's own scheduler for a while, and the lane again.

use std::process::Command;
use std::time::Duration;

use anyhow::{Result, ensure};

use super::cpus::everyone_runs;
use crate::guest::{scx_state, wait_for};
use crate::lane::{Lane, set, status_becomes, turbolane};
use crate::samples::Phase;

/// For as long as nobody ends it.
const LONG: [&str; 3] = ["ctl", "pause", "10min"];

/// While paused the kernel's scheduler is at work and wide tasks run everywhere; afterwards they
/// are apart again. A pause ends at a request, by itself, at a change of a setting, and with the
/// run.
pub fn leave_the_machine_and_end() -> Result<()> {
    let lane = Lane::start(&["--mode", "scx", "--wide-cpus", "2-3"])?;
    turbolane(&LONG)?;
    ensure!(scx_state() == "disabled", "paused, sched_ext is {}", scx_state());
    status_becomes("paused for")?;
    let samples = everyone_runs("paused")?;
    ensure!(samples.on(Phase::Wide, &[0, 1]) > 0, "still apart: {}", samples.text());
    turbolane(&["ctl", "resume"])?;
    is_at_work("after a pause")?;
    status_becomes("separated, as requested")?;
    let samples = everyone_runs("after a pause")?;
    ensure!(samples.on(Phase::Wide, &[0, 1]) == 0, "not apart: {}", samples.text());

    turbolane(&["ctl", "pause", "1s"])?;
    wait_for("the pause to end", Duration::from_secs(60), || scx_state() == "enabled")?;
    status_becomes("separated, as requested")?;

    turbolane(&LONG)?;
    set(&["slice=4ms"])?;
    is_at_work("after a change")?;

    turbolane(&LONG)?;
    lane.stop().map(drop)
}

/// `verify --live` compares with the lane away and at work, and leaves it at work; so does one that
/// is killed, once its pause is over.
pub fn are_for_comparisons() -> Result<()> {
    let lane = Lane::start(&["--mode", "scx", "--wide-cpus", "2-3"])?;
    let rate = "grep -q enabled /sys/kernel/sched_ext/state && echo rate 2 || echo rate 1";
    let verify = ["verify", "--live", "--runs", "4", "--warmup", "0", "--metric", "rate {}", "--"];
    let found = turbolane(&[&verify[..], &["sh", "-c", rate]].concat())?;
    ensure!(found.contains("better: +100"), "{found}");
    is_at_work("after a comparison")?;

    let mut killed = Command::new("turbolane");
    let mut killed = killed.args(verify).args(["sleep", "1000"]).spawn()?;
    wait_for("a run without the lane", Duration::from_secs(60), || scx_state() == "disabled")?;
    killed.kill()?;
    killed.wait()?;
    wait_for("the pause to end", Duration::from_secs(90), || scx_state() == "enabled")?;
    lane.stop().map(drop)
}

fn is_at_work(when: &str) -> Result<()> {
    ensure!(scx_state() == "enabled", "{when}, sched_ext is {}", scx_state());
    Ok(())
}
