// SPDX-License-Identifier: MIT OR Apache-2.0
//! Policies by name, and a replay under one of them.

use crate::policy::{Average, Fixed, Heeds, Hints, Share, Threshold};
use crate::replay::{Outcome, Quiet, replay};
use crate::{Core, Timeline, oracle};

/// Which policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spec {
    /// Fixed timeout; `u64::MAX` for never.
    Fixed(u64),
    /// Break-even timeout of each step.
    BreakEven,
    /// Randomised break-even timeout.
    Random,
    /// Exponential average of gaps.
    Average,
    /// Experts that share weight.
    Share,
    /// Hints of the application, and a timeout without any; `u64::MAX` for none.
    Hints(u64),
    /// Context switches, and a timeout besides.
    Switches(u64),
    /// Optimal by looking ahead.
    Oracle,
}

/// Why a policy cannot be replayed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the oracle looks ahead on one CPU, not on two siblings")]
pub struct OracleNeedsOneCpu;

impl Spec {
    /// What it does, in a few words.
    pub fn about(self) -> &'static str {
        match self {
            Spec::Fixed(0) => "raises the clock at once",
            Spec::Fixed(u64::MAX) => "never raises the clock",
            Spec::Fixed(_) => "a fixed timeout, like the hardware's",
            Spec::BreakEven => "the break-even timeout of each step: 2-competitive",
            Spec::Random => "a random part of the break-even timeout: 1.58-competitive on average",
            Spec::Average => "at once if gaps have been long on average, otherwise break-even",
            Spec::Share => "learns which timeout pays",
            Spec::Hints(u64::MAX) => "when the application gives a hint",
            Spec::Hints(_) => "when the application gives a hint, or after a timeout",
            Spec::Switches(_) => "when the kernel switches to a scalar task, or after a timeout",
            Spec::Oracle => "optimal, because it looks ahead",
        }
    }

    /// The timelines of a core's CPUs under this policy; the seed is for those that draw.
    pub fn run(
        self,
        core: &Core,
        timelines: &[&Timeline],
        seed: u64,
    ) -> Result<Outcome, OracleNeedsOneCpu> {
        macro_rules! under {
            ($policy:expr) => {
                replay(core, timelines, &mut $policy, &mut Quiet)
            };
        }
        Ok(match self {
            Spec::Fixed(timeout_ns) => under!(Fixed { timeout_ns }),
            Spec::BreakEven => under!(Threshold::break_even()),
            Spec::Random => under!(Threshold::random(seed)),
            Spec::Average => under!(Average::new(core)),
            Spec::Share => under!(Share::new(core, seed)),
            Spec::Hints(fallback_ns) => under!(Hints::new(Heeds::Application, fallback_ns)),
            Spec::Switches(fallback_ns) => under!(Hints::new(Heeds::Switches, fallback_ns)),
            Spec::Oracle => match timelines {
                [timeline] => under!(oracle::best(core, timeline)),
                _ => return Err(OracleNeedsOneCpu),
            },
        })
    }
}
