// SPDX-License-Identifier: MIT OR Apache-2.0
//! Three tiers (SYSTOR 5) on a dim-silicon machine with AMX: what scalar code, code with sections
//! of AVX-512 and code with sections of AMX get done, under the kernel's scheduler, with one class
//! of wide CPUs, and with a class for each level.
//!
//! Each thread executes 0.3 ms of scalar code and then, if its kind has some, a wide section of
//! 40,000 instructions. So under the kernel's scheduler no core ever leaves the level of tiles: the
//! gaps are shorter than the time for which a level is held.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::lane::Lane;
use crate::silicon::{Class, scalar, wide};
use crate::trap::tiles::{multiply, permit};

/// Threads of each kind; the machine has half as many CPUs as threads.
const THREADS: usize = 4;
/// Before the turns that count: a lane has placed all threads by then.
const WARM_UP: Duration = Duration::from_millis(100);
/// In which turns count.
const TIME: Duration = Duration::from_millis(150);
/// Instructions of a turn's scalar part and of its wide part.
const SCALAR_INSNS: u64 = 1_000_000;
const WIDE_INSNS: u64 = 40_000;

/// What threads execute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Scalar,
    Avx512,
    Amx,
}

/// All of them, with names for figures.
pub const KINDS: [(Kind, &str); 3] =
    [(Kind::Scalar, "scalar"), (Kind::Avx512, "avx512"), (Kind::Amx, "amx")];

/// Turns per second of each kind.
pub type Turns = [f64; KINDS.len()];

/// Under the kernel's scheduler, with one class of two wide CPUs, and with a class for each level.
pub fn throughputs() -> Result<[Turns; 3]> {
    permit().context("permission for tiles")?;
    let under = |options: &[&str]| -> Result<Turns> {
        let lane = Lane::start(&[&["--wide-cpus", "2"], options].concat())?;
        let turns = throughput()?;
        lane.stop()?;
        Ok(turns)
    };
    Ok([throughput()?, under(&[])?, under(&["--tiers"])?])
}

/// With what schedules now.
fn throughput() -> Result<Turns> {
    let start = Instant::now() + WARM_UP;
    let threads: Vec<_> = (0..THREADS * KINDS.len())
        .map(|at| {
            let (kind, _) = KINDS[at % KINDS.len()];
            std::thread::spawn(move || play(kind, start))
        })
        .collect();
    let mut turns = Turns::default();
    for (at, thread) in threads.into_iter().enumerate() {
        let played = thread.join().ok().context("a thread panicked")?;
        let played = played.context("a section could not be opened or closed")?;
        turns[at % KINDS.len()] += played as f64 / TIME.as_secs_f64();
    }
    Ok(turns)
}

/// Turns after the start.
fn play(kind: Kind, start: Instant) -> Result<u64, turbolane::Error> {
    let mut turns = 0;
    loop {
        scalar(SCALAR_INSNS);
        match kind {
            Kind::Scalar => _ = scalar(WIDE_INSNS),
            Kind::Avx512 => section(2, || wide(Class::Heavy512, WIDE_INSNS / 10))?,
            Kind::Amx => section(3, || multiply(WIDE_INSNS / 100))?,
        }
        match start.elapsed() {
            Duration::ZERO => {}
            counted if counted < TIME => turns += 1,
            _ => return Ok(turns),
        }
    }
}

fn section(level: u32, code: impl FnOnce()) -> Result<(), turbolane::Error> {
    turbolane::wide_begin(level)?;
    code();
    turbolane::wide_end()
}
