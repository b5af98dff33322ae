// SPDX-License-Identifier: MIT OR Apache-2.0
//! Raise the clock when a part of what the changes cost has been lost: the break-even timeout and
//! its randomised form (Karlin, Manasse, McGeoch, Owicki 1994).
//!
//! The policy adds up what it loses at the low clock, and raises the clock when that reaches
//! `threshold * t_o`. In a plain gap this is the timeout `threshold * t_BE` of DIM 4.3, by step and
//! active cores. Where the demand changes within the gap, what was lost before counts on, at the
//! rate of that time.
//!
//! ```text
//!   break-even   threshold = 1                                   at most 2 times the best in hindsight
//!   random       threshold = u in [0, 1], density e^u / (e - 1)  e / (e - 1) times on the mean
//! ```
//!
//! The second is better because no gap is the worst one for all draws; it needs that the
//! program that makes the gaps does not see the draws.

use super::{Gap, Policy, Raise, View};
use crate::rng::Rng;

/// What has been lost since the level is held without need.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Loss {
    level: u8,
    lost_ns: f64,
    lost_frac: f64,
    since_ns: u64,
}

impl Loss {
    /// Counts until now, and at the rate of now from now on; returns what was lost, ns.
    pub(super) fn count(&mut self, view: &View<'_>) -> f64 {
        let level = view.license.level();
        if self.level == level {
            self.lost_ns += (view.now_ns - self.since_ns) as f64 * self.lost_frac;
        } else {
            *self = Loss { level, ..Loss::default() };
        }
        self.since_ns = view.now_ns;
        self.lost_frac = view.lost_frac();
        self.lost_ns
    }

    /// When `threshold` times the changes' cost is lost; `None` if nothing is being lost.
    pub(super) fn raise_at(&mut self, view: &View<'_>, threshold: f64) -> Option<Raise> {
        let lost_ns = self.count(view);
        let left_ns = threshold * view.round_trip_ns() - lost_ns;
        (self.lost_frac > 0.0).then(|| view.raise_after(left_ns / self.lost_frac))
    }

    /// The gap is over.
    pub(super) fn reset(&mut self) {
        *self = Loss::default();
    }
}

/// Raises the clock when a part of the changes' cost has been lost.
#[derive(Clone, Debug)]
pub struct Threshold {
    loss: Loss,
    /// Of this gap; `None` before it begins.
    threshold: Option<f64>,
    /// `None`: always 1.
    draws: Option<Rng>,
}

impl Threshold {
    /// Deterministic, 2-competitive.
    pub fn break_even() -> Self {
        Threshold { loss: Loss::default(), threshold: None, draws: None }
    }

    /// Randomised, e / (e - 1)-competitive.
    pub fn random(seed: u64) -> Self {
        Threshold { draws: Some(Rng::new(seed)), ..Threshold::break_even() }
    }
}

impl Policy for Threshold {
    fn wait(&mut self, view: &View<'_>) -> Option<Raise> {
        let draws = &mut self.draws;
        let threshold = *self
            .threshold
            .get_or_insert_with(|| draws.as_mut().map_or(1.0, |draws| draws.exp_unit()));
        self.loss.raise_at(view, threshold)
    }

    fn ended(&mut self, _gap: &Gap) {
        self.loss.reset();
        self.threshold = None;
    }
}
