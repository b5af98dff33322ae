// SPDX-License-Identifier: MIT OR Apache-2.0
//! Pauses: the kernel's own scheduler for a while, because a client has asked for it.
//!
//! To measure what the lane gains, a client needs the machine without it for some seconds, and the
//! lane as it was afterwards. A pause leaves the machine as standing by does (bpf/away.bpf.h):
//! nothing is withheld, no CPU is wide, and no mark is watched but those that an idle lane keeps.
//! What was found about the load, the wide CPUs and the policy's clocks, stays as it is.
//!
//! A pause has an end from its beginning, at most [`PAUSE_MAX`] away: a client that was killed
//! leaves the lane off no longer. A change of settings, CPUs that come or go, and a successor end
//! it too.

use std::time::{Duration, Instant};

use policy::StandbyState;
use report::problem::Problem;

use super::ScxLane;
use crate::config::Goal;
use crate::error::{Error, Result};

/// The longest pause: a client that wants more asks again, so that none that was killed leaves the
/// lane off for long.
pub const PAUSE_MAX: Duration = Duration::from_secs(600);

impl ScxLane {
    /// Leave the machine to the kernel's own scheduler for so long, or until
    /// [`resume`](Self::resume): what was found about the load stays as it is. Another pause
    /// replaces this one.
    ///
    /// # Errors
    /// When it cannot; the lane is at work then, as before. With a goal, which would take a figure
    /// of the pause for one of the lane.
    pub fn pause(&mut self, time: Duration) -> Result<()> {
        check(time)?;
        if self.config.goal != Goal::None {
            let why =
                "the lane is sized by the figures of --goal, and would learn from those of a pause";
            return Err(cannot_pause(why, "start it without --goal to compare"));
        }
        let before = self.paused_until.replace(Instant::now() + time);
        if self.scheduler.is_away() {
            return Ok(());
        }
        let failure = match self.follow_classes().and_then(|()| self.go_or_come_back()) {
            Ok(None) => return Ok(()),
            Ok(Some(ended)) => Error::failed("cannot pause", ended.reason),
            Err(error) => error,
        };
        self.paused_until = before;
        // What was disarmed for the pause is armed again; that it could not be left says more.
        _ = self.follow_classes();
        Err(failure)
    }

    /// End a pause at a client's request. If the machine cannot be taken back as it was, the client
    /// is told, and the next [`poll`](Self::poll) fails: half a lane must not go on.
    pub fn resume_for_client(&mut self) -> Result<()> {
        self.resume().map_err(|error| {
            let told = Error::failed("the lane cannot continue", &error);
            self.broken = Some(error);
            told
        })
    }

    /// End a pause.
    pub(super) fn resume(&mut self) -> Result<()> {
        match self.end_pause() {
            // How it has ended, if it has, is found by the next poll().
            true => self.go_or_come_back().map(drop),
            false => Ok(()),
        }
    }

    /// From now on there is none; false if there was none. The policy's period begins anew: nothing
    /// was counted meanwhile.
    pub(super) fn end_pause(&mut self) -> bool {
        let was_paused = self.paused_until.take().is_some();
        if was_paused && let Some((_, last)) = &mut self.auto {
            *last = Instant::now();
        }
        was_paused
    }

    /// What is left of a pause; `None` if there is none.
    pub fn pause_left(&self) -> Option<Duration> {
        Some(self.paused_until?.saturating_duration_since(Instant::now()))
    }

    /// Whether wide code is kept apart, and why not, in words; `None` if the user has chosen the
    /// wide CPUs.
    pub fn standby(&self) -> Option<String> {
        if self.paused_until.is_some() {
            return Some("paused by turbolane ctl pause".into());
        }
        let (auto, _) = self.auto.as_ref()?;
        auto.in_words()
    }

    /// Whether wide code is not kept apart now; `None` if that is not the policy's to say.
    pub(super) fn is_standing_by(&self) -> Option<bool> {
        let standby = self.auto.as_ref().and_then(|(auto, _)| auto.standby());
        let by_policy = standby.map(|standby| standby.state() != StandbyState::Apart);
        if self.paused_until.is_some() { Some(true) } else { by_policy }
    }
}

/// The refusal in affinity mode.
pub fn no_pause_by_masks() -> Error {
    let why =
        "in affinity mode threads have narrowed their own masks, which stay so until they end";
    cannot_pause(why, "stop that run instead, or use a kernel with sched_ext")
}

fn cannot_pause(why: &str, next: &str) -> Error {
    Error::BadInput(Problem::new("cannot pause", why, next))
}

fn check(time: Duration) -> Result<()> {
    if !time.is_zero() && time <= PAUSE_MAX {
        return Ok(());
    }
    let why = format!("{} s is none of the times from 1 ns to 10 min", time.as_secs_f64());
    Err(cannot_pause(&why, "ask for a shorter pause, and again before it ends"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A client may ask for anything; one that is gone leaves the lane off for ten minutes at most.
    #[test]
    fn pauses_are_bounded() {
        assert!(check(PAUSE_MAX).is_ok() && check(Duration::from_nanos(1)).is_ok());
        for time in [Duration::ZERO, PAUSE_MAX + Duration::from_nanos(1), Duration::MAX] {
            assert!(check(time).unwrap_err().into_problem().why.contains("10 min"));
        }
    }
}
