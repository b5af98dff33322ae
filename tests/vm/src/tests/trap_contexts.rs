// SPDX-License-Identifier: MIT OR Apache-2.0
//! Programs that switch contexts by themselves keep their registers: what is saved by plain
//! instructions is complete, wherever the code comes from.

use std::fs;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::trap::contexts::{self, Form, Place};
use crate::trap::{Trap, load_beside};

const SETTINGS: &str = "mode=count grace_ns=10000 exec_grace_ns=0";
/// Makes steps over probes late (kmod/test/turbolane_slow_step.c).
const SLOW_STEP: &str = "turbolane_slow_step";

/// Every form of saving from code of every kind; the same without protection is wrong, or this
/// would show nothing.
pub fn foreign_contexts() -> Result<()> {
    let trap = Trap::on(&[0], &format!("{SETTINGS} withhold_unread=0"))?;
    let (wrong, all) = contexts::all(&trap, &contexts::PLACES, 100)?;
    ensure!(wrong == 0, "{wrong} of {all} contexts got wrong values");
    late_steps(&trap)?;
    crate::trap::set("withhold_unread", "1")?;
    let (wrong, _) = contexts::run(&trap, Form::Xsave, Place::Anonymous, false, 50)?;
    ensure!(wrong > 0, "all contexts are right without protection, too");
    trap.off()
}

/// The same where the CPU is busy between the probe at an instruction and the instruction itself,
/// for longer than any period that a probe could give.
fn late_steps(trap: &Trap) -> Result<()> {
    load_beside(SLOW_STEP, "")?;
    let (wrong, all) = contexts::all(trap, &[Place::File], 20)?;
    let late = fs::read_to_string(format!("/sys/module/{SLOW_STEP}/parameters/steps"))?;
    let removed = Command::new("rmmod").arg(SLOW_STEP).status().context("rmmod")?;
    ensure!(removed.success(), "the test module stays");
    println!("{wrong} of {all} contexts wrong, {} late steps", late.trim());
    // FXSAVE has no probe.
    ensure!(late.trim().parse::<u64>()? >= all, "only {late} late steps for {all} contexts");
    ensure!(wrong == 0, "{wrong} of {all} contexts got wrong values after late steps");
    Ok(())
}
