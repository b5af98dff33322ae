// SPDX-License-Identifier: MIT OR Apache-2.0
//! `turbolane sim --replay TIMELINE`: one core's periods under DVFS policies, side by side (DIM
//! 6.2).

mod input;
mod spec;

use cpumodel::{CpuModel, Platform};
use dvfs::{Core, Moment, Outcome, Timeline};
use report::SCHEMA;
use report::dvfs::{Replay, ReplayRun};
use report::problem::Problem;
use report::timeline;
use trace::replayable::periods_of;

use super::break_even::used;
use super::input::model;
use super::{ReplayArgs, SimArgs};
use crate::failure::Failure;
use crate::output_file;
use input::Input;
pub(crate) use spec::DvfsPolicy;

/// Without `--dvfs`: what needs no hints, and what heeds those that there are ([`heeding`]). The
/// oracle only where it can look ahead.
const DEFAULT: [&str; 7] =
    ["hardware", "fixed:2ms", "break-even", "random", "average", "share", "oracle"];

/// What one core's replay depends on, in the words of a platform's list.
const USED: [&str; 8] =
    ["throttle", "halt", "relax", "level", "dense", "class", "TDP", "idle power"];
/// And two siblings besides.
const USED_BY_TWO: [&str; 1] = ["SMT"];

pub(super) fn report(args: &SimArgs, name: &str) -> Result<Replay, Failure> {
    let replay = &args.replay;
    let names: Vec<&str> = std::iter::once(name).chain(replay.sibling.as_deref()).collect();
    let inputs = names.iter().map(|name| Input::open(name)).collect::<Result<Vec<_>, _>>()?;
    let header = inputs[0].header();
    if args.machines.len() > 1 {
        let why = format!("{} machines were given", args.machines.len());
        return Err(failed("--replay takes one machine", why, "run turbolane sim once for each"));
    }
    let model = model(args.machines.first().unwrap_or(&header.machine))?;
    let platform = Platform::new(&model);
    let active = active_cores(replay, header.active_cores, &platform)?;
    let core = core(replay, &model, &platform, active)?;
    if inputs.len() > 1 && platform.threads_per_core < 2 {
        let why = format!("{} has one CPU per core", model.id);
        return Err(failed("cannot use --sibling", why, "choose another --machine"));
    }
    let timelines = inputs.iter().zip(0..).map(|(input, number)| {
        // siblings of the same model are not to march in step
        input.timeline(&platform, args.variant.as_deref(), args.seed().wrapping_add(number))
    });
    let timelines = timelines.collect::<Result<Vec<_>, _>>()?;
    if let Some(path) = &replay.write_timeline {
        let text = timeline::write(&header, periods_of(&timelines[0]));
        output_file::write(path, text)?;
    }
    let mut assumed = used(&platform.assumed, &USED);
    if timelines.len() > 1 {
        assumed.extend(used(&platform.assumed, &USED_BY_TWO));
    }
    Ok(Replay {
        schema: SCHEMA,
        timelines: inputs.iter().map(|input| input.header().timeline).collect(),
        about: header.about,
        recorded: inputs.iter().all(|input| input.header().recorded),
        work: header.work,
        demand: inputs.iter().map(|input| input.header().demand).collect(),
        machine: model.id.clone(),
        machine_name: model.name.clone(),
        active_cores: active,
        clock_khz: core.clock_khz.clone(),
        seed: args.seed(),
        runs: runs(replay, &core, &timelines.iter().collect::<Vec<_>>(), args.seed())?,
        assumed,
    })
}

/// As asked for, as the timeline says, or all.
fn active_cores(
    args: &ReplayArgs,
    recorded: Option<usize>,
    platform: &Platform,
) -> Result<usize, Failure> {
    let active = args.active_cores.map(usize::from).or(recorded).unwrap_or(platform.nr_cores);
    if (1..=platform.nr_cores).contains(&active) {
        return Ok(active);
    }
    let why = format!("{} has {} cores", platform.name, platform.nr_cores);
    Err(failed(format!("cannot have {active} active cores"), why, "choose fewer by --active-cores"))
}

fn core(
    args: &ReplayArgs,
    model: &CpuModel,
    platform: &Platform,
    active: usize,
) -> Result<Core, Failure> {
    if !args.no_turbo {
        return Ok(Core::new(platform, active));
    }
    Core::at_base(platform, model).ok_or_else(|| {
        let why = format!("the base clocks of {} are not known for every level", model.id);
        failed("cannot use --no-turbo", why, "write them into a copy of its CPU file")
    })
}

fn runs(
    args: &ReplayArgs,
    core: &Core,
    timelines: &[&Timeline],
    seed: u64,
) -> Result<Vec<ReplayRun>, Failure> {
    let default = || {
        let names = DEFAULT.iter().filter(|name| timelines.len() == 1 || **name != "oracle");
        names
            .copied()
            .chain(heeding(timelines))
            .map(|name| name.parse().expect("they are policies"))
            .collect()
    };
    let policies: Vec<DvfsPolicy> =
        if args.dvfs.is_empty() { default() } else { args.dvfs.clone() };
    let mut runs: Vec<ReplayRun> = Vec::new();
    for policy in &policies {
        let spec = policy.spec(core.times.relax_ns);
        let out = spec.run(core, timelines, seed).map_err(|error| {
            let what = format!("cannot replay under {}", policy.name);
            failed(what, error.to_string(), "leave it or --sibling out")
        })?;
        let base_ns = runs.first().map_or(out.time_ns, |base| base.time_ns);
        runs.push(run(policy, spec.about(), &out, base_ns));
    }
    Ok(runs)
}

/// Policies that heed what timelines have: hints of the application, switches to tasks with a
/// score.
fn heeding<'a>(timelines: &[&Timeline]) -> impl Iterator<Item = &'a str> {
    let has = |heeded: fn(&Moment) -> bool| {
        let marks = timelines.iter().flat_map(|timeline| {
            timeline.periods().iter().flat_map(|period| timeline.moments(period))
        });
        marks.into_iter().any(heeded)
    };
    let hints = has(|moment| matches!(moment, Moment::Force | Moment::DelayNs(_)));
    let switches = has(|moment| matches!(moment, Moment::Switch(_)));
    [("hints", hints), ("switches", switches)]
        .into_iter()
        .filter(|named| named.1)
        .map(|named| named.0)
}

fn run(policy: &DvfsPolicy, about: &str, out: &Outcome, base_ns: u64) -> ReplayRun {
    let seconds = out.time_ns as f64 / 1e9;
    let busy_ns: u64 = out.cpus.iter().map(|cpu| cpu.busy_ns).sum();
    let ratio = |part: f64, whole: f64| if whole > 0.0 { part / whole } else { 0.0 };
    let has_work = out.requests() > 0 && out.time_ns > 0;
    ReplayRun {
        policy: policy.name.clone(),
        policy_about: about.into(),
        time_ns: out.time_ns,
        gain_pct: if out.time_ns == 0 {
            0.0
        } else {
            100.0 * (base_ns as f64 / out.time_ns as f64 - 1.0)
        },
        lost_pct: 100.0 * ratio(out.lost_ns(), busy_ns as f64),
        work_per_s: has_work.then(|| out.requests() as f64 / seconds),
        raises: out.raises,
        lowers: out.lowers,
        halted_ns: out.halted_ns,
        level_ns: out.level_ns.clone(),
        energy_j: out.energy_j,
    }
}

fn failed(what: impl Into<String>, why: impl Into<String>, next: &str) -> Failure {
    Failure::failed(Problem::new(what, why, next))
}
