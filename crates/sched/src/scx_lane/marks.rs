// SPDX-License-Identifier: MIT OR Apache-2.0
//! Marks of a running lane: they come and go, and follow their files (`scx/follow.rs`).

use std::time::{Duration, Instant};

use report::lane::{LostMark, ScopeRule};
use report::problem::Problem;

use super::ScxLane;
use crate::config::Mark;
use crate::error::{Error, Result};
use crate::marks::{MarkRules, ResolvedMark};
use crate::scx::MarkChange;

/// From one look at the files of marks to the next. A program that is started after an upgrade may
/// be unseen for so long.
const LOOK: Duration = Duration::from_secs(5);

impl ScxLane {
    /// How marks are looked up in their files, which takes no lane.
    pub fn mark_rules(&self) -> MarkRules {
        MarkRules::of(&self.config, self.emulation)
    }

    /// Watch one more function.
    pub fn add_mark(&mut self, mark: Mark, resolved: &ResolvedMark) -> Result<()> {
        if self.scheduler.sites().any(|site| site.is_same_site(resolved)) {
            return Err(Error::BadInput(Problem::new(
                format!("cannot mark {mark}"),
                "it is marked already",
                "remove the mark first to place it anew: turbolane ctl mark remove",
            )));
        }
        self.scheduler.add_mark(resolved)?;
        self.config.marks.push(mark);
        Ok(())
    }

    /// Stop watching the function of `mark`; `gone` are all marks that name it.
    pub fn remove_mark(&mut self, mark: &Mark, gone: &[Mark]) -> Result<()> {
        if self.scheduler.remove_marks(gone) == 0 {
            let what = format!("cannot remove the mark {mark}");
            let next = "see the marks in place: turbolane ctl status";
            return Err(Error::BadInput(Problem::new(what, "it is not there", next)));
        }
        self.config.marks.retain(|mark| !gone.contains(mark));
        Ok(())
    }

    /// Marks that are not watched in their files as these are now.
    pub fn lost_marks(&self) -> Vec<LostMark> {
        let lost = self.scheduler.lost_marks();
        lost.map(|(mark, why)| LostMark { mark: mark.to_string(), why: why.into() }).collect()
    }

    /// The user's rules for tasks, with how many tasks each one applies to.
    pub fn scope_rules(&self) -> Vec<ScopeRule> {
        self.scheduler.scope_rules()
    }

    /// What became of marks whose files were replaced, since this was asked before.
    pub fn take_mark_changes(&mut self) -> Vec<MarkChange> {
        self.scheduler.take_mark_changes()
    }

    /// Looks at the files, if it is time to.
    pub(super) fn follow_marks(&mut self) {
        if self.files_seen.elapsed() < LOOK {
            return;
        }
        self.files_seen = Instant::now();
        self.scheduler.follow_marks(self.mark_rules());
    }

    /// Places all marks in a scheduler that was loaded anew. One whose function is gone since does
    /// not end the run.
    pub(super) fn place_marks(&mut self) {
        let sites = self.mark_rules().sites(&self.config.marks);
        for (mark, site) in self.config.marks.iter().zip(sites) {
            let placed = match site {
                Ok(site) => self.scheduler.add_mark(&site).map_err(|e| e.into_problem().why),
                Err(error) => Err(error.to_string()),
            };
            if let Err(why) = placed {
                self.scheduler.add_lost_mark(mark, why);
            }
        }
    }
}
