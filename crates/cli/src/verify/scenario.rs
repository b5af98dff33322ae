// SPDX-License-Identifier: MIT OR Apache-2.0
//! `turbolane verify --scenario`: two policies on a load of the simulator.
//!
//! A simulation is repeated by its seed, which draws amounts of work and arrivals. Each run has a
//! seed of its own, A's and B's too: pairs of runs with one seed would not be independent, which
//! the test asks for. What comes out is how far the chance of the load reaches, not how far the
//! model is off.

use clap::{Args, ValueEnum};
use report::problem::Problem;
use report::sim::{Load, SimRun};
use report::verify::{Figure, Sample, Side, Simulated};
use sim::policy_spec::PolicySpec;
use sim::program::Arrivals;

use super::VerifyArgs;
use super::judge::Question;
use crate::failure::Failure;
use crate::interrupt::Interrupt;
use crate::sim::{Target, cannot_simulate, in_parallel_until, input, once};

/// What is for commands. A conflict of `--scenario` with them would excuse options that require it.
const COMMANDS: [&str; 3] = ["command", "a", "b"];

/// A load of the simulator instead of a command.
#[derive(Args)]
#[command(next_help_heading = "Simulated runs")]
pub(super) struct ScenarioArgs {
    /// Compare two policies on this scenario of the simulator; `turbolane sim` lists them
    #[arg(long, value_name = "NAME|FILE")]
    #[arg(conflicts_with_all = ["command", "a", "b", "metric", "less", "run_options", "warmup"])]
    pub(super) scenario: Option<String>,
    /// Policy of A, as turbolane sim takes it [default: fair]
    #[arg(long, value_name = "POLICY", requires = "scenario", conflicts_with_all = COMMANDS)]
    against: Option<PolicySpec>,
    /// Policy of B [default: lane]
    #[arg(short, long, value_name = "POLICY", requires = "scenario", conflicts_with_all = COMMANDS)]
    policy: Option<PolicySpec>,
    /// CPU model: a built-in id or a CPU file [default: the scenario's own]
    #[arg(short, long, value_name = "ID|FILE")]
    #[arg(requires = "scenario", conflicts_with_all = COMMANDS)]
    machine: Option<String>,
    /// Variant of the scenario's code [default: the code in the file]
    #[arg(long, value_name = "NAME", requires = "scenario", conflicts_with_all = COMMANDS)]
    variant: Option<String>,
    /// Load to compare [default: the first one that turbolane sim shows]
    #[arg(long, value_name = "NAME", requires = "scenario", conflicts_with_all = COMMANDS)]
    load: Option<String>,
    /// Figure to compare [default: p99 if requests arrive at a fixed rate, otherwise throughput]
    #[arg(long, value_name = "FIGURE", requires = "scenario", conflicts_with_all = COMMANDS)]
    figure: Option<FigureArg>,
}

/// What of a load is compared.
#[derive(Clone, Copy, ValueEnum)]
enum FigureArg {
    /// Work per second
    Throughput,
    /// CPU time of a unit of work
    CpuTime,
    /// Median response time
    P50,
    /// 99th percentile of the response times
    P99,
}

/// Simulates all runs of both policies.
pub(super) fn run(
    args: &VerifyArgs,
    name: &str,
    interrupt: &Interrupt,
) -> Result<(Question, [Side; 2]), Failure> {
    let of = &args.scenario;
    let machines = of.machine.as_slice();
    let target = input::target(name, of.variant.as_deref(), machines, None)?;
    check_load(of, &target)?;
    let default = |text: &str| text.parse().expect("it is a policy");
    let policies = [
        of.against.clone().unwrap_or_else(|| default("fair")),
        of.policy.clone().unwrap_or_else(|| default("lane")),
    ];
    let mut random = fastrand::Rng::with_seed(args.seed);
    let seeds: Vec<u64> = (0..2 * args.runs).map(|_| u64::from(random.u32(..))).collect();
    let model = &target.models[0];
    let runs = in_parallel_until(interrupt, input::jobs(), seeds.len(), |order| {
        once(&target, model, &policies[order % 2], seeds[order], false)
    });
    let mut sides = [0, 1].map(|kind: usize| Side::of(format!("policy {}", policies[kind])));
    let mut picked: Option<(String, Figure)> = None;
    for (order, run) in runs.into_iter().enumerate() {
        let Some(run) = run else { continue };
        let run = run.map_err(|error| cannot_simulate(name, &policies[order % 2], &error))?;
        let asked = |load: &&Load| of.load.as_ref().is_none_or(|name| *name == load.name);
        let load = run.loads.iter().find(asked).expect("each of the scenario's loads is there");
        let (_, figure) =
            picked.get_or_insert_with(|| (load.name.clone(), figure(of, &target, &load.name)));
        let sample = sample(order, seeds[order], &run, load, *figure)?;
        sides[order % 2].samples.push(sample);
    }
    let Some((load, figure)) = picked else {
        let why = "interrupted before the first run ended";
        let next = "let it run for longer";
        return Err(Failure::unsupported(Problem::new("there is no result", why, next)));
    };
    let simulated = Simulated {
        scenario: target.scenario.name.clone(),
        variant: of.variant.clone(),
        machine: model.id.clone(),
        load,
        figure,
    };
    let question = Question {
        metric: figure.name().into(),
        smaller_is_better: figure.smaller_is_better(),
        simulated: Some(simulated),
        no_clock: None,
    };
    Ok((question, sides))
}

/// A load that is asked for must be there.
fn check_load(of: &ScenarioArgs, target: &Target) -> Result<(), Failure> {
    let Some(name) = &of.load else { return Ok(()) };
    let known: Vec<&str> = target.workload.groups.iter().map(|group| group.name.as_str()).collect();
    if known.contains(&name.as_str()) {
        return Ok(());
    }
    Err(Failure::failed(Problem::new(
        format!("scenario {} has no load \"{name}\"", target.scenario.name),
        format!("it has {}", known.join(", ")),
        "choose one of them, or leave --load out",
    )))
}

/// What is compared if nothing was said: no policy can change how many requests arrive at a fixed
/// rate.
fn figure(of: &ScenarioArgs, target: &Target, load: &str) -> Figure {
    let is_open = |source: &sim::program::Source| {
        target.workload.groups[source.to_group as usize].name == load
            && matches!(source.arrivals, Arrivals::Open { .. })
    };
    match of.figure {
        Some(FigureArg::Throughput) => Figure::Throughput,
        Some(FigureArg::CpuTime) => Figure::CpuTime,
        Some(FigureArg::P50) => Figure::P50,
        Some(FigureArg::P99) => Figure::P99,
        None if target.workload.sources.iter().any(is_open) => Figure::P99,
        None => Figure::Throughput,
    }
}

fn sample(
    order: usize,
    seed: u64,
    run: &SimRun,
    load: &Load,
    figure: Figure,
) -> Result<Sample, Failure> {
    let none = |why: &str, next: &str| {
        let what = format!("load {} has no {} under {}", load.name, figure.name(), run.policy);
        Failure::failed(Problem::new(what, why, next))
    };
    let why = format!("with seed {seed}, none of its work was finished in the simulated time");
    let idle = || none(&why, "choose another --load, or a longer scenario");
    let work_per_s = load.work_per_s.ok_or_else(idle)?;
    let cpu_ns = load.cpu_per_work_ns.ok_or_else(idle)?;
    let latency = || {
        let next = "choose --figure throughput or cpu-time, or another --load";
        load.latency.ok_or_else(|| none("it answers no requests", next))
    };
    let metric = match figure {
        Figure::Throughput => work_per_s,
        Figure::CpuTime => cpu_ns,
        Figure::P50 => latency()?.p50_ns as f64,
        Figure::P99 => latency()?.p99_ns as f64,
    };
    Ok(Sample {
        order,
        time_ns: run.simulated_ns,
        cpu_time_ns: cpu_ns.round() as u64,
        clock_khz: None,
        metric: Some(metric),
        seed: Some(seed),
    })
}
