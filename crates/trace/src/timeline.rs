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
//!
//! **Hints.** DIM 6.2.2's server says "raise the clock" when "the last packet of an HTTP request was received
//! and decrypted, which we identify by the return value of the corresponding OpenSSL function call". A
//! recording holds no return values, but it shows what they made the server do: if a call that takes
//! something in is followed by one that answers, it was the last one of a request. [`Calls`] names both;
//! behind the former a unit of work begins, and the hint is given.

use std::collections::{BTreeMap, BTreeSet};

use report::timeline::{AMOUNT_MAX, Mark, Period};

use crate::event::{Event, What};
use crate::follow::{Run, Task, TaskId, Visit};

/// Whose timeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Of {
    /// All that ran on this CPU.
    Cpu(u16),
    /// All that this task ran, by the kernel's number: the first that had it.
    Task(u32),
}

/// Marked functions by which requests are told apart: numbers of marks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Calls {
    /// Takes in what belongs to a request.
    pub takes: u32,
    /// Answers one.
    pub answers: u32,
}

/// Collects a timeline.
#[derive(Debug)]
pub struct Timeline {
    of: Of,
    clock_khz: u32,
    level_max: u8,
    calls: Option<Calls>,
    task: Option<TaskId>,
    /// Until when the last piece went.
    until_ns: u64,
    pieces: Vec<Piece>,
    /// By number of the task: when it returned from taking something in.
    took_ns: BTreeMap<u32, u64>,
    /// When requests were complete.
    complete_ns: BTreeSet<u64>,
}

/// `level` is `None` while nothing ran.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Piece {
    start_ns: u64,
    level: Option<u8>,
    ns: u64,
}

impl Timeline {
    /// On a machine whose level 0 has this clock, and which has levels up to `level_max`.
    pub fn new(of: Of, clock_khz: u32, level_max: u8) -> Self {
        Timeline {
            of,
            clock_khz,
            level_max,
            calls: None,
            task: None,
            until_ns: 0,
            pieces: Vec::new(),
            took_ns: BTreeMap::new(),
            complete_ns: BTreeSet::new(),
        }
    }

    /// The same with requests and hints, which these calls tell.
    #[must_use]
    pub fn with_hints(self, calls: Calls) -> Self {
        Timeline { calls: Some(calls), ..self }
    }

    /// The periods; none if nothing of the kind ran.
    pub fn periods(&self) -> Vec<Period> {
        let mut periods = Vec::new();
        for piece in &self.pieces {
            let first = periods.len();
            periods.extend(self.of_piece(*piece));
            // Inside of other wide code nothing is cut there, and a hint would be void.
            if self.complete_ns.contains(&piece.start_ns) {
                periods[first].marks = vec![Mark::Request, Mark::Force];
            }
        }
        periods
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

    fn push(&mut self, start_ns: u64, level: Option<u8>, ns: u64) {
        match self.pieces.last_mut() {
            _ if ns == 0 => {}
            Some(last) if last.level == level => last.ns += ns,
            _ => self.pieces.push(Piece { start_ns, level, ns }),
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
    fn event(&mut self, event: &Event, _task: Option<TaskId>) {
        let Some(calls) = self.calls else { return };
        let ours = match self.of {
            Of::Cpu(cpu) => event.cpu == cpu,
            Of::Task(tid) => event.tid == tid,
        };
        if !ours {
            return;
        }
        match event.what {
            What::MarkReturn { mark } if mark == calls.takes => {
                self.took_ns.insert(event.tid, event.at_ns);
            }
            What::Mark { mark } if mark == calls.answers => {
                self.complete_ns.extend(self.took_ns.remove(&event.tid));
            }
            _ => {}
        }
    }

    fn ran(&mut self, run: &Run, task: &Task) {
        let ours = match self.of {
            Of::Cpu(cpu) => run.cpu == cpu,
            Of::Task(tid) => task.tid == tid && *self.task.get_or_insert(run.task) == run.task,
        };
        if !ours {
            return;
        }
        if !self.pieces.is_empty() {
            self.push(self.until_ns, None, run.start_ns.saturating_sub(self.until_ns));
        }
        let level = run.level.min(self.level_max);
        self.push(run.start_ns, Some(level), run.end_ns - run.start_ns);
        self.until_ns = run.end_ns;
    }
}
