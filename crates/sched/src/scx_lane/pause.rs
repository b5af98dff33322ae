// SPDX-License-Identifier: MIT OR Apache-2.0
//! Pauses: the kernel's own scheduler for a while, because a client has asked for it.
//!
//! To measure what the lane gains, a client needs the machine without it for some seconds, and the
//! lane as it was afterwards. A pause leaves the machine as standing by does (bpf/away.bpf.h):
//! nothing is withheld, no mark is watched, no CPU is wide. What was found about the load, the
//! wide CPUs and the policy's clocks, stays as it is.
//!
//! A pause has an end from its beginning, at most [`PAUSE_MAX`] away: a client that was killed
//! leaves the lane off no longer. A change of settings, CPUs that come or go, and a successor end
//! it too.

use std::time::{Duration, Instant};

use policy::StandbyState;
use report::problem::Problem;

use super::ScxLane;
use crate::error::{Error, Result};

/// The longest pause: a client that wants more asks again, so that none that was killed leaves the
/// lane off for long.
pub const PAUSE_MAX: Duration = Duration::from_secs(600);

impl ScxLane {
    /// Leave the machine to the kernel's own scheduler for so long, or until
    /// [`resume`](Self::resume): what was found about the load stays as it is. Another pause
    /// replaces this one.
    pub fn pause(&mut self, time: Duration) -> Result<()> {
        check(time)?;
        self.paused_until = Some(Instant::now() + time);
        if self.scheduler.is_away() {
            return Ok(());
        }
        self.follow_classes()?;
        match self.go_or_come_back()? {
            Some(ended) => Err(Error::failed("cannot pause", ended.reason)),
            None => Ok(()),
        }
    }

    /// End a pause.
    pub fn resume(&mut self) -> Result<()> {
        if self.paused_until.take().is_none() {
            return Ok(());
        }
        if let Some((_, last)) = &mut self.auto {
            *last = Instant::now();
        }
        // How it has ended, if it has, is found by the next poll().
        self.go_or_come_back().map(drop)
    }

    /// What is left of a pause; `None` if there is none.
    pub fn pause_left(&self) -> Option<Duration> {
        Some(self.paused_until?.saturating_duration_since(Instant::now()))
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
