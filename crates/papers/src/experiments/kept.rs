// SPDX-License-Identifier: MIT OR Apache-2.0
//! What was simulated, by plan and seed. Equal plans are run once, whichever paper, row or change
//! they are for.

use std::collections::BTreeMap;
use std::sync::Mutex;

use rayon::prelude::*;
use sim::engine::Outcome;

use super::plan::Plan;
use super::score::ScorePlan;

/// Everything that is to be simulated.
#[derive(Default)]
pub(super) struct Wanted {
    plans: BTreeMap<(String, u64), Plan>,
    scores: BTreeMap<(String, u64), ScorePlan>,
}

impl Wanted {
    pub(super) fn plan(&mut self, plan: Plan, seeds: u64) {
        (1..=seeds).for_each(|seed| _ = self.plans.insert((plan.key(), seed), plan.clone()));
    }

    pub(super) fn score(&mut self, plan: ScorePlan, seeds: u64) {
        (1..=seeds).for_each(|seed| _ = self.scores.insert((plan.key(), seed), plan.clone()));
    }

    /// Runs share nothing: as many at a time as there are CPUs. A plan that cannot be run is a row
    /// that was not simulated.
    pub(super) fn simulate(self) -> Kept {
        let plans: Vec<_> = self.plans.into_iter().collect();
        let scores: Vec<_> = self.scores.into_iter().collect();
        let (outcomes, scores) = rayon::join(
            || {
                let run = |((key, seed), plan): ((String, u64), Plan)| {
                    let outcome = plan.run(seed)?;
                    Some(((key, seed), outcome))
                };
                plans.into_par_iter().filter_map(run).collect()
            },
            || {
                let run = |((key, seed), plan): ((String, u64), ScorePlan)| {
                    let score = plan.run(seed)?;
                    Some(((key, seed), score))
                };
                scores.into_par_iter().filter_map(run).collect()
            },
        );
        Kept { outcomes, scores, replays: Mutex::default() }
    }
}

/// The results.
pub(super) struct Kept {
    outcomes: BTreeMap<(String, u64), Outcome>,
    scores: BTreeMap<(String, u64), f64>,
    /// What needs no seed and takes milliseconds, by what was asked for.
    replays: Mutex<BTreeMap<String, Option<f64>>>,
}

impl Kept {
    pub(super) fn outcome(&self, plan: &Plan, seed: u64) -> Option<&Outcome> {
        self.outcomes.get(&(plan.key(), seed))
    }

    pub(super) fn score(&self, plan: &ScorePlan, seed: u64) -> Option<f64> {
        self.scores.get(&(plan.key(), seed)).copied()
    }

    /// The result of `compute`, which is the same for the same name.
    pub(super) fn once(&self, name: String, compute: impl FnOnce() -> Option<f64>) -> Option<f64> {
        let mut replays = self.replays.lock().expect("nothing panics while it is held");
        *replays.entry(name).or_insert_with(compute)
    }
}
