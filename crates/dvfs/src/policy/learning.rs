// SPDX-License-Identifier: MIT OR Apache-2.0
//! Policies that learn from the gaps so far, with no knowledge of the application: what DIM 9.1
//! leaves to future work.
//!
//! Both know afterwards how long each gap would have been at the low clock: the time that the level
//! was held, and that at the higher clock times the ratio of the clocks. In units of the round
//! trip's cost, a gap's length is what never raising the clock would have lost:
//!
//! ```text
//!   x = (r * held + (f_high / f_low - 1) * raised) / t_o
//! ```
//!
//! **Average** (Hwang, Wu 1997): the exponential average of the lengths predicts the next one. If
//! that is 1 or more, raising pays, so the clock is raised at once; else at break-even, should the
//! prediction be wrong.
//!
//! **Share** (Helmbold, Long, Sconyers, Sherrod 2000, for the spin-down of disks): experts, each a
//! fixed threshold, and a weight for each. After a gap an expert's weight shrinks with its loss, w
//! <- w * (1 - ETA * loss), and all experts get back an equal part of what is small (fixed share,
//! Herbster, Warmuth 1998), so that no one is beyond recovery when the program's phase changes. For
//! a gap an expert is drawn by weight, which keeps the bound that averages of thresholds have not:
//! a loss is no convex function of its threshold. Regret against the best expert falls with ETA's
//! terms, about ETA / 2 + ln(n) / (ETA * gaps) in units of the largest loss.
//!
//! Experts reach beyond break-even, for where most gaps are a little longer than that.

use cpumodel::MAX_LEVELS;

use super::threshold::Loss;
use super::{Gap, Policy, Raise, View};
use crate::Core;
use crate::rng::Rng;

/// Weight of the newest gap in the average; Hwang and Wu use one half.
const NEWEST: f64 = 0.5;

/// Thresholds of the experts: 0, then by a factor of about the square root of 2 up to twice the
/// cost of the changes.
const EXPERTS: [f64; 12] = [0.0, 0.0625, 0.09, 0.125, 0.18, 0.25, 0.35, 0.5, 0.7, 1.0, 1.4, 2.0];
/// Learning rate; the bound on the regret holds up to one half.
const ETA: f64 = 0.5;
/// Part of the weight that all experts share after a gap. In the long run it costs
/// `SHARED / ETA * LOSS_MAX`, 1.2 % of the changes' cost, per gap.
const SHARED: f64 = 0.002;
/// Largest loss of an expert in a gap: its threshold and the changes.
const LOSS_MAX: f64 = EXPERTS[EXPERTS.len() - 1] + 1.0;

/// Length of a gap in units of the round trip's cost; `None` if its step has no cost or no gain.
fn length(gap: &Gap, core: &Core) -> Option<f64> {
    let round_trip_ns = core.round_trip_ns(gap.demand, gap.level);
    let ratio = core.clock_ratio(gap.demand, gap.level);
    let lost_ns = (1.0 - 1.0 / ratio) * gap.held_ns as f64 + (ratio - 1.0) * gap.raised_ns as f64;
    (ratio > 1.0 && round_trip_ns > 0.0).then(|| lost_ns / round_trip_ns)
}

/// A value for each step: from a granted level to a demand.
type BySteps<T> = [[T; MAX_LEVELS]; MAX_LEVELS];

/// What learns a threshold: for a machine that takes a timeout when a gap begins, and is not asked
/// again. Its timeout is the threshold times [`crate::break_even_ns`] of the step; when the gap is
/// over, [`Policy::ended`] takes it in.
pub trait Learner: Policy {
    /// Of the next gap, from a granted level to a demand.
    fn threshold(&mut self, level: u8, demand: u8) -> f64;
}

/// Predicts the next gap by the exponential average of the last ones.
#[derive(Clone, Debug)]
pub struct Average {
    core: Core,
    predicted: BySteps<f64>,
    loss: Loss,
}

impl Average {
    /// For a core. Before the first gap it is the break-even timeout.
    pub fn new(core: &Core) -> Self {
        let predicted = [[0.0; MAX_LEVELS]; MAX_LEVELS];
        Average { core: core.clone(), predicted, loss: Loss::default() }
    }
}

impl Learner for Average {
    fn threshold(&mut self, level: u8, demand: u8) -> f64 {
        if self.predicted[level as usize][demand as usize] >= 1.0 { 0.0 } else { 1.0 }
    }
}

impl Policy for Average {
    fn wait(&mut self, view: &View<'_>) -> Option<Raise> {
        let threshold = self.threshold(view.license.level(), view.license.demand());
        self.loss.raise_at(view, threshold)
    }

    fn ended(&mut self, gap: &Gap) {
        self.loss.reset();
        if let Some(length) = length(gap, &self.core) {
            let predicted = &mut self.predicted[gap.level as usize][gap.demand as usize];
            *predicted = NEWEST * length + (1.0 - NEWEST) * *predicted;
        }
    }
}

/// Draws among thresholds by what they would have lost so far.
#[derive(Clone, Debug)]
pub struct Share {
    core: Core,
    weights: BySteps<[f64; EXPERTS.len()]>,
    /// Of this gap; `None` before it begins.
    threshold: Option<f64>,
    loss: Loss,
    rng: Rng,
}

impl Share {
    /// For a core. It begins with all thresholds equally likely.
    pub fn new(core: &Core, seed: u64) -> Self {
        let even = [1.0 / EXPERTS.len() as f64; EXPERTS.len()];
        let weights = [[even; MAX_LEVELS]; MAX_LEVELS];
        let (loss, rng) = (Loss::default(), Rng::new(seed));
        Share { core: core.clone(), weights, threshold: None, loss, rng }
    }

    fn draw(&mut self, level: u8, demand: u8) -> f64 {
        let mut left = self.rng.unit();
        let weights = &self.weights[level as usize][demand as usize];
        for (threshold, weight) in EXPERTS.iter().zip(weights) {
            left -= weight;
            if left < 0.0 {
                return *threshold;
            }
        }
        // rounding: the weights sum up to 1
        EXPERTS[EXPERTS.len() - 1]
    }
}

/// Weights after a gap of this length; they sum up to 1.
fn update(weights: &mut [f64; EXPERTS.len()], length: f64) {
    let mut sum = 0.0;
    for (weight, threshold) in weights.iter_mut().zip(EXPERTS) {
        let loss = if length <= threshold { length } else { threshold + 1.0 };
        *weight *= 1.0 - ETA * loss / LOSS_MAX;
        sum += *weight;
    }
    for weight in weights {
        *weight = (1.0 - SHARED) * *weight / sum + SHARED / EXPERTS.len() as f64;
    }
}

impl Learner for Share {
    fn threshold(&mut self, level: u8, demand: u8) -> f64 {
        let threshold = self.threshold.unwrap_or_else(|| self.draw(level, demand));
        self.threshold = Some(threshold);
        threshold
    }
}

impl Policy for Share {
    fn wait(&mut self, view: &View<'_>) -> Option<Raise> {
        let threshold = self.threshold(view.license.level(), view.license.demand());
        self.loss.raise_at(view, threshold)
    }

    fn ended(&mut self, gap: &Gap) {
        self.loss.reset();
        self.threshold = None;
        if let Some(length) = length(gap, &self.core) {
            update(&mut self.weights[gap.level as usize][gap.demand as usize], length);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Where every gap is as long, the weight moves to the thresholds that lose least: to 0 where
    /// raising pays, to those after the gap where it does not.
    #[test]
    fn weight_moves_to_the_best() {
        for (length, is_best) in [(30.0, (|t| t == 0.0) as fn(f64) -> bool), (0.3, |t| t > 0.3)] {
            let mut weights = [1.0 / EXPERTS.len() as f64; EXPERTS.len()];
            (0..400).for_each(|_| update(&mut weights, length));
            let best: f64 =
                weights.iter().zip(EXPERTS).filter(|(_, t)| is_best(*t)).map(|w| w.0).sum();
            assert!(best > 0.8, "{length}: {weights:?}");
            assert!((weights.iter().sum::<f64>() - 1.0).abs() < 1e-12);
        }
    }

    /// A length is what staying would have lost, wherever the clock was raised.
    #[test]
    fn a_length_does_not_depend_on_the_policy() {
        let model = cpumodel::CpuModel::built_in("xeon-gold-6130").unwrap().unwrap();
        let core = Core::new(&cpumodel::Platform::new(&model), 16);
        // 1 ms at 1.9 GHz is 0.6786 ms at 2.8
        let stayed = Gap { level: 2, demand: 0, held_ns: 1_000_000, raised_ns: 0 };
        let raised = Gap { level: 2, demand: 0, held_ns: 0, raised_ns: 678_571 };
        let length = |gap| length(&gap, &core).unwrap();
        assert!((length(stayed) - length(raised)).abs() < 1e-4);
        let break_even_ns = crate::break_even_ns(&core, 2, 0).unwrap() as u64;
        assert!((length(Gap { held_ns: break_even_ns, ..stayed }) - 1.0).abs() < 1e-4);
    }
}
