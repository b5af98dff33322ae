// SPDX-License-Identifier: MIT OR Apache-2.0
//! Power scores of a recording's tasks (policy/score.h, DIM 5.2), and what they expect of each task
//! that a CPU switches to (DIM 5.3).
//!
//! The kernel would look at the licence level at each switch. Here it is the one that was recorded,
//! or, where only marks were, the one that the hardware would have had after them. What is expected
//! of a task is its score when it starts: of what it does then nothing is known yet.
//!
//! Limits: the levels are those of the recorded hardware. Under a policy that changes the clock at
//! a switch, a task would find less of its predecessor's level, and scores would be a little
//! sharper.

use std::collections::BTreeMap;

use policy::Score;

use crate::follow::{Run, TaskId};

/// A task that was switched to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Arrival {
    /// When.
    pub at_ns: u64,
    /// Where.
    pub cpu: u16,
    /// Who.
    pub task: TaskId,
    /// The licence level that its score speaks for.
    pub expected: u8,
}

/// All arrivals, and the scores at the end.
#[derive(Clone, Debug, Default)]
pub(crate) struct Scores {
    pub arrivals: Vec<Arrival>,
    pub scores: BTreeMap<TaskId, Score>,
}

impl Scores {
    /// Of runs in the order of their ends; `level` says a CPU's level just after a moment (a run's
    /// begin) or just before it (its end).
    pub fn of(runs: &[Run], level: impl Fn(u16, Side) -> u8) -> Self {
        let mut all = Scores::default();
        // By CPU: since when the task that runs there does. A run is cut where marks begin and end.
        let mut since_ns: BTreeMap<u16, u64> = BTreeMap::new();
        for run in runs {
            let score = all.scores.entry(run.task).or_default();
            let start_ns = *since_ns.entry(run.cpu).or_insert_with(|| {
                let (at_ns, expected) = (run.start_ns, score.level);
                all.arrivals.push(Arrival { at_ns, cpu: run.cpu, task: run.task, expected });
                at_ns
            });
            if run.why.is_none() {
                continue;
            }
            since_ns.remove(&run.cpu);
            let before = level(run.cpu, Side::Behind(start_ns));
            let now = level(run.cpu, Side::Before(run.end_ns));
            if score.switch(before.into(), now.into(), run.end_ns - start_ns) {
                score.level = score.speaks_for() as u8;
            }
        }
        all
    }
}

/// A side of a moment.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Side {
    Before(u64),
    Behind(u64),
}

impl Side {
    /// A moment on that side.
    pub fn moment_ns(self) -> u64 {
        match self {
            Side::Before(at_ns) => at_ns.saturating_sub(1),
            Side::Behind(at_ns) => at_ns,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::Why;

    /// Two tasks take turns, one raises the level for all of its time and leaves it raised: the
    /// first is expected to ask for level 2 once its score says so, the other never.
    #[test]
    fn scores_tell_who_it_was() {
        const TURN_NS: u64 = 5_000_000;
        let run = |turn: u64| Run {
            task: 1 + (turn % 2) as usize,
            cpu: 0,
            start_ns: turn * TURN_NS,
            end_ns: (turn + 1) * TURN_NS,
            level: 0,
            why: Some(Why::Preempted),
        };
        let runs: Vec<Run> = (0..40).map(run).collect();
        // Even turns are wide; the level is held into the odd ones.
        let level = |_: u16, side: Side| {
            let (turn, into_ns) = (side.moment_ns() / TURN_NS, side.moment_ns() % TURN_NS);
            if (turn % 2 == 0) == (into_ns > 700_000) { 2 } else { 0 }
        };
        let Scores { arrivals, scores } = Scores::of(&runs, level);
        assert_eq!(arrivals.len(), 40);
        assert!(scores[&1].value() > 1.9 && scores[&2].value() == 0.0, "{scores:?}");
        let expected = |task| arrivals.iter().filter(move |a| a.task == task).map(|a| a.expected);
        assert!(expected(2).all(|level| level == 0));
        let wide: Vec<u8> = expected(1).collect();
        assert!(wide.is_sorted() && wide[0] == 0 && wide[19] == 2, "{wide:?}");
    }
}
