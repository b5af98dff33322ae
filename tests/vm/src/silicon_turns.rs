// SPDX-License-Identifier: MIT OR Apache-2.0
//! Two processes that take turns on one CPU, for machines with dim silicon: one executes 40,000
//! heavy 512-bit instructions, the other one a million without a vector. The level of the first is
//! held while the second runs (DIM 2), so that without a policy the core never has its high clock.
//! Neither says anything: only the kernel knows who runs.

use std::io::{PipeReader, PipeWriter, Read, Write, pipe};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use crate::guest::Child;
use crate::silicon::{Class, scalar, wide};

/// Instructions of the scalar process in a turn: 357 us at level 0, less than a level is held.
pub const SCALAR_INSNS: u64 = 1_000_000;
/// Of the wide one. Long enough to be granted its level while it runs: 29 us.
pub const WIDE_INSNS: u64 = 40_000;

/// Plays so many turns on the CPU that this thread is bound to; how long they take.
pub fn play(turns: u32) -> Result<Duration> {
    let ((mut from_us, mut to_other), (mut from_other, mut to_us)) = (pipe()?, pipe()?);
    let mut other = Child::fork(|| {
        let _ = play_wide(&mut from_us, &mut to_us, turns);
    })?;
    let start = Instant::now();
    for _ in 0..turns {
        hand_over(&mut to_other)?;
        take_over(&mut from_other).context("the wide process is gone")?;
        scalar(SCALAR_INSNS);
    }
    let time = start.elapsed();
    let status = other.wait()?;
    ensure!(status == 0, "the wide process ended with {status}");
    Ok(time)
}

fn play_wide(from: &mut PipeReader, to: &mut PipeWriter, turns: u32) -> Result<()> {
    for _ in 0..turns {
        take_over(from)?;
        wide(Class::Heavy512, WIDE_INSNS / 10);
        hand_over(to)?;
    }
    Ok(())
}

fn hand_over(to: &mut PipeWriter) -> Result<()> {
    Ok(to.write_all(&[0])?)
}

fn take_over(from: &mut PipeReader) -> Result<()> {
    Ok(from.read_exact(&mut [0])?)
}
