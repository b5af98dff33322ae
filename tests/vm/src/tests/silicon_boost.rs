// SPDX-License-Identifier: MIT OR Apache-2.0
//! Single cores boosted and slowed through registers, as TURBO 4 does it on an FX-8120: the clock
//! of real code follows, that of another module stays, cores of a module have the faster of their
//! requests, and all is as it was when the program ends, whatever its end.

use std::path::Path;

use anyhow::{Result, ensure};
use pstate::{Control, Options, Way};

use crate::guest::{modprobe, set_affinity};
use crate::pstate_end::{ENDS, left_changed, settings};
use crate::silicon::{clock_khz, error_pct};

/// Of one module.
const CPU: u32 = 0;
const SIBLING: u32 = 1;
/// Of the other.
const OTHER: u32 = 2;
/// As planted: crates/cpumodel/data/pstates/fx-8120.toml.
const TURBO_KHZ: f64 = 4_000_000.0;
const BASE_KHZ: f64 = 3_100_000.0;
const SLOW_KHZ: f64 = 1_400_000.0;
/// Of 10,000 instructions each.
const SAMPLES: usize = 200;
const WITHIN_PCT: f64 = 0.5;

/// See the head.
pub fn moves_single_cores() -> Result<()> {
    modprobe("msr")?;
    let before = settings(Path::new("/"))?;
    is_at(CPU, BASE_KHZ)?;
    let control = Control::open(&Options::default())?;
    ensure!(control.choice().way == Way::Msr, "{:?}", control.choice());
    control.boost(CPU)?;
    is_at(CPU, TURBO_KHZ)?;
    is_at(OTHER, BASE_KHZ)?;
    control.slow(CPU)?;
    is_at(CPU, BASE_KHZ)?;
    control.slow(SIBLING)?;
    is_at(CPU, SLOW_KHZ)?;
    is_at(OTHER, BASE_KHZ)?;
    control.restore(CPU)?;
    is_at(CPU, BASE_KHZ)?;
    control.boost(OTHER)?;
    let done = control.close();
    ensure!(done.failed == 0 && settings(Path::new("/"))? == before, "{done:?}");
    is_at(OTHER, BASE_KHZ)?;
    for end in ENDS {
        let left = left_changed(Path::new("/"), None, end, &before)?;
        ensure!(left.is_empty(), "{}", left.join("; "));
        is_at(CPU, BASE_KHZ)?;
    }
    Ok(())
}

/// The clock of a CPU whose sibling is idle.
fn is_at(cpu: u32, khz: f64) -> Result<()> {
    set_affinity(0, &[cpu as usize])?;
    let found = clock_khz(SAMPLES);
    ensure!(error_pct(found, khz) <= WITHIN_PCT, "CPU {cpu}: {found:.0} kHz instead of {khz:.0}");
    Ok(())
}
