// SPDX-License-Identifier: MIT OR Apache-2.0
//! Processes that have power scores are looked through ([`crate::questions::Judge`]), so that none
//! is blamed for a level that its code cannot ask for.

use std::io;
use std::time::{Duration, Instant};

use super::ScxLane;
use crate::clock::monotonic_ns;
use crate::error::Result;
use crate::questions::Judge;
use crate::scx::Scheduler;

/// From one look to the next.
const LOOK: Duration = Duration::from_secs(1);

/// What is asked of whom.
pub(super) struct CodeWatch {
    judge: Judge,
    looked: Option<(Instant, u64)>,
}

impl CodeWatch {
    fn start() -> io::Result<Self> {
        Ok(CodeWatch { judge: Judge::start()?, looked: None })
    }

    fn follow(&mut self, scheduler: &Scheduler) -> Result<()> {
        if let Some(codes) = self.judge.answer() {
            scheduler.know_code(&codes)?;
        }
        let since_ns = self.looked.map_or(0, |(_, ns)| ns);
        if !self.judge.is_free() || self.looked.is_some_and(|(at, _)| at.elapsed() < LOOK) {
            return Ok(());
        }
        self.looked = Some((Instant::now(), monotonic_ns()));
        let tasks = scheduler.tasks(since_ns)?.tasks.unwrap_or_default();
        let blamed = tasks.iter().filter(|task| task.power_score_q10 > Some(0));
        self.judge.ask(blamed.map(|task| task.pid).collect());
        Ok(())
    }
}

impl ScxLane {
    /// Asks for the processes that have been blamed of late, and puts the answer into force. Where
    /// that fails, scores are as DIM has them: no reason to end.
    pub(super) fn follow_code(&mut self) {
        if !self.scheduler.has_scores() || self.scheduler.is_away() {
            return;
        }
        if self.code.is_none() {
            self.code = CodeWatch::start().ok();
        }
        if let Some(watch) = &mut self.code {
            _ = watch.follow(&self.scheduler);
        }
    }
}
