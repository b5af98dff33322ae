// SPDX-License-Identifier: MIT OR Apache-2.0
//! P-states that matter: on a dim-silicon machine a program's request changes the clock of real
//! code. Seen three times: by instructions per tick of the time stamp counter, by APERF and MPERF,
//! and by the machine's log, with which xtask compares the latter. Two cores are all that are
//! active, so that turbo has something to give.

use std::path::Path;
use std::time::Duration;

use anyhow::{Result, ensure};
use hw::cycles::ClockRegisters;
use pstate::{Control, Options, Way};

use crate::claims::Claims;
use crate::guest::{modprobe, set_affinity};
use crate::pstate_end::{ENDS, left_changed, settings};
use crate::silicon::{TSC_KHZ, ask_for_full_clock, clock_khz, error_pct};

/// Where the clock is measured. `pstate-end` slows it, by the same backend.
const CPU: usize = 0;
/// As planted, with two active cores; the lowest ratio; one between.
const TURBO_KHZ: u32 = 3_700_000;
const SLOW_KHZ: u32 = 800_000;
const SOME_KHZ: u32 = 1_400_000;
/// Of 4 us at 2.5 GHz each.
const SAMPLES: usize = 400;
const WITHIN_PCT: f64 = 0.5;

/// Each backend moves the clock and puts everything back, at a program's end and when it is killed.
pub fn moves_the_clock() -> Result<()> {
    modprobe("msr")?;
    set_affinity(0, &[CPU])?;
    [0, 1].into_iter().try_for_each(ask_for_full_clock)?;
    let mut seen = Seen { registers: ClockRegisters::open(CPU)?, claims: Claims::new()? };
    seen.clock(TURBO_KHZ, "before")?;
    let before = settings(Path::new("/"))?;
    for way in [Way::Limits, Way::Setspeed, Way::Msr] {
        if way == Way::Setspeed {
            modprobe("cpufreq_userspace")?;
        }
        let control = Control::open(&Options { way: Some(way), ..Options::default() })?;
        ensure!(control.choice().way == way, "{:?}", control.choice());
        control.slow(CPU as u32)?;
        seen.clock(SLOW_KHZ, way.name())?;
        control.request(CPU as u32, SOME_KHZ)?;
        seen.clock(SOME_KHZ, way.name())?;
        control.boost(CPU as u32)?;
        seen.clock(TURBO_KHZ, way.name())?;
        control.slow(CPU as u32)?;
        let done = control.close();
        ensure!(done.failed == 0 && settings(Path::new("/"))? == before, "{way:?}: {done:?}");
        seen.clock(TURBO_KHZ, "closed")?;
        for end in ENDS.into_iter().filter(|(how, _)| *how == "kill") {
            let left = left_changed(Path::new("/"), Some(way), end, &before)?;
            ensure!(left.is_empty(), "killed: {}", left.join("; "));
        }
        seen.clock(TURBO_KHZ, "killed")?;
    }
    seen.claims.write()
}

struct Seen {
    registers: ClockRegisters,
    claims: Claims,
}

impl Seen {
    /// This CPU's clock is this one now.
    fn clock(&mut self, want_khz: u32, when: &str) -> Result<()> {
        // The kernel applies limits by a worker, some milliseconds later.
        std::thread::sleep(Duration::from_millis(20));
        clock_khz(20);
        let from = self.claims.mark();
        let before = self.registers.read()?;
        let by_ticks = clock_khz(SAMPLES);
        let after = self.registers.read()?;
        let to = self.claims.mark();
        let [cycles, ticks] = [0, 1].map(|k| (after[k] - before[k]) as f64);
        let by_registers = cycles / ticks * TSC_KHZ;
        println!("{when}: want {want_khz}, by ticks {by_ticks:.0}, by APERF {by_registers:.0} kHz");
        for (what, khz) in [("instructions per tick", by_ticks), ("APERF and MPERF", by_registers)]
        {
            let error_pct = error_pct(khz, want_khz.into());
            ensure!(error_pct <= WITHIN_PCT, "{when}: {khz:.0} kHz by {what}, not {want_khz}");
        }
        self.claims.clock_khz(CPU, (from, to), by_registers, WITHIN_PCT);
        Ok(())
    }
}
