// SPDX-License-Identifier: MIT OR Apache-2.0
//! `turbolane reproduce`: the papers' figures beside simulated ones.
//!
//! Which scenario stands for which workload of which paper, and which scheduler for which prototype,
//! is in `plan.rs`; figures that are no measure of a configuration are in `figures.rs`; what we know
//! about differences is in `why.rs`. What a row means is said in `report::reproduce`.

mod figures;
mod plan;
mod why;

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use clap::Args;
use report::json_line;
use report::papers::{Config, PAPER_FILES, Paper};
use report::problem::Problem;
use report::reproduce::{Measure, Reproduction, Simulated};
use sim::engine::Outcome;

use crate::failure::{FOUND, Failure, print};
use crate::terminal;
use plan::Plan;

/// Simulate the papers' experiments and compare with what they published
///
/// Prints every figure of the evaluations beside ours, with the error, and whether the model was
/// fitted to it or predicts it. Exits with 1 if a published ranking does not hold.
#[derive(Args)]
#[command(after_long_help = "\
Examples:
  turbolane reproduce                 SFMA, SYSTOR and THESIS
  turbolane reproduce systor --json")]
pub(crate) struct ReproduceArgs {
    /// Short names of papers [default: SFMA, SYSTOR and THESIS]
    #[arg(value_name = "PAPER")]
    papers: Vec<String>,
    /// The whole input beside the built-in files
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Papers whose experiments the simulator has scenarios for.
const DEFAULT: [&str; 3] = ["SFMA", "SYSTOR", "THESIS"];

/// Simulates, and prints the comparison.
pub(crate) fn main(args: &ReproduceArgs) -> Result<ExitCode, Failure> {
    let default: Vec<String> = DEFAULT.map(String::from).into();
    let names = if args.papers.is_empty() { &default } else { &args.papers };
    let papers = names.iter().map(|name| paper(name)).collect::<Result<Vec<_>, _>>()?;
    let parts = papers.into_iter().map(|paper| {
        // two papers may mean different experiments by the same words
        let results = Results::new(&paper, args.seed);
        Reproduction::new(&[paper], &results, args.seed)
    });
    let reproduction = parts.reduce(join).expect("at least one paper");
    let text = match args.json {
        true => json_line(&reproduction) + "\n",
        false => reproduction.text(terminal::width()),
    };
    print(&text)?;
    let holds = reproduction.score.order_violations == 0;
    Ok(if holds { ExitCode::SUCCESS } else { ExitCode::from(FOUND) })
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

fn paper(name: &str) -> Result<Paper, Failure> {
    let known: Vec<&str> = PAPER_FILES.iter().map(|(name, _)| *name).collect();
    let Some(paper) = Paper::built_in(name) else {
        return Err(Failure::failed(Problem::new(
            format!("there is no paper \"{name}\""),
            format!("the papers are {}", known.join(", ")),
            "name one of them",
        )));
    };
    paper.map_err(|error| {
        let what = format!("cannot use the built-in data of {name}, line {}", error.line);
        Failure::failed(Problem::new(what, error.what, error.next))
    })
}

/// What one configuration yielded.
struct Simulation {
    plan: Plan,
    outcome: Outcome,
}

/// All that was simulated for a paper.
struct Results {
    document: String,
    by_plan: BTreeMap<String, Simulation>,
}

impl Results {
    fn new(paper: &Paper, seed: u64) -> Self {
        let mut plans: BTreeMap<String, Plan> = BTreeMap::new();
        let rows = paper.rows.iter().flat_map(|row| [Some(&row.config), row.against.as_ref()]);
        let orders = paper.orders.iter().flat_map(|order| order.best_first.iter());
        for config in rows.flatten().chain(orders) {
            // losses are compared with the variant that has no wide code
            let none = Config { variant: "none".into(), ..config.clone() };
            for config in [config, &none] {
                if let Some(plan) = Plan::of(&paper.document, config) {
                    plans.insert(plan.key(), plan);
                }
            }
        }
        for plan in figures::plans(&paper.document) {
            plans.entry(plan.key()).or_insert(plan);
        }
        let by_plan = simulate(plans.into_values().collect(), seed);
        Results { document: paper.document.clone(), by_plan }
    }

    fn of(&self, plan: &Plan) -> Option<&Outcome> {
        self.by_plan.get(&plan.key()).map(|result| &result.outcome)
    }
}

/// Runs share nothing: as many at a time as there are CPUs.
fn simulate(plans: Vec<Plan>, seed: u64) -> BTreeMap<String, Simulation> {
    let next = AtomicUsize::new(0);
    let done = Mutex::new(BTreeMap::new());
    let jobs = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..jobs {
            scope.spawn(|| {
                while let Some(plan) = plans.get(next.fetch_add(1, Ordering::Relaxed)) {
                    // a plan that cannot be run is a row that was not simulated
                    if let Some(outcome) = plan.run(seed) {
                        let result = Simulation { plan: plan.clone(), outcome };
                        done.lock().unwrap_or_else(|e| e.into_inner()).insert(plan.key(), result);
                    }
                }
            });
        }
    });
    done.into_inner().unwrap_or_else(|e| e.into_inner())
}

impl Simulated for Results {
    fn measure(&self, config: &Config, measure: Measure) -> Option<f64> {
        let plan = Plan::of(&self.document, config)?;
        let result = self.by_plan.get(&plan.key())?;
        let out = &result.outcome;
        let group = out.group(result.plan.victim)?;
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
        figures::figure(id, self)
    }

    fn why(&self, id: &str) -> Option<String> {
        why::why(id).map(str::to_string)
    }
}
