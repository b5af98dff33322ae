// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is to be simulated: names and files become scenarios, machines and policies.

use std::fs;
use std::path::Path;

use cpumodel::{CpuModel, DataError, Platform, Sourced, Sureness, built_in_cpus};
use dvfs::{MODEL_FILES, Model};
use report::problem::Problem;
use report::sim::{BuiltIn, BuiltInMachine, Named};
use sched::parse::ParseError;
use sim::policy_spec::PolicySpec;
use sim::program::Workload;
use sim::scenario::{Misfit, SCENARIO_FILES, Scenario};

use super::SimArgs;
use super::sweep::Sweep;
use super::target::Target;
use crate::failure::Failure;

/// Where the names of scenarios and machines are.
const LISTED: &str = "turbolane sim lists those that are built in";

/// What is there.
pub(super) fn list() -> BuiltIn {
    let named = |name: &str, about: &str, variants: Vec<&str>| Named {
        name: name.to_owned(),
        about: about.to_owned(),
        variants: variants.into_iter().map(str::to_owned).collect(),
    };
    let scenarios = SCENARIO_FILES.iter().filter_map(|(name, _)| {
        let scenario = Scenario::built_in(name)?.ok()?;
        Some(named(name, &scenario.about, scenario.variants().collect()))
    });
    let timelines = MODEL_FILES.iter().filter_map(|(name, _)| {
        let model = Model::built_in(name)?.ok()?;
        Some(named(name, &model.about, model.variants().collect()))
    });
    let machines = built_in_cpus().filter_map(|(id, _)| {
        let model = CpuModel::built_in(id)?.ok()?;
        Some(BuiltInMachine { id: id.to_owned(), name: model.name })
    });
    BuiltIn::new(scenarios.collect(), timelines.collect(), machines.collect())
}

/// The list is printed if nothing else was asked for. Machines are looked up first: an unknown one
/// is the more useful answer.
pub(super) fn check_nothing_is_asked(args: &SimArgs) -> Result<(), Failure> {
    args.machines.iter().try_for_each(|id| model(id).map(drop))?;
    let given = [
        ("--machine", !args.machines.is_empty()),
        ("--policy", !args.policies.is_empty()),
        ("--variant", args.variant.is_some()),
        ("--packages", args.packages.is_some()),
        ("--power-limit", args.power_limit.is_some()),
        ("--seed", args.seed.is_some()),
        ("--jobs", args.jobs.is_some()),
        ("--format", args.format.is_some()),
        ("--html", args.html.is_some()),
        ("--perfetto", args.perfetto.is_some()),
    ];
    let Some((flag, _)) = given.iter().find(|(_, is_given)| *is_given) else { return Ok(()) };
    Err(Failure::failed(Problem::new(
        "there is nothing to simulate",
        format!("{flag} is about a simulation, but no scenario is named"),
        "name a scenario; turbolane sim without arguments lists them",
    )))
}

/// What the arguments ask for.
pub(super) fn sweep(args: &SimArgs) -> Result<Sweep, Failure> {
    if args.scenarios.len() > 1 && (args.html.is_some() || args.perfetto.is_some()) {
        return Err(Failure::failed(Problem::new(
            "--html and --perfetto take one scenario",
            format!("{} were given", args.scenarios.len()),
            "run turbolane sim once for each",
        )));
    }
    let default = || ["fair", "lane"].map(|text| text.parse().expect("they are policies")).into();
    let policies: Vec<PolicySpec> =
        if args.policies.is_empty() { default() } else { args.policies.clone() };
    let mut targets = Vec::new();
    for name in &args.scenarios {
        let mut target = target(name, args.variant.as_deref(), &args.machines, args.packages)?;
        if let Some(watts) = args.power_limit {
            target.models.iter_mut().for_each(|model| limit_power(model, watts));
        }
        targets.push(target);
    }
    let record = args.html.is_some() || args.perfetto.is_some();
    let jobs = args.jobs.map_or_else(jobs, usize::from);
    Ok(Sweep { targets, policies, seed: args.seed(), record, jobs })
}

fn limit_power(model: &mut CpuModel, watts: f64) {
    let (source, sureness) = ("--power-limit".into(), Sureness::Assumed);
    model.power.limit_w = Some(Sourced { value: watts, source, sureness });
}

/// A power limit as it is written on the command line.
pub(super) fn watts(text: &str) -> Result<f64, ParseError> {
    let watts = text.parse().ok().filter(|watts| (1.0..=2000.0).contains(watts));
    watts.ok_or_else(|| ParseError {
        why: format!("\"{text}\" is not the power of a package"),
        next: "write watts, from 1 to 2000, e.g. 165".into(),
    })
}

/// As many runs at a time as there are CPUs.
pub(crate) fn jobs() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// A scenario by name or file, in a variant, on these machines or its own.
pub(crate) fn target(
    name: &str,
    variant: Option<&str>,
    machines: &[String],
    packages: Option<u16>,
) -> Result<Target, Failure> {
    let scenario = scenario(name)?;
    let workload = workload(&scenario, variant)?;
    let own = std::slice::from_ref(&scenario.machine);
    let ids = if machines.is_empty() { own } else { machines };
    let models = ids.iter().map(|id| model(id)).collect::<Result<Vec<_>, _>>()?;
    let packages = packages.map_or(scenario.packages, usize::from);
    for model in &models {
        check_size(&scenario, model, packages)?;
    }
    Ok(Target { scenario, workload, models, packages })
}

/// The scenario's load, in a variant or as in its file.
pub(crate) fn workload(scenario: &Scenario, variant: Option<&str>) -> Result<Workload, Failure> {
    scenario.workload(variant).cloned().ok_or_else(|| {
        let known: Vec<&str> = scenario.variants().collect();
        Failure::failed(Problem::new(
            format!(
                "scenario {} has no variant \"{}\"",
                scenario.name,
                variant.unwrap_or_default()
            ),
            format!("it has {}", known.join(", ")),
            "choose one of them, or leave --variant out",
        ))
    })
}

/// The machine must hold every CPU that the scenario binds tasks to, and fit the policy's tables.
pub(crate) fn check_size(
    scenario: &Scenario,
    model: &CpuModel,
    packages: usize,
) -> Result<(), Failure> {
    let Err(misfit) = scenario.check_fits(&Platform::new(model), packages) else { return Ok(()) };
    Err(Failure::failed(match misfit {
        Misfit::CpuMissing { .. } => Problem::new(
            format!("scenario {} does not fit on {}", scenario.name, model.id),
            misfit.to_string(),
            "choose a larger machine or --packages, or change cpus in a copy of the scenario",
        ),
        Misfit::TooLarge { .. } => Problem::new(
            format!("{packages} packages of {} are too large", model.id),
            misfit.to_string(),
            "choose fewer packages",
        ),
    }))
}

pub(crate) fn scenario(name: &str) -> Result<Scenario, Failure> {
    if let Some(built_in) = Scenario::built_in(name) {
        return built_in.map_err(|error| bad_file(name, &error));
    }
    let built_in = SCENARIO_FILES.iter().map(|(name, _)| *name);
    let text = read(name, "scenario", built_in, LISTED)?;
    Scenario::from_toml(&text).map_err(|error| bad_file(name, &error))
}

pub(crate) fn model(id: &str) -> Result<CpuModel, Failure> {
    if let Some(built_in) = CpuModel::built_in(id) {
        return built_in.map_err(|error| bad_file(id, &error));
    }
    let text = read(id, "machine", built_in_cpus().map(|(id, _)| id), LISTED)?;
    CpuModel::from_toml(&text).map_err(|error| bad_file(id, &error))
}

pub(super) fn read<'a>(
    name: &str,
    kind: &str,
    built_in: impl Iterator<Item = &'a str>,
    next: &str,
) -> Result<String, Failure> {
    fs::read_to_string(Path::new(name))
        .map_err(|error| Failure::failed(Problem::not_there(kind, name, built_in, &error, next)))
}

pub(super) fn bad_file(name: &str, error: &DataError) -> Failure {
    Failure::failed(Problem::bad_data(name, error))
}
