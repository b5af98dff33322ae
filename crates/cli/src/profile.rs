// SPDX-License-Identifier: MIT OR Apache-2.0
//! `turbolane profile`: how much time at a reduced clock was needed, and how much avoidable.
//!
//! The profiler is crate `profile`; a scenario is paused in the simulator, a running process by
//! signals (`live.rs`). The latter needs the licence counters, which few CPUs have: what keeps it
//! from them is said.

mod live;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use cpumodel::{Platform, Times};
use profile::{Profile, Settings};
use report::json_line;
use report::problem::Problem;
use report::profile::{LevelProfile, ProfileReport, ProfileTruth};
use report::text::duration;
use sched::parse::{ParseError, duration_at_least};
use sim::overhead::Truth;
use sim::policy_spec::PolicySpec;

use crate::failure::{Failure, show};
use crate::output_file;
use crate::sim::{cannot_simulate, input};

/// Report how much time at a reduced clock was needed, and how much was avoidable
///
/// Wide code lowers a core's clock, and the clock stays low for a while afterwards. From time to
/// time the load is paused until the clock has recovered, and then resumed. If the clock falls
/// again at once, the code at that point needs the low clock; if not, a better policy or core
/// specialisation could have avoided it.
///
/// A running process is stopped and resumed by signals (SIGSTOP, SIGCONT), for about a millisecond
/// at each sample. It continues however the profiler ends, even by Ctrl-C or kill -9. After Ctrl-C,
/// or when the process ends, the report covers the samples taken so far.
#[derive(Args)]
#[command(after_long_help = "\
Examples:
  turbolane profile --scenario thesis-nginx
  turbolane profile --scenario thesis-nginx --policy lane --html profile.html
  turbolane profile --scenario parsec-x265 --machine xeon-silver-4116 --samples 4000 --json
  sudo turbolane profile --pid $(pidof -s nginx) --machine probed.toml
      a running process, on a machine whose times turbolane probe has measured")]
pub(crate) struct ProfileArgs {
    #[command(flatten)]
    load: LoadArgs,
    /// CPU model: a built-in id or a CPU file [default: the scenario's own]
    ///
    /// For a running process, only two times of the model are used: how long a grant takes, and how
    /// long a level is held. The default is the Xeon Gold 6130 (Skylake-SP).
    #[arg(short, long, value_name = "ID|FILE")]
    machine: Option<String>,
    /// Scheduler, as turbolane sim takes it [default: fair]
    #[arg(short, long, value_name = "POLICY", conflicts_with = "pid")]
    policy: Option<PolicySpec>,
    /// Variant of the scenario's code [default: the code in the file]
    #[arg(long, value_name = "NAME", conflicts_with = "pid")]
    variant: Option<String>,
    /// Number of samples; each sample covers all cores
    #[arg(long, value_name = "N", default_value_t = 1_000,
        value_parser = clap::value_parser!(u32).range(10..=1_000_000))]
    samples: u32,
    /// Mean time between two samples
    #[arg(long, value_name = "TIME", default_value = "2ms", value_parser = interval)]
    interval: Duration,
    /// Random seed
    #[arg(long, value_name = "N", default_value_t = 1, conflicts_with = "pid")]
    seed: u64,
    /// Also write a page with a bar for each level
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// What is profiled.
#[derive(Args)]
#[group(required = true, multiple = false)]
struct LoadArgs {
    /// A scenario of the simulator: a name or a file
    #[arg(long, value_name = "NAME|FILE")]
    scenario: Option<String>,
    /// A running process, on a CPU that counts its cycles at each licence level (Skylake-SP to Ice
    /// Lake)
    #[arg(long, value_name = "PID")]
    pid: Option<u32>,
}

/// Shortest mean interval: half of it lies between two samples at least, and a level that comes
/// back takes 20 us.
const MIN_INTERVAL: Duration = Duration::from_micros(100);

fn interval(text: &str) -> Result<Duration, ParseError> {
    duration_at_least(text, MIN_INTERVAL, "samples closer than 100us affect each other")
}

/// Profiles, and prints what was found.
pub(crate) fn main(args: &ProfileArgs) -> Result<ExitCode, Failure> {
    args.html.as_deref().map_or(Ok(()), output_file::check_before)?;
    let report = match (&args.load.scenario, args.load.pid) {
        (Some(name), _) => simulated(args, name)?,
        (None, Some(pid)) => live(args, pid)?,
        (None, None) => unreachable!("clap wants one of them"),
    };
    if let Some(path) = &args.html {
        output_file::write(path, report.html())?;
    }
    show(args.json, || json_line(&report), |width| report.text(width))?;
    Ok(ExitCode::SUCCESS)
}

fn simulated(args: &ProfileArgs, name: &str) -> Result<ProfileReport, Failure> {
    let scenario = input::scenario(name)?;
    let workload = input::workload(&scenario, args.variant.as_deref())?;
    let model = input::model(args.machine.as_deref().unwrap_or(&scenario.machine))?;
    input::check_size(&scenario, &model, scenario.packages)?;
    let platform = Platform::new(&model);
    let times = &platform.times;
    let settings = Settings {
        samples: args.samples,
        interval_ns: args.interval.as_nanos() as u64,
        ..Settings::new(times.throttle_ns, platform.longest_halt_ns(), times.relax_ns)
    };
    let fair = || "fair".parse().expect("it is a policy");
    let policy = args.policy.clone().unwrap_or_else(fair);
    let packages = scenario.packages;
    let run = sim::overhead::profile(&platform, packages, workload, &policy, args.seed, &settings);
    let profiled = run.map_err(|error| cannot_simulate(name, &policy, &error))?;
    Ok(ProfileReport {
        schema: ProfileReport::SCHEMA,
        load: scenario.name,
        variant: args.variant.clone(),
        machine: model.id,
        policy: policy.to_string(),
        seed: args.seed,
        truth: Some(truth(&profiled.truth)),
        ..report(&profiled.profile, &settings)
    })
}

/// The CPU whose times are used for all CPUs with licence counters.
const LIVE_MODEL: &str = "xeon-gold-6130";

fn live(args: &ProfileArgs, pid: u32) -> Result<ProfileReport, Failure> {
    let model = input::model(args.machine.as_deref().unwrap_or(LIVE_MODEL))?;
    let times = Platform::new(&model).times;
    check_interval(args.interval, &times)?;
    let settings = live::settings(&times, args.samples, args.interval);
    let mut load = live::Live::open(pid, args.samples)?;
    let profile = profile::profile(&mut load, &settings)?;
    let ended = load.ended();
    let name = load.name().to_string();
    // It runs again before anything is printed.
    drop(load);
    if let Some(ended) = ended {
        tell_early_end(pid, ended, &profile)?;
    }
    Ok(ProfileReport {
        load: format!("process {pid} ({name})"),
        machine: processor(),
        policy: "the machine's scheduler".into(),
        ..report(&profile, &settings)
    })
}

fn processor() -> String {
    let name = hw::cpu::read_cpu(&hw::Live).name;
    if name.is_empty() { "unknown processor".into() } else { name }
}

fn check_interval(interval: Duration, times: &Times) -> Result<(), Failure> {
    let shortest = live::shortest_interval(times);
    if interval >= shortest {
        return Ok(());
    }
    let (interval, shortest) = (interval.as_nanos() as u64, shortest.as_nanos() as u64);
    Err(Failure::failed(Problem::new(
        format!("cannot use --interval {}", duration(interval)),
        "a sample would end the hold time that the next sample has to see",
        format!("choose {} or more, twice the time for which a level is held", duration(shortest)),
    )))
}

/// Says that there are fewer samples than were asked for; fails if there are none.
fn tell_early_end(pid: u32, ended: live::Ended, profile: &Profile) -> Result<(), Failure> {
    let why = match ended {
        live::Ended::Process => "the process ended",
        live::Ended::Signal => "it was interrupted",
    };
    if profile.samples == 0 {
        let what = format!("cannot profile process {pid}");
        let next = "let it run for longer, or choose a shorter --interval";
        return Err(Failure::failed(Problem::new(what, format!("{why} before a sample"), next)));
    }
    eprintln!("turbolane: {why} after {} samples", profile.samples);
    Ok(())
}

fn percent(frac: Option<f64>) -> Option<f64> {
    frac.map(|frac| 100.0 * frac)
}

fn truth(truth: &Truth) -> ProfileTruth {
    ProfileTruth {
        reduced_pct: percent(truth.reduced_frac()),
        avoidable_pct: percent(truth.avoidable_frac()),
    }
}

/// A profile as a document; whose it is, the caller knows.
fn report(profile: &Profile, settings: &Settings) -> ProfileReport {
    let level = |(level, at): (usize, &profile::AtLevel)| {
        let interval = at.interval_frac();
        LevelProfile {
            license_level: level as u32,
            busy_pct: 100.0 * at.seen as f64 / profile.busy as f64,
            needed_pct: percent(at.avoidable_frac().map(|avoidable| 1.0 - avoidable)),
            avoidable_pct: percent(at.avoidable_frac()),
            avoidable_low_pct: percent(interval.map(|(low, _)| low)),
            avoidable_high_pct: percent(interval.map(|(_, high)| high)),
            seen: at.seen,
            held: at.held,
        }
    };
    ProfileReport {
        schema: ProfileReport::SCHEMA,
        load: String::new(),
        variant: None,
        machine: String::new(),
        policy: String::new(),
        seed: 0,
        samples: profile.samples,
        interval_ns: settings.interval_ns,
        pause_ns: settings.pause_ns,
        watch_ns: settings.watch_ns,
        reduced_pct: percent(profile.reduced_frac()),
        avoidable_pct: percent(profile.reduced().avoidable_frac()),
        levels: profile.levels.iter().enumerate().skip(1).map(level).collect(),
        truth: None,
    }
}
