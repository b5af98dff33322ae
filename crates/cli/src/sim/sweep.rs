// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs of a sweep, in parallel: as many threads as jobs.

use std::sync::Mutex;

use cpumodel::{CpuModel, Platform};
use rayon::ThreadPoolBuilder;
use rayon::prelude::*;
use report::problem::Problem;
use report::sim::{SimReport, SimRun};
use sim::engine::{Options, RunError};
use sim::policy_spec::{PolicySpec, simulate};

use super::convert;
use super::target::Target;
use crate::failure::Failure;
use crate::interrupt::Interrupt;
use crate::progress::Progress;

/// Part of a run that is recorded for charts: enough to see single licence changes, little enough
/// for a page that a browser opens.
const WINDOW_NS: u64 = 20_000_000;
/// Most points of a recording.
const POINTS_MAX: usize = 400_000;

/// All that is asked for.
pub(super) struct Sweep {
    pub targets: Vec<Target>,
    pub policies: Vec<PolicySpec>,
    pub seed: u64,
    pub record: bool,
    pub jobs: usize,
}

struct Run<'a> {
    target: usize,
    model: &'a CpuModel,
    policy: &'a PolicySpec,
}

/// Run everything, or until the interrupt; one report per scenario.
pub(super) fn run(sweep: &Sweep, interrupt: &Interrupt) -> Result<Vec<SimReport>, Failure> {
    let runs: Vec<Run<'_>> = sweep
        .targets
        .iter()
        .enumerate()
        .flat_map(|(target, t)| t.models.iter().map(move |model| (target, model)))
        .flat_map(|(target, model)| {
            sweep.policies.iter().map(move |policy| Run { target, model, policy })
        })
        .collect();
    let done = in_parallel_until(interrupt, sweep.jobs, runs.len(), |index| {
        let Run { target, model, policy } = runs[index];
        once(&sweep.targets[target], model, policy, sweep.seed, sweep.record)
    });
    let mut reports: Vec<SimReport> = sweep
        .targets
        .iter()
        .map(|t| SimReport::new(&t.scenario.name, &t.scenario.about, sweep.seed, Vec::new()))
        .collect();
    let mut finished = 0;
    for (index, (run, result)) in runs.iter().zip(done).enumerate() {
        let Some(result) = result else { continue };
        let name = &sweep.targets[run.target].scenario.name;
        let result = result.map_err(|error| cannot_simulate(name, run.policy, &error))?;
        finished += 1;
        // Each is compared with the first of its machine: without that one it has no place.
        let is_base = index % sweep.policies.len() == 0;
        let of_base = |base: &SimRun| base.machine.id == result.machine.id;
        if is_base || reports[run.target].runs.iter().any(of_base) {
            reports[run.target].runs.push(result);
        }
    }
    if finished < runs.len() {
        label(&mut reports, finished, runs.len())?;
    }
    Ok(reports)
}

/// Says in each report that not all runs are there, and leaves out those that have none.
fn label(reports: &mut Vec<SimReport>, finished: usize, all: usize) -> Result<(), Failure> {
    reports.retain(|report| !report.runs.is_empty());
    let why = format!("interrupted after {finished} of {all} runs");
    if reports.is_empty() {
        let why = format!("{why}; none of the policies that others are compared with was finished");
        let next = "let it run for longer, or simulate fewer policies";
        return Err(Failure::failed(Problem::new("there is no result", why, next)));
    }
    reports.iter_mut().for_each(|report| report.partial = Some(why.clone()));
    Ok(())
}

pub(crate) fn cannot_simulate(name: &str, policy: &PolicySpec, error: &RunError) -> Failure {
    let what = format!("cannot simulate {name} under {policy}");
    Failure::failed(Problem::new(what, error.to_string(), "change the scenario"))
}

/// The results of so many runs in their order, whoever finishes first.
pub(crate) fn in_parallel<T: Send>(
    jobs: usize,
    nr_runs: usize,
    one: impl Fn(usize) -> T + Sync,
) -> Vec<T> {
    let results = in_parallel_until(&Interrupt::default(), jobs, nr_runs, one);
    results.into_iter().map(|result| result.expect("nothing interrupts it")).collect()
}

/// The same; `None` for runs that had not begun when the interrupt came.
pub(crate) fn in_parallel_until<T: Send>(
    interrupt: &Interrupt,
    jobs: usize,
    nr_runs: usize,
    one: impl Fn(usize) -> T + Sync,
) -> Vec<Option<T>> {
    let progress = Mutex::new((0, Progress::new()));
    let counted = |index| {
        let result = (!interrupt.is_seen()).then(|| one(index))?;
        // where another run has panicked, this one is not shown
        if let Ok(mut progress) = progress.lock() {
            progress.0 += 1;
            let done = progress.0;
            progress.1.part(done, nr_runs, "runs");
        }
        Some(result)
    };
    match ThreadPoolBuilder::new().num_threads(jobs).build() {
        Ok(pool) => pool.install(|| (0..nr_runs).into_par_iter().map(counted).collect()),
        // the system has no threads to give: one after the other
        Err(_) => (0..nr_runs).map(counted).collect(),
    }
}

/// One run, recorded for charts or not.
pub(crate) fn once(
    target: &Target,
    model: &CpuModel,
    policy: &PolicySpec,
    seed: u64,
    record: bool,
) -> Result<SimRun, RunError> {
    let scenario = &target.scenario;
    let platform = Platform::new(model);
    let options = Options {
        seed,
        duration_ns: scenario.duration_ns,
        warmup_ns: scenario.warmup_ns,
        ..Default::default()
    };
    let from_ns = scenario.warmup_ns;
    let window =
        record.then_some((from_ns, (from_ns + WINDOW_NS).min(scenario.duration_ns), POINTS_MAX));
    let workload = target.workload.clone();
    let finished = simulate(&platform, target.packages, workload, policy, options, window)?;
    Ok(convert::sim_run(target, model, &platform, policy, &finished))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What had not begun when the interrupt came is left out; what had begun is finished.
    #[test]
    fn an_interrupt_leaves_the_rest_out() {
        let interrupt = Interrupt::default();
        let results = in_parallel_until(&interrupt, 1, 4, |index| {
            if index == 1 {
                interrupt.raise();
            }
            index
        });
        assert_eq!(results, [Some(0), Some(1), None, None]);
    }

    /// A sweep that is interrupted before its first run has no result.
    #[test]
    fn an_interrupt_before_the_first_run_fails() {
        let mut reports = vec![SimReport::new("a", "", 1, Vec::new())];
        assert!(label(&mut reports, 0, 2).is_err());
    }
}
