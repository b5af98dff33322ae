// SPDX-License-Identifier: MIT OR Apache-2.0
//! The trap module with AVX-512 itself and compacted XSAVES, which only Bochs has: one scalar CPU,
//! one wide. One boot for all, because a boot in Bochs takes as long as a test.

use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::trap_detection::programs_find_what_is_withheld;
use crate::lane::Lane;
use crate::trap::sections::{self, SCHEDULER};
use crate::trap::stress::Stress;
use crate::trap::{Trap, components, set};

/// Of the guest's time, which passes at about the same rate.
const STRESS: Duration = Duration::from_secs(8);

/// All of them.
pub fn everything() -> Result<()> {
    ensure!(components() == "avx512", "this CPU has no AVX-512");
    programs_find_what_is_withheld().context("detection")?;
    stress().context("stress")?;
    heavy_sections().context("sections")
}

/// zmm0-31 and k1-7 are held over system calls, signals, fork and migrations while threads trap.
fn stress() -> Result<()> {
    let trap = Trap::on(&[0], "mode=steer hold_ns=2000000 grace_ns=500000")?;
    let stress = Stress::start(8, STRESS)?;
    for round in 0..STRESS.as_secs() as usize {
        std::thread::sleep(Duration::from_secs(1));
        set("mode", ["grace", "steer", "count"][round % 3])?;
    }
    stress.finish()?;
    let (traps, parked) = (trap.sum(|c| c.traps)?, trap.sum(|c| c.parked)?);
    println!("{traps} traps, {parked} times something was put aside");
    ensure!(traps > 100 && parked > 100, "too little happened");
    trap.off()
}

/// Heavy sections are executed on the wide CPU, in a program that also calls memset and string
/// functions all the time, with glibc told to leave AVX-512 alone.
fn heavy_sections() -> Result<()> {
    let trap = Trap::on(&[0], "mode=grace")?;
    let lane = Lane::start(&SCHEDULER)?;
    let seen = sections::run(100, 1, true)?;
    println!("{} of {} sections ran on the wide CPU", seen.caught, seen.count);
    ensure!(seen.caught_pct() >= 97.0, "not all sections ran on the wide CPU");
    lane.stop()?;
    trap.off()
}
