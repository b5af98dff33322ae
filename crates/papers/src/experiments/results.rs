// SPDX-License-Identifier: MIT OR Apache-2.0
//! Answers for one paper, from what was simulated: with one seed, and in all forms.

use sim::engine::Outcome;

use super::change::{Altered, Change, Instead, WhatIf};
use super::figures;
use super::kept::Kept;
use super::plan::Plan;
use super::score::ScorePlan;
use super::{boost, dvfs, locks};
use crate::comparison::{Changed, Experiments, Measure, Runs, Simulated, WhatIfRuns};
use crate::published::Config;

/// What was simulated for a paper with a seed: as the model has it, or with something else in its
/// place.
#[derive(Clone, Copy)]
pub(super) struct Results<'a> {
    pub document: &'a str,
    pub kept: &'a Kept,
    pub instead: Instead,
    pub seed: u64,
}

/// Whether a change concerns what is replayed or computed, instead of simulated.
pub(super) fn is_replayed(altered: &Altered) -> bool {
    use Change::{Boost, Clock, Locks, Platform, Prototype, Pstates, Workload};
    match altered.change {
        Clock(_) | Boost(_) | Locks(_) | Pstates(_) => true,
        Platform(_) | Prototype(_) | Workload(_) => false,
    }
}

impl Results<'_> {
    pub(super) fn of(&self, plan: &Plan) -> Option<&Outcome> {
        self.kept.outcome(&plan.with(self.instead), self.seed)
    }

    /// What needs no seed.
    fn replayed(&self, name: String, compute: impl Fn(Instead) -> Option<f64>) -> Option<f64> {
        let instead = self.instead.if_any(is_replayed);
        self.kept.once(format!("{name} {}", instead.label()), || compute(instead))
    }
}

impl Simulated for Results<'_> {
    fn measure(&self, config: &Config, measure: Measure) -> Option<f64> {
        let replayed = self.replayed(format!("{config:?} {measure:?}"), |instead| {
            dvfs::measure(config, measure, instead)
                .or_else(|| locks::measure(config, measure, instead))
        });
        if replayed.is_some() {
            return replayed;
        }
        let plan = Plan::of(self.document, config)?;
        let out = self.of(&plan)?;
        let group = out.group(plan.victim)?;
        match measure {
            Measure::Throughput => Some(group.completed as f64 / out.measured_ns as f64 * 1e9),
            Measure::CpuTime => {
                (group.completed > 0).then(|| group.cpu_ns as f64 / group.completed as f64)
            }
            Measure::Clock => group.mean_khz,
            Measure::LatencyMean => out.sources.first()?.latency.mean_ns().map(|ns| ns as f64),
            Measure::LatencyMax => out.sources.first()?.latency.max_ns().map(|ns| ns as f64),
        }
    }

    fn figure(&self, id: &str) -> Option<f64> {
        let replayed = self.replayed(id.into(), |instead| {
            // TURBO's strategies are the library's own: there is nothing of ours to compare
            let boosted = || locks::figure(id, instead).or_else(|| boost::figure(id, instead));
            let turbolane = matches!(instead, Instead::Turbolane);
            dvfs::figure(id, instead).or_else(|| boosted().filter(|_| !turbolane))
        });
        let score = || self.kept.score(&ScorePlan::of(id, self.instead)?, self.seed);
        replayed.or_else(score).or_else(|| figures::figure(id, &|plan| self.of(plan)))
    }
}

/// A paper's experiments in all forms.
pub(super) struct Forms<'a> {
    pub document: &'a str,
    pub kept: &'a Kept,
    pub seeds: u64,
    /// Seeds of changed experiments.
    pub changed_seeds: u64,
    /// Near-free constants with other plausible values.
    pub elsewhere: &'a [Instead],
    pub what_ifs: &'static [WhatIf],
    /// What all of these break together.
    pub breaks: &'a [String],
}

impl Forms<'_> {
    pub(super) fn runs(&self, instead: Instead, seeds: u64) -> Runs<'_> {
        let with = |seed| Results { document: self.document, kept: self.kept, instead, seed };
        (1..=seeds).map(|seed| Box::new(with(seed)) as Box<dyn Simulated + '_>).collect()
    }
}

impl Experiments for Forms<'_> {
    fn model(&self) -> Runs<'_> {
        self.runs(Instead::Nothing, self.seeds)
    }

    fn turbolane(&self) -> Runs<'_> {
        self.runs(Instead::Turbolane, self.changed_seeds)
    }

    fn elsewhere(&self) -> Vec<Changed<'_>> {
        let changed = |&instead: &Instead| Changed {
            change: instead.label(),
            runs: self.runs(instead, self.changed_seeds),
        };
        self.elsewhere.iter().map(changed).collect()
    }

    fn what_if(&self, id: &str) -> Option<WhatIfRuns<'_>> {
        let what_if = self.what_ifs.iter().find(|what_if| what_if.explains.contains(&id))?;
        Some(WhatIfRuns {
            change: what_if.says(),
            breaks: self.breaks,
            runs: self.runs(Instead::Explained(self.what_ifs), self.changed_seeds),
        })
    }
}
