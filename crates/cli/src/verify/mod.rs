// SPDX-License-Identifier: MIT OR Apache-2.0
//! `turbolane verify`: does core specialisation gain anything for this command, on this machine? Or
//! for a load of the simulator?
//!
//! A command is run in two variants ([`series`]), a scenario is simulated under two policies
//! ([`scenario`]); in both cases [`judge`] compares.

mod command;
mod judge;
mod live;
mod scenario;
mod series;

use std::process::ExitCode;

use clap::Args;
use probe::compare::LEAST_RUNS;
use report::json_line;
use report::problem::Problem;
use report::verify::{TIME, Verdict};

use crate::client::At;
use crate::failure::{FOUND, Failure, UNSUPPORTED, print};
use crate::interrupt::Interrupt;
use crate::paint::{self, ColorArgs};
use crate::table_format::TableFormat;
use command::{Command, Metric};
use judge::Question;
use live::Live;

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
    /// The command is a load that prints how fast it was, or that measures services which run
    /// anyway. The lane is back at the latest 30 s after this program, whatever ends it.
    #[arg(long, requires = "command", conflicts_with_all = ["run_options", "a", "b", "scenario"])]
    live: bool,
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
    /// The command
    #[arg(value_name = "COMMAND", last = true, required_unless_present_any = ["a", "scenario"])]
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
  turbolane verify --a ./bench --b 'GLIBC_TUNABLES=glibc.cpu.hwcaps=-AVX512F ./bench'
  turbolane verify --scenario thesis-nginx
  turbolane verify --scenario nginx-x265 --policy lane:wide=2 --figure p50";

pub(crate) fn main(args: &VerifyArgs) -> Result<ExitCode, Failure> {
    let interrupt = Interrupt::watch();
    let (question, sides) = match &args.scenario.scenario {
        Some(name) => scenario::run(args, name, &interrupt)?,
        None => {
            let live = args.live.then(|| Live::open(&args.at)).transpose()?;
            let (a, b) = commands(args)?;
            let (sides, no_clock) = series::run(args, &a, &b, live.as_ref(), &interrupt)?;
            (Question { no_clock, ..question(args) }, sides)
        }
    };
    let report = judge::report(args, question, sides)?;
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

/// What is compared of a command.
fn question(args: &VerifyArgs) -> Question {
    Question {
        metric: args.metric.as_ref().map_or(TIME.into(), Metric::to_string),
        smaller_is_better: args.metric.is_none() || args.less,
        simulated: None,
        no_clock: None,
    }
}

/// What A and B execute.
fn commands(args: &VerifyArgs) -> Result<(Command, Command), Failure> {
    if let (Some(a), Some(b)) = (&args.a, &args.b) {
        return Ok((Command::shell(a), Command::shell(b)));
    }
    let plain = Command::plain(&args.command);
    if args.live {
        let [a, b] = ["the lane paused", "with the lane"].map(|how| plain.named(how));
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

fn percent(text: &str) -> Result<f64, String> {
    let number = text.strip_suffix('%').ok_or("write a percentage, e.g. 1%")?;
    match number.trim().parse::<f64>() {
        Ok(value) if value > 0.0 && value <= 100.0 => Ok(value),
        _ => Err("write a percentage above 0% and up to 100%".into()),
    }
}
