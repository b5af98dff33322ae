// SPDX-License-Identifier: MIT OR Apache-2.0
//! Simulations: a scenario on a machine under a policy.

use pyo3::prelude::*;
use report::problem::Problem;
use sim::engine::{GroupOutcome, Options, Outcome};
use sim::histogram::Histogram;
use sim::policy_spec::{Finished, PolicySpec, Window, simulate as run};
use sim::record::RunRecord;

use crate::machine::Machine;
use crate::problem::refused;
use crate::scenario::Scenario;
use crate::table::Columns;

/// Most points of a recorded timeline.
const POINTS_MAX: usize = 400_000;

/// What one group of tasks achieved.
#[pyclass(frozen, get_all, module = "turbolane._native")]
pub(crate) struct Load {
    /// Its name.
    name: String,
    /// Whether it executes what raises the licence level.
    wide: bool,
    /// What a unit of work is, e.g. `request`.
    work: String,
    /// Units of work per second; `None` for a load that has none.
    work_per_s: Option<f64>,
    /// CPU time of a unit of work.
    cpu_per_work_ns: Option<f64>,
    /// Mean clock of the CPUs that it ran on, while it did; `None` if it never ran.
    mean_khz: Option<f64>,
    /// CPU time on cores at a licence level above 0, whoever asked for it, over its CPU time.
    reduced_frac: f64,
    /// How often one of its tasks was put onto a CPU.
    starts_per_s: f64,
    /// Response times: mean, median, percentiles; `None` for a load that answers no one.
    latency_mean_ns: Option<u64>,
    latency_p50_ns: Option<u64>,
    latency_p99_ns: Option<u64>,
    latency_p999_ns: Option<u64>,
}

/// What a simulation found.
#[pyclass(frozen, get_all, module = "turbolane._native")]
pub(crate) struct Run {
    /// Name of the scenario.
    scenario: String,
    /// Id of the machine.
    machine: String,
    /// The policy, as it was asked for.
    policy: String,
    /// Variant of the scenario's code; `None`: as in its file.
    variant: Option<String>,
    /// Packages of the machine.
    packages: usize,
    /// Random seed.
    seed: u64,
    /// Simulated time that the figures are of.
    simulated_ns: u64,
    /// What each group of tasks achieved.
    loads: Vec<Py<Load>>,
    /// Busy CPU time over that of all CPUs.
    busy_frac: f64,
    /// Mean clock of busy CPUs; `None` if none was ever busy.
    mean_khz: Option<f64>,
    /// Busy time by licence level, over all busy time.
    residency_frac: Vec<f64>,
    /// Tasks that went on running on another CPU than before.
    migrations_per_s: f64,
    /// Energy of all packages, an estimate.
    energy_j: f64,
    /// Who ran where, if it was recorded: columns `cpu`, `core`, `start_ns`, `end_ns`, `load`,
    /// `asks` (the level that its code asked for).
    runs: Option<Py<PyAny>>,
    /// Levels over time, if they were recorded: columns `core`, `start_ns`, `end_ns`, `level`,
    /// `clock_khz` (0 while the core is halted), `throttled`.
    levels: Option<Py<PyAny>>,
    /// Changes that exceeded the recorder's limit and are missing; 0: the record is complete.
    dropped: Option<u64>,
}

#[pymethods]
impl Load {
    fn __repr__(&self) -> String {
        let speed = self.work_per_s.map_or("no work".into(), |speed| format!("{speed:.1}"));
        format!("<turbolane.Load {}: {speed} {}/s>", self.name, self.work)
    }
}

#[pymethods]
impl Run {
    fn __repr__(&self) -> String {
        format!("<turbolane.Run {} on {} under {}>", self.scenario, self.machine, self.policy)
    }
}

/// Refuses a policy that `simulate` would refuse.
#[pyfunction]
pub(crate) fn check_policy(py: Python<'_>, policy: &str) -> PyResult<()> {
    parsed(py, policy).map(|_| ())
}

fn parsed(py: Python<'_>, policy: &str) -> PyResult<PolicySpec> {
    policy.parse().map_err(|error: sim::policy_spec::PolicyError| {
        let what = format!("there is no policy \"{}\"", error.text);
        refused(py, Problem::new(what, error.why, "turbolane sim --help lists all"))
    })
}

/// Simulates a scenario on a machine under a policy (`turbolane sim --help` lists them).
///
/// Without `variant` the code is as in the scenario's file; `packages` and `duration_ns` are the
/// scenario's if not given. With `record_ns`, that much time after the warm-up is recorded (`runs`,
/// `levels`). The same arguments give the same result.
#[pyfunction]
#[pyo3(signature = (
    scenario, machine, policy="lane", *,
    variant=None, packages=None, seed=1, duration_ns=None, record_ns=None,
))]
#[expect(clippy::too_many_arguments, reason = "they are keywords in Python")]
pub(crate) fn simulate(
    py: Python<'_>,
    scenario: &Scenario,
    machine: &Machine,
    policy: &str,
    variant: Option<String>,
    packages: Option<usize>,
    seed: u64,
    duration_ns: Option<u64>,
    record_ns: Option<u64>,
) -> PyResult<Run> {
    let (loaded, platform) = (&scenario.scenario, &machine.platform);
    let spec = parsed(py, policy)?;
    let packages = packages.unwrap_or(loaded.packages);
    let Some(workload) = loaded.workload(variant.as_deref()).cloned() else {
        let what =
            format!("scenario {} has no variant \"{}\"", loaded.name, variant.unwrap_or_default());
        let known: Vec<&str> = loaded.variants().collect();
        return Err(refused(
            py,
            Problem::new(what, format!("it has {}", known.join(", ")), "choose one of them"),
        ));
    };
    check_fits(py, scenario, machine, packages)?;
    let duration_ns = duration_ns.unwrap_or(loaded.duration_ns);
    if duration_ns <= loaded.warmup_ns {
        let what = format!("{duration_ns} ns of {} cannot be simulated", loaded.name);
        let why = format!("its first {} ns do not count", loaded.warmup_ns);
        return Err(refused(py, Problem::new(what, why, "simulate longer")));
    }
    let options = Options { seed, duration_ns, warmup_ns: loaded.warmup_ns, ..Default::default() };
    let window: Option<Window> = record_ns.map(|ns| {
        let from_ns = loaded.warmup_ns;
        (from_ns, from_ns.saturating_add(ns).min(duration_ns), POINTS_MAX)
    });
    let finished = py.detach(|| run(platform, packages, workload, &spec, options, window));
    let finished = finished.map_err(|error| {
        let what = format!("cannot simulate {} under {policy}", loaded.name);
        refused(py, Problem::new(what, error.to_string(), "change the scenario"))
    })?;
    let Finished { outcome, record, .. } = finished;
    let loads = loads(scenario, &outcome).into_iter().map(|load| Py::new(py, load));
    Ok(Run {
        scenario: loaded.name.clone(),
        machine: machine.model.id.clone(),
        policy: spec.name,
        variant,
        packages,
        seed,
        simulated_ns: outcome.measured_ns,
        loads: loads.collect::<PyResult<_>>()?,
        busy_frac: outcome.busy_frac(),
        mean_khz: outcome.mean_khz,
        residency_frac: outcome.residency_frac(),
        migrations_per_s: outcome.per_second(outcome.migrations),
        energy_j: outcome.energy_j,
        runs: record.as_ref().map(|record| runs(py, record)).transpose()?,
        levels: record.as_ref().map(|record| levels(py, record)).transpose()?,
        dropped: record.as_ref().map(|record| record.nr_dropped),
    })
}

fn check_fits(
    py: Python<'_>,
    scenario: &Scenario,
    machine: &Machine,
    packages: usize,
) -> PyResult<()> {
    let Some(misfit) = scenario.misfit(machine, Some(packages)) else { return Ok(()) };
    let what = format!(
        "scenario {} does not fit on {packages} packages of {}",
        scenario.scenario.name, machine.model.id
    );
    Err(refused(py, Problem::new(what, misfit, "choose another machine or number of packages")))
}

fn loads(scenario: &Scenario, out: &Outcome) -> Vec<Load> {
    let load = |(group, done): (usize, &GroupOutcome)| {
        let latency = out.latency(group);
        let percentile = |percent| latency.and_then(|times| times.percentile_ns(percent));
        Load {
            name: done.name.clone(),
            wide: scenario.scenario.wide[group],
            work: scenario.scenario.work[group].clone(),
            work_per_s: out.work_per_s(done),
            cpu_per_work_ns: done.cpu_per_work_ns(),
            mean_khz: done.mean_khz,
            reduced_frac: done.reduced_frac(),
            starts_per_s: out.per_second(done.starts),
            latency_mean_ns: latency.and_then(Histogram::mean_ns),
            latency_p50_ns: percentile(50.0),
            latency_p99_ns: percentile(99.0),
            latency_p999_ns: percentile(99.9),
        }
    };
    out.groups.iter().enumerate().map(load).collect()
}

fn runs(py: Python<'_>, record: &RunRecord) -> PyResult<Py<PyAny>> {
    let mut rows = Vec::new();
    for cpu in 0..record.runs.len() {
        for (start_ns, end_ns, point) in record.run_spans(cpu) {
            let Some(task) = point.task else { continue };
            let group = record.group_of[task as usize];
            rows.push((cpu, start_ns, end_ns, group, point.asks));
        }
    }
    let columns = Columns::new(py)
        .with("cpu", rows.iter().map(|row| row.0))?
        .with("core", rows.iter().map(|row| record.core_of[row.0]))?
        .with("start_ns", rows.iter().map(|row| row.1))?
        .with("end_ns", rows.iter().map(|row| row.2))?
        .with("load", rows.iter().map(|row| record.groups[row.3 as usize].as_str()))?
        .with("asks", rows.iter().map(|row| u16::from(row.4)))?;
    Ok(columns.table()?.unbind())
}

fn levels(py: Python<'_>, record: &RunRecord) -> PyResult<Py<PyAny>> {
    let mut rows = Vec::new();
    for core in 0..record.licenses.len() {
        let spans = record.license_spans(core);
        rows.extend(spans.map(|(start_ns, end_ns, point)| (core, start_ns, end_ns, point)));
    }
    let columns = Columns::new(py)
        .with("core", rows.iter().map(|row| row.0))?
        .with("start_ns", rows.iter().map(|row| row.1))?
        .with("end_ns", rows.iter().map(|row| row.2))?
        .with("level", rows.iter().map(|row| u16::from(row.3.level)))?
        .with("clock_khz", rows.iter().map(|row| row.3.khz))?
        .with("throttled", rows.iter().map(|row| row.3.throttled))?;
    Ok(columns.table()?.unbind())
}
