// SPDX-License-Identifier: MIT OR Apache-2.0
//! What one CPU or one task of a recording executed, as a timeline that replays take
//! ([`report::timeline`]).
//!
//! A timeline counts work in cycles at the clock of level 0, a recording knows time:
//!
//! ```text
//!   cycles = time * clock of level 0
//! ```
//!
//! as if the recorded machine had run at that clock all along. It is what DIM 6.2 replays too: a trace
//! of a machine that was not slowed down. On one that was, wide code and what comes behind it is
//! counted too long, by the ratio of the clocks.
//!
//! Time in which the CPU had nobody to run, or the task did not run, is idle time. Neighbouring
//! pieces of one level are one period.

use report::timeline::{AMOUNT_MAX, Period};

use crate::follow::{Run, Task, TaskId, Visit};

/// Whose timeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Of {
    /// All that ran on this CPU.
    Cpu(u16),
    /// All that this task ran, by the kernel's number: the first that had it.
    Task(u32),
}

/// Collects a timeline.
#[derive(Debug)]
pub struct Timeline {
    of: Of,
    clock_khz: u32,
    level_max: u8,
    task: Option<TaskId>,
    /// Until when the last piece went.
    until_ns: u64,
    pieces: Vec<Piece>,
}

/// `level` is `None` while nothing ran.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Piece {
    level: Option<u8>,
    ns: u64,
}

impl Timeline {
    /// On a machine whose level 0 has this clock, and which has levels up to `level_max`.
    pub fn new(of: Of, clock_khz: u32, level_max: u8) -> Self {
        Timeline { of, clock_khz, level_max, task: None, until_ns: 0, pieces: Vec::new() }
    }

    /// The periods; none if nothing of the kind ran.
    pub fn periods(&self) -> Vec<Period> {
        self.pieces.iter().flat_map(|piece| self.of_piece(*piece)).collect()
    }

    fn of_piece(&self, piece: Piece) -> Vec<Period> {
        let Some(level) = piece.level else {
            let idle = |idle_ns| Period { idle_ns: Some(idle_ns), ..Period::default() };
            return parts(u128::from(piece.ns)).map(idle).collect();
        };
        let cycles = u128::from(piece.ns) * u128::from(self.clock_khz) / 1_000_000;
        let busy = |cycles| Period { level, cycles: Some(cycles), ..Period::default() };
        parts(cycles).map(busy).collect()
    }

    fn push(&mut self, level: Option<u8>, ns: u64) {
        match self.pieces.last_mut() {
            _ if ns == 0 => {}
            Some(last) if last.level == level => last.ns += ns,
            _ => self.pieces.push(Piece { level, ns }),
        }
    }
}

/// An amount in as many parts as periods that hold it need.
fn parts(amount: u128) -> impl Iterator<Item = u64> {
    let (most, mut left) = (u128::from(AMOUNT_MAX), amount);
    std::iter::from_fn(move || {
        let part = left.min(most);
        left -= part;
        (part > 0).then_some(part as u64)
    })
}

impl Visit for Timeline {
    fn ran(&mut self, run: &Run, task: &Task) {
        let ours = match self.of {
            Of::Cpu(cpu) => run.cpu == cpu,
            Of::Task(tid) => task.tid == tid && *self.task.get_or_insert(run.task) == run.task,
        };
        if !ours {
            return;
        }
        if !self.pieces.is_empty() {
            self.push(None, run.start_ns.saturating_sub(self.until_ns));
        }
        self.push(Some(run.level.min(self.level_max)), run.end_ns - run.start_ns);
        self.until_ns = run.end_ns;
    }
}
