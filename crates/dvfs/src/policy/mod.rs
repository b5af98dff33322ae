// SPDX-License-Identifier: MIT OR Apache-2.0
//! Policies: when is the clock raised again?
//!
//! Problem: once wide code has ended, every moment at the low clock is partly lost, but raising the
//! clock and lowering it again costs a fixed time. How long the gap will be is not known. This is
//! dynamic power management's question of when to switch a device off (DIM 3), and the rental
//! problem of competitive analysis: rent (stay low) or buy (change twice).
//!
//! With the lost part r = 1 - f_low / f_high of each moment, the round trip's cost t_o, and a gap
//! that would last x at the low clock, a policy that waits for w loses
//!
//! ```text
//!   x <= w:  r * x            x > w:  r * w + t_o            the best in hindsight:  min(r * x, t_o)
//! ```
//!
//! | policy | when | known bound on its loss |
//! |---|---|---|
//! | [`Fixed`] | after a fixed time: Intel's, 670 us measured, 2 ms documented (DIM 4) | none |
//! | [`Threshold::break_even`] | when as much is lost as the changes cost: w = t_o / r | 2, the best a deterministic one can have (Karlin et al. 1994) |
//! | [`Threshold::random`] | after a part of that, drawn with density e^u / (e - 1) | e / (e - 1) = 1.582 on the mean, the best there is (ibid.) |
//! | [`Average`] | at once if gaps were long on the average, else at break-even | 2 where it waits |
//! | [`Share`] | after a time that paid off so far | near the best fixed time, also if it changes |
//! | [`Hints`] | when the application or the kernel says so (DIM 5, 7.1) | none |
//! | `oracle` | optimal, by looking ahead | 1 |
//!
//! The bounds hold for two levels, wide periods that outlast the throttle, and gaps that end (each
//! raise is followed by a lowering); losses that no policy can avoid, such as the first request's,
//! come on top for all of them alike.

mod fixed;
mod hints;
mod learning;
mod threshold;

pub use fixed::Fixed;
pub use hints::{Heeds, Hints};
pub use learning::{Average, Learner, Share};
pub use threshold::Threshold;

use cpumodel::CoreLicense;

use crate::{Core, Moment};

/// A change to a higher clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Raise {
    /// When it begins; a time that has passed means now.
    pub at_ns: u64,
    /// The level that it ends at; not below the demand of that moment.
    pub to: u8,
}

/// What a policy may know.
#[derive(Debug)]
pub struct View<'a> {
    /// The time.
    pub now_ns: u64,
    /// The core: clocks and costs.
    pub core: &'a Core,
    /// Its licence.
    pub license: &'a CoreLicense,
}

/// A gap in the demand for a level, once it is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gap {
    /// The level that was granted when it began.
    pub level: u8,
    /// The demand then.
    pub demand: u8,
    /// How long the level was held.
    pub held_ns: u64,
    /// How long it then ran at a higher clock; 0 if the clock was not raised.
    pub raised_ns: u64,
}

/// Decides when the clock is raised.
pub trait Policy {
    /// The core is steady at a level above the demand, and something has changed: the demand, the
    /// level, a CPU has become idle or busy, or someone said something. When is it raised, if
    /// nothing else changes? An answer replaces the one before; `None`: not at all.
    fn wait(&mut self, view: &View<'_>) -> Option<Raise>;

    /// Someone said something. [`Policy::wait`] follows if there is something to decide.
    fn told(&mut self, _moment: Moment, _view: &View<'_>) {}

    /// The demand has come back to the level that is granted or requested, or went above it.
    fn risen(&mut self) {}

    /// A gap that [`Policy::wait`] was asked about is over.
    fn ended(&mut self, _gap: &Gap) {}
}

impl View<'_> {
    /// What is lost by holding the granted level, per time, if the demand is all that runs.
    pub(crate) fn lost_frac(&self) -> f64 {
        1.0 - self.core.clock_ratio(self.license.level(), self.license.demand())
    }

    /// Cost of raising the clock to the demand's and lowering it again, ns.
    pub(crate) fn round_trip_ns(&self) -> f64 {
        self.core.round_trip_ns(self.license.demand(), self.license.level())
    }

    /// To the demand's level, so much later.
    pub(crate) fn raise_after(&self, wait_ns: f64) -> Raise {
        // beyond 2^63 ns it saturates: never
        let at_ns = self.now_ns.saturating_add(wait_ns.max(0.0).ceil() as u64);
        Raise { at_ns, to: self.license.demand() }
    }
}
