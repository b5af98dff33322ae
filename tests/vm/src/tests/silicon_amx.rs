// SPDX-License-Identifier: MIT OR Apache-2.0
//! A dim-silicon machine with AMX: a Xeon 6980P, whose tiles have a licence level of their own, the
//! lowest clock of all. A stock kernel boots on it, permits tiles, and each class of code has the
//! clock that the CPU file gives its level with all cores active.

use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::guest::set_affinity;
use crate::silicon::{Class, error_pct, scalar, wide_for};
use crate::trap::tiles::{permit, product_is_right};

/// Where everything is measured.
const CPU: usize = 1;
/// As planted, kHz: the base clock, which is the time stamp counter's, and level 0.
const BASE_KHZ: f64 = 2_000_000.0;
const FULL_KHZ: f64 = 3_200_000.0;
/// By class of code: dense 256-bit FMA asks for level 1, 512-bit logic for 2, FMA for 3.
const CLOCKS_KHZ: [(Class, f64); 3] = [
    (Class::Heavy256, 2_900_000.0),
    (Class::Light512, 2_700_000.0),
    (Class::Heavy512, 2_400_000.0),
];
/// Tiles ask for level 4.
const AMX_KHZ: f64 = 2_000_000.0;
/// Many times what a level takes to be granted.
const BURST: Duration = Duration::from_micros(400);
/// Instructions of a sample, and of more than the time for which a level is held.
const SAMPLE: u64 = 10_000;
const LONG: u64 = 5_000_000;

/// All of it.
pub fn everything() -> Result<()> {
    permit().context("permission for tiles")?;
    set_affinity(0, &[CPU])?;
    for (class, khz) in CLOCKS_KHZ {
        is_held(&format!("{class:?}"), khz, || wide_for(class, BURST))?;
    }
    let mut wrong = 0;
    is_held("tiles", AMX_KHZ, || {
        let start = std::time::Instant::now();
        while start.elapsed() < BURST {
            wrong += u32::from(!product_is_right(7));
        }
    })?;
    ensure!(wrong == 0, "{wrong} products are wrong");
    Ok(())
}

/// After a burst of such code the core keeps this clock for a while, and gets the full one back.
fn is_held(what: &str, khz: f64, burst: impl FnOnce()) -> Result<()> {
    scalar(LONG);
    let before = clock_khz();
    burst();
    let held = clock_khz();
    scalar(LONG);
    let later = clock_khz();
    println!("{what}: {before:.0} kHz before, {held:.0} held, {later:.0} later");
    for (found, planted) in [(before, FULL_KHZ), (held, khz), (later, FULL_KHZ)] {
        ensure!(error_pct(found, planted) <= 0.5, "{what}: {found} kHz instead of {planted}");
    }
    Ok(())
}

/// The clock of scalar code, by the shortest of some samples: interrupts make others longer. In
/// between nothing is copied: here one 512-bit move of glibc's memcpy asks for level 2.
fn clock_khz() -> f64 {
    let ticks = (0..10).map(|_| scalar(SAMPLE)).min().unwrap_or(1);
    SAMPLE as f64 / ticks as f64 * BASE_KHZ
}
