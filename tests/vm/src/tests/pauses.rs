// SPDX-License-Identifier: MIT OR Apache-2.0
//! Pauses of a running lane: the kernel's own scheduler for a while, and the lane again.

use std::time::Duration;

use anyhow::{Result, ensure};

use super::cpus::everyone_runs;
use crate::guest::{scx_state, wait_for};
use crate::lane::{Lane, set, status_becomes, turbolane};
use crate::samples::Phase;

/// For as long as nobody ends it.
const LONG: [&str; 3] = ["ctl", "pause", "10min"];

/// While paused the kernel's scheduler is at work and wide tasks run everywhere; afterwards they are
/// apart again. A pause ends at a request, by itself, at a change of a setting, and with the run.
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

fn is_at_work(when: &str) -> Result<()> {
    ensure!(scx_state() == "enabled", "{when}, sched_ext is {}", scx_state());
    Ok(())
}
