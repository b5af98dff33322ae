// SPDX-License-Identifier: MIT OR Apache-2.0
//! Group `trap` in Bochs: AVX-512 itself. Times are the guest's.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use crate::lane::Lane;
use crate::measure::{Figure, publish};
use crate::trap::hash::Hashing;
use crate::trap::sections::{self, SCHEDULER};
use crate::trap::stress::Stress;
use crate::trap::{Trap, components, set};

/// `trap.stress_errors_avx512`: five minutes of zmm0-31 and k1-7 held over everything, compacted
/// XSAVES, while modes and armed sets change. `n` is the number of traps.
pub fn stress() -> Result<()> {
    const TIME: Duration = Duration::from_secs(300);
    ensure!(components() == "avx512", "this CPU has no AVX-512");
    let stress = Stress::start(8, TIME)?;
    let start = Instant::now();
    let mut traps = 0;
    while start.elapsed() < TIME {
        let trap = Trap::on(&[0], "mode=steer hold_ns=2000000 grace_ns=500000")?;
        let hashing = Hashing::start(Duration::from_secs(20))?;
        for round in 0..25 {
            std::thread::sleep(Duration::from_secs(1));
            set("mode", ["grace", "steer", "count"][round % 3])?;
            trap.arm([&[0][..], &[1], &[0, 1], &[]][round % 4])?;
        }
        hashing.finish()?;
        traps += trap.sum(|c| c.traps)?;
        trap.off()?;
    }
    // An error ends the benchmark: there is no figure but 0.
    stress.finish()?;
    publish("trap-stress-avx512", &[Figure::count("trap.stress_errors_avx512", 0, traps)])
}

/// `trap.heavy_sections_caught_pct`: share of heavy 512-bit sections that ran on the wide CPU from
/// behind their first instruction, in a program that calls memset and string functions all the
/// time and does its ordinary work on the scalar CPU; with glibc moved off AVX-512, and as it is.
pub fn sections() -> Result<()> {
    let trap = Trap::on(&[0], "mode=grace")?;
    let lane = Lane::start(&SCHEDULER)?;
    let mut shares: [Vec<f64>; 2] = Default::default();
    for _ in 0..5 {
        for (remedy, shares) in [true, false].into_iter().zip(&mut shares) {
            shares.push(sections::run(200, 1, remedy)?.caught_pct());
        }
    }
    lane.stop()?;
    trap.off()?;
    let names = ["trap.heavy_sections_caught_pct", "trap.heavy_sections_caught_plain_pct"];
    let figures = names.iter().zip(&shares);
    let figures = figures.map(|(name, share)| Figure::of(name, "%", "higher", share));
    publish("trap-sections", &figures.collect::<Result<Vec<_>>>()?)
}
