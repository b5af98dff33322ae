// SPDX-License-Identifier: MIT OR Apache-2.0
//! A load that core specialisation helps, and the same without wide code, for machines with dim
//! silicon.
//!
//! ```text
//! vmtests silicon-bursts THREADS MILLISECONDS wide|scalar
//! ```
//!
//! Each thread executes 0.4 ms of scalar code and 20 us of heavy 512-bit code in turn, the latter
//! as a wide section. So without a lane no core ever leaves level 2: the gaps are shorter than the
//! relax time (670 us). `scalar` executes as many instructions without a vector, and opens no
//! section.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use crate::guest::nr_cpus;
use crate::silicon::{Class, ask_for_full_clock, scalar, wide};

const SCALAR_INSNS: u64 = 1_000_000;
/// Of ten instructions each.
const WIDE_TURNS: u64 = 4_000;

/// Runs the threads for so long and prints turns per second. Not until so many turns are done: then
/// threads that end late would have the machine for themselves.
pub fn bursts(threads: &str, ms: &str, kind: &str) -> Result<()> {
    let (threads, time): (u32, _) = (threads.parse()?, Duration::from_millis(ms.parse()?));
    let is_wide = match kind {
        "wide" => true,
        "scalar" => false,
        _ => bail!("silicon-bursts THREADS MILLISECONDS wide|scalar, not \"{kind}\""),
    };
    (0..nr_cpus()).try_for_each(ask_for_full_clock)?;
    let end = Instant::now() + time;
    let played: Vec<_> =
        (0..threads).map(|_| std::thread::spawn(move || play(end, is_wide))).collect();
    let mut turns = 0;
    for thread in played {
        let played = thread.join().ok().context("a thread panicked")?;
        turns += played.context("a section could not be opened or closed")?;
    }
    ensure!(turns > 0, "no turn in {time:?}");
    println!("turns per second: {:.1}", turns as f64 / time.as_secs_f64());
    Ok(())
}

/// Turns until the end.
fn play(end: Instant, is_wide: bool) -> Result<u64, turbolane::Error> {
    let mut turns = 0;
    while Instant::now() < end {
        scalar_part();
        if is_wide {
            turbolane::wide_begin(2)?;
            wide_part();
            turbolane::wide_end()?;
        } else {
            scalar(10 * WIDE_TURNS);
        }
        turns += 1;
    }
    Ok(turns)
}

/// A function of its own, so that samples in it are those of wide code.
#[inline(never)]
fn wide_part() {
    wide(Class::Heavy512, WIDE_TURNS);
}

/// Never part of a function with wide code.
#[inline(never)]
fn scalar_part() {
    scalar(SCALAR_INSNS);
}
