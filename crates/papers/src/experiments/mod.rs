// SPDX-License-Identifier: MIT OR Apache-2.0
//! The papers' experiments, simulated.
//!
//! Which scenario models which workload of which paper, and which scheduler which prototype, is in
//! `plan.rs`; figures that are no measure of a configuration are in `figures.rs`; what DIM says
//! about the clock of one core is in `dvfs.rs` (our own recording of its web server in
//! `recorded.rs`), and about power scores in `score.rs`; what TURBO says about locks in `locks.rs`,
//! and about what else it boosted in `boost.rs`. Changed experiments that explain a miss are in
//! `what_if.rs`. What a row means is said in `comparison`.

mod boost;
mod change;
mod dvfs;
mod figures;
mod locks;
mod plan;
mod recorded;
mod score;
mod what_if;

use std::collections::BTreeMap;

use rayon::prelude::*;
use sim::engine::Outcome;

use crate::comparison::{Measure, Reproduction, Simulated, Variation};
use crate::published::{Config, Paper, Row, Use};
use plan::{Instead, Plan};
use what_if::WHAT_IFS;

/// The seed that the figures of docs/papers.md are for.
pub const SEED: u64 = 1;

/// All experiments of these papers, simulated and compared with what was published; paper by paper,
/// because two papers may mean different experiments by the same words. `None` of no paper.
pub fn reproduce(papers: Vec<Paper>, seed: u64) -> Option<Reproduction> {
    let parts = papers.into_iter().map(|paper| {
        let by_plan = simulate(&plans_of(&paper), seed);
        let results =
            Results { document: &paper.document, by_plan: &by_plan, instead: Instead::Nothing };
        Reproduction::new(std::slice::from_ref(&paper), &results, seed)
    });
    parts.reduce(join)
}

/// Two comparisons as one.
fn join(mut all: Reproduction, mut next: Reproduction) -> Reproduction {
    let (a, b) = (&mut all.score, next.score);
    a.predicted += b.predicted;
    a.compared += b.compared;
    a.within += b.within;
    a.orders += b.orders;
    a.orders_compared += b.orders_compared;
    a.order_violations += b.order_violations;
    a.unexplained += b.unexplained;
    let share = (a.predicted > 0).then(|| f64::from(a.within) / f64::from(a.predicted));
    a.within_tolerance_pct = share.map(|share| 100.0 * share);
    all.papers.append(&mut next.papers);
    all
}

/// Every simulation that the paper's rows and rankings need, with and without changes.
fn plans_of(paper: &Paper) -> Vec<Plan> {
    let all = plans_for(paper, |_| true);
    let turbolane = all.iter().map(|plan| plan.with(Instead::Turbolane));
    let changed = WHAT_IFS.iter().flat_map(|what_if| {
        let plans = plans_for(paper, |id| what_if.explains.contains(&id));
        plans.into_iter().map(move |plan| plan.with(Instead::WhatIf(what_if)))
    });
    // equal plans are run once
    let plans = all.iter().cloned().chain(turbolane).chain(changed);
    let by_key: BTreeMap<String, Plan> = plans.map(|plan| (plan.key(), plan)).collect();
    by_key.into_values().collect()
}

/// The simulations for the rows and rankings of these ids.
fn plans_for(paper: &Paper, wanted: impl Fn(&str) -> bool) -> Vec<Plan> {
    let rows: Vec<_> = paper.rows.iter().filter(|row| wanted(&row.id)).collect();
    let of_rows = rows.iter().flat_map(|row| [Some(&row.config), row.against.as_ref()]);
    // the row that fixes a scale may be any of the workload's
    let scales = rows.iter().flat_map(|row| {
        let same = |other: &&Row| other.config.workload == row.config.workload;
        paper.rows.iter().filter(same).filter(|other: &&Row| other.purpose == Use::Calibrates)
    });
    let orders = paper.orders.iter().filter(|order| wanted(&order.id));
    let configs = of_rows
        .flatten()
        .chain(scales.map(|row| &row.config))
        .chain(orders.flat_map(|order| &order.best_first));
    let mut plans = Vec::new();
    for config in configs {
        // losses are compared with the variant that has no wide code
        let none = Config { variant: "none".into(), ..config.clone() };
        plans.extend([config, &none].into_iter().filter_map(|c| Plan::of(&paper.document, c)));
    }
    for row in rows {
        plans.extend(figures::plans(&row.id));
    }
    plans
}

/// What was simulated for a paper: as the model has it, or with something else in its place.
struct Results<'a> {
    document: &'a str,
    by_plan: &'a BTreeMap<String, Outcome>,
    instead: Instead,
}

impl Results<'_> {
    fn of(&self, plan: &Plan) -> Option<&Outcome> {
        self.by_plan.get(&plan.with(self.instead).key())
    }
}

/// Runs share nothing: as many at a time as there are CPUs. A plan that cannot be run is a row that
/// was not simulated.
fn simulate(plans: &[Plan], seed: u64) -> BTreeMap<String, Outcome> {
    plans.par_iter().filter_map(|plan| Some((plan.key(), plan.run(seed)?))).collect()
}

impl Simulated for Results<'_> {
    fn measure(&self, config: &Config, measure: Measure) -> Option<f64> {
        let replayed = dvfs::measure(config, measure, self.instead);
        if let Some(value) = replayed.or_else(|| locks::measure(config, measure)) {
            return Some(value);
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
        let turbolane = matches!(self.instead, Instead::Turbolane);
        // TURBO's strategies are the library's own: there is nothing of ours to compare
        let boosted = || locks::figure(id).or_else(|| boost::figure(id, self.instead));
        dvfs::figure(id, self.instead)
            .or_else(|| score::figure(id, self.instead))
            .or_else(|| boosted().filter(|_| !turbolane))
            .or_else(|| figures::figure(id, self))
    }

    fn what_if(&self, id: &str) -> Option<Variation<'_>> {
        let what_if = what_if::of(id)?;
        let simulated = Results { instead: Instead::WhatIf(what_if), ..*self };
        Some(Variation { change: what_if.says, simulated: Box::new(simulated) })
    }

    fn turbolane(&self) -> Option<Box<dyn Simulated + '_>> {
        Some(Box::new(Results { instead: Instead::Turbolane, ..*self }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::published::PAPER_FILES;

    /// Every change brings each figure that it is named for nearer, or makes the ranking hold, and
    /// names nothing that is no miss. And the score that docs/papers.md states is the one that
    /// comes out.
    #[test]
    fn misses_are_explained_and_the_stated_score_is_true() {
        let papers = PAPER_FILES.iter().map(|(name, _)| Paper::built_in(name).unwrap().unwrap());
        let result = reproduce(papers.collect(), SEED).unwrap();
        let mut missed = Vec::new();
        for paper in &result.papers {
            let rows = paper.rows.iter().map(|row| (&row.published.id, &row.what_if));
            let orders = paper.orders.iter().map(|order| (&order.published.id, &order.what_if));
            for (id, what_if) in rows.chain(orders) {
                if let Some(what_if) = what_if {
                    assert!(what_if.explains, "{id}: {what_if:?}");
                    missed.push(id.as_str());
                }
            }
        }
        for id in WHAT_IFS.iter().flat_map(|what_if| what_if.explains) {
            assert!(missed.contains(id), "{id} is no miss");
        }
        let score = &result.score;
        let counts = [
            (score.within, score.predicted),
            (score.orders_compared - score.order_violations, score.orders),
        ];
        let page = include_str!("../../../../docs/papers.md");
        for (some, all) in counts {
            let stated = format!("{some} of {all}");
            assert!(page.contains(&stated), "docs/papers.md must say: {stated}");
        }
    }
}
