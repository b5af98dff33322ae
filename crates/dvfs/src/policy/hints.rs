// SPDX-License-Identifier: MIT OR Apache-2.0
//! Hints: the application or the kernel says when to raise the clock (DIM 5, 7.1).
//!
//! Two interfaces, as DIM 7.1 proposes them to the hardware:
//!
//! - a **delay** that replaces the timeout until another is set. The application sets it for a
//!   phase; between phases the timeout of the policy, if it has one, is the fallback for code
//!   without hints;
//! - a **forced change**, once. If a change is in progress, it happens when that is over; it is
//!   void as soon as the demand comes back.
//!
//! A context switch is a forced change to the level that the next task is expected to ask for (DIM
//! 5.2, 5.3). Where that expectation comes from (a power score) does not matter here: the moment
//! carries it.

use super::{Fixed, Policy, Raise, View};
use crate::Moment;

/// Which moments a policy heeds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heeds {
    /// Those of the application: [`Moment::Force`], [`Moment::DelayNs`].
    Application,
    /// Those of the kernel: [`Moment::Switch`].
    Switches,
}

/// Raises the clock at a hint, otherwise after a timeout.
#[derive(Clone, Debug)]
pub struct Hints {
    heeds: Heeds,
    fallback: Fixed,
    /// Lowest level that a forced change may end at; `None`: there is none.
    forced: Option<u8>,
}

impl Hints {
    /// Heeds these moments; `fallback_ns` after the last wide code without any, `u64::MAX` for
    /// never. DIM 6.2.2 has none.
    pub fn new(heeds: Heeds, fallback_ns: u64) -> Self {
        Hints { heeds, fallback: Fixed { timeout_ns: fallback_ns }, forced: None }
    }
}

impl Policy for Hints {
    fn wait(&mut self, view: &View<'_>) -> Option<Raise> {
        match self.forced {
            Some(level) if level < view.license.level() => {
                let to = level.max(view.license.demand());
                Some(Raise { at_ns: view.now_ns, to })
            }
            _ => self.fallback.wait(view),
        }
    }

    fn told(&mut self, moment: Moment, view: &View<'_>) {
        let level = match (moment, self.heeds) {
            (Moment::Force, Heeds::Application) => 0,
            (Moment::Switch(level), Heeds::Switches) => level,
            (Moment::DelayNs(delay_ns), Heeds::Application) => {
                self.fallback.timeout_ns = delay_ns;
                return;
            }
            _ => return,
        };
        // nothing to give up: it must not be left over for the next gap
        self.forced = (view.license.target() > view.license.demand()).then_some(level);
    }

    fn risen(&mut self) {
        self.forced = None;
    }
}
