// SPDX-License-Identifier: MIT OR Apache-2.0
//! `turbolane verify`: does core specialisation gain anything for this command, on this machine? Or
//! for a load of the simulator?
//!
//! A command is run in two variants ([`series`]), a scenario is simulated under two policies
//! ([`scenario`]); in both cases [`judge`] compares.

mod command;
mod judge;
mod live;
mod outcome;
mod scenario;
mod series;
mod service;
mod work;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use probe::compare::LEAST_RUNS;
use report::json_line;
use report::problem::Problem;
use report::verify::{TIME, Verdict};
use sched::parse::{ParseError, duration_at_least};

use crate::client::At;
use crate::failure::{FOUND, Failure, UNSUPPORTED, print};
use crate::interrupt::Interrupt;
use crate::output_file;
use crate::paint::{self, ColorArgs};
use crate::table_format::TableFormat;
use crate::target::{self, Target};
use command::{Command, Metric};
use judge::Question;
use live::Live;
use service::Service;
use work::Work;

/// What is for commands only.
const NOT_FOR_SERVICES: [&str; 3] = ["command", "metric", "less"];

/// Compare a command with and without core specialisation
///
/// Runs the command without (A) and under `turbolane run` (B), or any two commands given by --a and
/// --b, in random order, and reports whether B is better, worse, not different, or whether more
/// runs are needed. Compares the elapsed time, or a number that the command prints; the CPU time;
/// and the clock, if cycles are counted. A run that fails is reported and not used.
///
/// With --scenario, compares two policies on a simulated load by the same test; the results are
/// then simulated, not measured.
#[derive(Args)]
#[command(after_long_help = AFTER_HELP)]
pub(crate) struct VerifyArgs {
    /// Runs of each kind
    #[arg(long, value_name = "N", default_value_t = 10)]
    #[arg(value_parser = clap::value_parser!(u16).range(LEAST_RUNS as i64..=1000))]
    runs: u16,
    /// Warm-up runs of each kind, made first and not used
    #[arg(long, value_name = "N", default_value_t = 1)]
    warmup: u16,
    /// Compare the number at {} in the output, e.g. 'Requests/sec: {}'
    ///
    /// A blank matches any number of blanks. If the pattern occurs several times, the last one is
    /// used. Standard output and standard error are searched.
    #[arg(long, value_name = "PATTERN", value_parser = str::parse::<Metric>)]
    metric: Option<Metric>,
    /// Lower is better
    #[arg(long, requires = "metric")]
    less: bool,
    /// The smallest difference that matters, e.g. 1%
    #[arg(long, value_name = "PERCENT", default_value = "1%", value_parser = percent)]
    margin: f64,
    /// Options of turbolane run for B, e.g. '--mode affinity --wide-cpus 1'
    #[arg(long = "run", value_name = "OPTIONS", default_value = "", conflicts_with = "b")]
    #[arg(allow_hyphen_values = true)]
    run_options: String,
    /// Compare with the lane that runs on this machine: A while it is paused, B with it
    ///
    /// The load is a command that prints how fast it was, or a service that runs anyway (--unit,
    /// --cgroup). The lane is back at the latest 30 s after this program, whatever ends it.
    #[arg(long, conflicts_with_all = ["run_options", "a", "b", "scenario"])]
    live: bool,
    /// With --live: compare how fast this systemd unit executes
    ///
    /// Instructions per second of its CPU time are compared, so that neither the service nor its
    /// clients are changed. Needs a PMU, and root.
    #[arg(long, value_name = "NAME", requires = "live", group = "service")]
    #[arg(conflicts_with_all = NOT_FOR_SERVICES)]
    unit: Option<String>,
    /// Like --unit, for a control group and those below it
    #[arg(long, value_name = "PATH", requires = "live", group = "service")]
    #[arg(conflicts_with_all = NOT_FOR_SERVICES)]
    cgroup: Option<String>,
    /// How long a run counts instructions
    #[arg(long = "for", value_name = "TIME", default_value = "10s", requires = "service")]
    #[arg(value_parser = watched)]
    time: Duration,
    /// Shell command to use as A
    #[arg(long, value_name = "COMMAND", requires = "b", conflicts_with = "command")]
    a: Option<String>,
    /// Shell command to use as B, e.g. 'GLIBC_TUNABLES=... ./server'
    #[arg(long, value_name = "COMMAND")]
    b: Option<String>,
    /// Random seed for the order of the runs, or for the seeds of simulated runs
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Print the comparison as Markdown, or the runs as CSV
    #[arg(long, value_enum, value_name = "FORMAT", conflicts_with = "json")]
    format: Option<TableFormat>,
    /// Also write a page with the verdict and all runs
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// The command
    #[arg(value_name = "COMMAND", last = true)]
    #[arg(required_unless_present_any = ["a", "scenario", "service"])]
    command: Vec<String>,
    #[command(flatten)]
    scenario: scenario::ScenarioArgs,
    #[command(flatten)]
    color: ColorArgs,
    #[command(flatten)]
    at: At,
}

const AFTER_HELP: &str = "\
The test is the rank-sum test with its exact distribution (with more than 100
runs of each kind, the normal approximation): a command compared with itself is
reported as different in at most 5 of 100 cases. The number of runs is fixed
before the first run. If it was too small, repeat with a larger --runs; do not
repeat until a difference appears.

The elapsed time is that of the command alone, from its start to its end. The
time that `turbolane run` takes to load and unload the scheduler is shown
separately.

Ctrl-C ends it early: the runs that were made are compared, if there are four
of each kind, and the result is labelled as partial. A second Ctrl-C ends it at
once.

The comparison stops early if fewer than four runs of a kind can still succeed,
or if all of the first four have failed.

Exit codes: 0 B is better or no difference was found, 1 B is worse, 2 failed,
77 not enough runs for a verdict.

Examples:
  turbolane verify -- ./benchmark
  turbolane verify --runs 20 --run '--mode affinity' -- ./benchmark
  turbolane verify --metric 'Requests/sec: {}' -- wrk -d 5 http://localhost/
  turbolane verify --live --metric 'Requests/sec: {}' -- wrk -d 5 http://localhost/
  turbolane verify --live --unit nginx
  turbolane verify --a ./bench --b 'GLIBC_TUNABLES=glibc.cpu.hwcaps=-AVX512F ./bench'
  turbolane verify --scenario thesis-nginx --html compared.html
  turbolane verify --scenario nginx-x265 --policy lane:wide=2 --figure p50";

pub(crate) fn main(args: &VerifyArgs) -> Result<ExitCode, Failure> {
    // minutes of runs are not lost to a typing error
    args.html.as_deref().map_or(Ok(()), output_file::check_before)?;
    let interrupt = Interrupt::watch();
    let (question, sides) = match &args.scenario.scenario {
        Some(name) => scenario::run(args, name, &interrupt)?,
        None => {
            let (a, b) = work(args)?;
            let live = args.live.then(|| Live::open(&args.at)).transpose()?;
            let (sides, no_clock) = series::run(args, &a, &b, live.as_ref(), &interrupt)?;
            (Question { no_clock, ..question(args) }, sides)
        }
    };
    let report = judge::report(args, question, sides)?;
    if let Some(path) = &args.html {
        output_file::write(path, report.html())?;
    }
    match args.format {
        Some(TableFormat::Csv) => print(&report.csv())?,
        Some(TableFormat::Markdown) => print(&report.markdown())?,
        None => {
            args.color.show(
                args.json,
                || json_line(&report),
                |width| report.text(width),
                &paint::VERDICTS,
            )?;
        }
    }
    Ok(match report.effect.verdict {
        Verdict::Worse => ExitCode::from(FOUND),
        Verdict::NotEnoughRuns => ExitCode::from(UNSUPPORTED),
        _ => ExitCode::SUCCESS,
    })
}

/// What is compared of a command, or of a service.
fn question(args: &VerifyArgs) -> Question {
    let is_service = args.service().is_some();
    let default = if is_service { service::METRIC } else { TIME };
    Question {
        metric: args.metric.as_ref().map_or(default.into(), Metric::to_string),
        smaller_is_better: !is_service && (args.metric.is_none() || args.less),
        simulated: None,
        no_clock: None,
    }
}

impl VerifyArgs {
    /// The service that is compared, if it is one.
    fn service(&self) -> Option<Target> {
        let unit = self.unit.as_deref().map(|name| Target::Unit(target::unit(name)));
        unit.or_else(|| self.cgroup.as_deref().map(|path| Target::Group(target::group(path))))
    }
}

/// What the runs of A and B are.
fn work(args: &VerifyArgs) -> Result<(Work, Work), Failure> {
    let Some(target) = args.service() else {
        let (a, b) = commands(args)?;
        return Ok((Work::Command(a), Work::Command(b)));
    };
    let service = Service::find(&target, args.time)?;
    let [a, b] = LIVE.map(|how| Work::Service(service.named(how)));
    Ok((a, b))
}

/// The lane in runs of A and B, with --live.
const LIVE: [&str; 2] = ["the lane paused", "with the lane"];

/// What A and B execute.
fn commands(args: &VerifyArgs) -> Result<(Command, Command), Failure> {
    if let (Some(a), Some(b)) = (&args.a, &args.b) {
        return Ok((Command::shell(a), Command::shell(b)));
    }
    let plain = Command::plain(&args.command);
    if args.live {
        let [a, b] = LIVE.map(|how| plain.named(how));
        return Ok((a, b));
    }
    if let Some(b) = &args.b {
        return Ok((plain, Command::shell(b)));
    }
    let program = std::env::current_exe().map_err(|error| {
        Failure::failed(Problem::new(
            "cannot find this program to run it again",
            error.to_string(),
            "give B by --b",
        ))
    })?;
    let program = program.to_string_lossy();
    Ok((plain, Command::under_run(&program, &args.run_options, &args.command)))
}

/// For how long a service is watched in a run.
fn watched(text: &str) -> Result<Duration, ParseError> {
    duration_at_least(text, Duration::from_millis(100), "a run takes 100ms or more")
}

fn percent(text: &str) -> Result<f64, String> {
    let number = text.strip_suffix('%').ok_or("write a percentage, e.g. 1%")?;
    match number.trim().parse::<f64>() {
        Ok(value) if value > 0.0 && value <= 100.0 => Ok(value),
        _ => Err("write a percentage above 0% and up to 100%".into()),
    }
}
