// SPDX-License-Identifier: MIT OR Apache-2.0
//! DIM 7.1's registers on a dim-silicon machine: software that knows better raises the clock, from
//! user space and by the kernel's test module.

use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::silicon::{
    Class, RELAX_NS, burst_held_for, clock_khz, error_pct, scalar, wide, wide_for,
};
use crate::silicon_license::{DELAY, Dim, ENDS, FORCE, IN_FORCE, INFO, Registers, STATUS, WARNS};
use crate::silicon_turns;

/// DIM 4.3's more competitive timeout.
const DELAY_NS: u32 = 180_000;
/// Some 10 ms.
const TURNS: u32 = 30;

/// The registers do what their manual says, and refuse what makes no sense.
pub fn obeys(cpu: usize) -> Result<()> {
    let registers = Registers::of(cpu)?;
    let info = registers.read(INFO)?;
    ensure!(
        info == (RELAX_NS as u64) << 32 | 3 << 8 | 1,
        "the machine introduces itself by {info:#x}"
    );
    delays(&registers)?;
    forces(&registers)?;
    for (number, value) in [(FORCE, 3), (DELAY, 1 << 40), (STATUS, 0), (INFO, 0)] {
        ensure!(registers.write(number, value).is_err(), "{number:#x} takes {value:#x}");
    }
    Ok(())
}

/// A burst may not show when its level is given up: seen in one of ten, and not understood.
const BURSTS: usize = 4;

/// A level is held for as long as the register says, and as ever when it is taken back.
fn delays(registers: &Registers) -> Result<()> {
    for hold_ns in [Some(DELAY_NS), None] {
        registers.write(DELAY, hold_ns.map_or(0, |hold_ns| IN_FORCE | u64::from(hold_ns)))?;
        let planted_ns = hold_ns.map_or(RELAX_NS, f64::from);
        let mut bursts = (0..BURSTS).map(|_| burst_held_for(Class::Heavy512, planted_ns));
        let held_ns = bursts.find_map(|seen| {
            println!("delay {hold_ns:?}: {seen:?}");
            seen.relax_ns
        });
        let held_ns = held_ns.context("the level is never given up")?;
        ensure!(error_pct(held_ns, planted_ns) <= 2.0, "held for {held_ns}, not {planted_ns} ns");
    }
    Ok(())
}

/// After a forced change the clock is the highest at once.
fn forces(registers: &Registers) -> Result<()> {
    wide_for(Class::Heavy512, Duration::from_micros(100));
    ensure!(registers.read(STATUS)? & 0xff == 2, "level 2 is held");
    let low_khz = clock_khz(3);
    registers.write(FORCE, 0)?;
    let high_khz = clock_khz(3);
    println!("{low_khz:.0} kHz, forced {high_khz:.0} kHz");
    ensure!(error_pct(low_khz, 1_900_000.0) <= 0.5, "held at {low_khz} kHz");
    ensure!(error_pct(high_khz, 2_800_000.0) <= 0.5, "forced to {high_khz} kHz");
    Ok(())
}

/// SYSTOR 5: an interrupt before wide code runs, while nothing was asked for yet, and one when it
/// has ended for a while.
pub fn gives_notice() -> Result<()> {
    let dim = Dim::load(false)?;
    // Every level is lost.
    std::thread::sleep(Duration::from_millis(3));
    dim.notice(100_000 << 32 | ENDS | WARNS)?;
    wide(Class::Heavy512, 4_000);
    ensure!(dim.counted("warned")? == 1, "{} warnings", dim.counted("warned")?);
    let status = dim.counted("warned_status")?;
    ensure!(status == 0, "the warning came when the licence was {status:#x}");
    scalar(1_000_000);
    ensure!(dim.counted("ended")? == 1, "{} ends", dim.counted("ended")?);
    ensure!(dim.notice(1 << 20).is_err(), "a bad value is taken");
    Ok(())
}

/// Two processes that take turns on one CPU, one of them wide: with the module the other one has
/// the high clock, without it never.
pub fn switches_raise_the_clock() -> Result<()> {
    let own = silicon_turns::play(TURNS)?;
    let dim = Dim::load(true)?;
    let raised = silicon_turns::play(TURNS)?;
    let forced = dim.counted("forced")?;
    drop(dim);
    println!("{TURNS} turns: {own:?}, with the module {raised:?}, {forced} changes forced");
    ensure!(forced >= TURNS.into(), "{forced} changes forced in {TURNS} turns");
    // 1 M instructions at 1.9 GHz against 2.8 GHz and two changes of some 37 us.
    let gain = own.as_secs_f64() / raised.as_secs_f64();
    ensure!((1.15..1.4).contains(&gain), "{TURNS} turns are faster by {gain}");
    Ok(())
}
