// SPDX-License-Identifier: MIT OR Apache-2.0
//! `turbolane verify`: does core specialisation gain anything for this command, on this machine?
//!
//! Runs the command in two ways in random order and compares. The number of runs is fixed before the
//! first one: who stops when a difference shows finds differences everywhere. Each pair of runs has
//! both kinds, in an order drawn by a coin, so that what drifts meets both alike.

mod command;

use std::process::ExitCode;

use clap::Args;
use probe::compare::{Comparison, LEAST_RUNS, RankTest, Verdict};
use report::json_line;
use report::problem::Problem;
use report::verify::{Effect, Sample, Side, VerifyReport};

use crate::failure::{FOUND, Failure, show};
use command::{Command, Done, Metric};

/// Compare a command with and without core specialisation
///
/// Runs it as it is (A) and under `turbolane run` (B), or any two ways given by --a and --b, in random
/// order, and tells whether B is better, worse, the same, or cannot be told. Compares the time, or a
/// number that the command prints, and the CPU time.
#[derive(Args)]
#[command(after_long_help = AFTER_HELP)]
pub(crate) struct VerifyArgs {
    /// Runs of each kind
    #[arg(long, value_name = "N", default_value_t = 10)]
    #[arg(value_parser = clap::value_parser!(u16).range(LEAST_RUNS as i64..=1000))]
    runs: u16,
    /// Runs of each kind before, which do not count
    #[arg(long, value_name = "N", default_value_t = 1)]
    warmup: u16,
    /// Compare the number that stands at {} in the output, e.g. 'Requests/sec: {}'
    ///
    /// Blanks match any number of blanks; of several places the last counts. Standard output and
    /// standard error are searched.
    #[arg(long, value_name = "PATTERN", value_parser = str::parse::<Metric>)]
    metric: Option<Metric>,
    /// Less of the number is better
    #[arg(long, requires = "metric")]
    less: bool,
    /// The smallest difference that matters, e.g. 1%
    #[arg(long, value_name = "PERCENT", default_value = "1%", value_parser = percent)]
    margin: f64,
    /// Options of turbolane run for B, e.g. '--mode affinity --wide-cpus 1'
    #[arg(long = "run", value_name = "OPTIONS", default_value = "", conflicts_with = "b")]
    #[arg(allow_hyphen_values = true)]
    run_options: String,
    /// A is this shell command instead
    #[arg(long, value_name = "COMMAND", requires = "b", conflicts_with = "command")]
    a: Option<String>,
    /// B is this shell command instead, e.g. 'GLIBC_TUNABLES=... ./server'
    #[arg(long, value_name = "COMMAND")]
    b: Option<String>,
    /// Draws the order of the runs
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// The command
    #[arg(value_name = "COMMAND", last = true, required_unless_present = "a")]
    command: Vec<String>,
}

const AFTER_HELP: &str = "\
The test is the rank-sum test with its exact distribution (with more than 100
runs of each kind, the normal approximation): a command compared with itself is
called different in at most 5 of 100 cases. The number of runs is fixed before
the first; run again with more instead of until it is different.

The time is that of the command alone, from its start to its end.

Exit codes: 0 B is better or no difference was found, 1 B is worse, 2 failed,
77 not enough runs to tell.

Examples:
  turbolane verify -- ./benchmark
  turbolane verify --runs 20 --run '--mode affinity' -- ./benchmark
  turbolane verify --metric 'Requests/sec: {}' -- wrk -d 5 http://localhost/
  turbolane verify --a ./bench --b 'GLIBC_TUNABLES=glibc.cpu.hwcaps=-AVX512F ./bench'";

pub(crate) fn main(args: &VerifyArgs) -> Result<ExitCode, Failure> {
    let (a, b) = commands(args)?;
    let mut sides = [
        Side { command: a.to_string(), samples: Vec::new() },
        Side { command: b.to_string(), samples: Vec::new() },
    ];
    let both = [a, b];
    for _ in 0..args.warmup {
        for command in &both {
            command.run(args.metric.as_ref())?;
        }
    }
    let mut random = fastrand::Rng::with_seed(args.seed);
    let mut order = 0;
    for _ in 0..args.runs {
        let first = usize::from(random.bool());
        for kind in [first, 1 - first] {
            let Done { time_ns, cpu_time_ns, metric } = both[kind].run(args.metric.as_ref())?;
            sides[kind].samples.push(Sample { order, time_ns, cpu_time_ns, metric });
            order += 1;
        }
    }
    let [a, b] = sides;
    let report = report(args, a, b)?;
    show(args.json, || json_line(&report), |width| report.text(width))?;
    Ok(match report.effect.verdict {
        report::verify::Verdict::Worse => ExitCode::from(FOUND),
        report::verify::Verdict::NotEnoughRuns => ExitCode::from(crate::failure::UNSUPPORTED),
        _ => ExitCode::SUCCESS,
    })
}

/// What A and B execute.
fn commands(args: &VerifyArgs) -> Result<(Command, Command), Failure> {
    if let (Some(a), Some(b)) = (&args.a, &args.b) {
        return Ok((Command::shell(a), Command::shell(b)));
    }
    let plain = Command::plain(&args.command);
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
    let mut words = vec![program.to_string_lossy().into_owned(), "run".into()];
    words.extend(args.run_options.split_whitespace().map(str::to_string));
    words.push("--".into());
    words.extend(args.command.iter().cloned());
    Ok((plain, Command::plain(&words)))
}

fn report(args: &VerifyArgs, a: Side, b: Side) -> Result<VerifyReport, Failure> {
    let smaller = args.metric.is_none() || args.less;
    let value = |sample: &Sample| sample.metric.unwrap_or(sample.time_ns as f64);
    let margin = args.margin / 100.0;
    let test = RankTest::new(a.samples.len(), b.samples.len());
    let cpu_time_ns = |sample: &Sample| sample.cpu_time_ns.max(1) as f64;
    let effect = effect(test, &a, &b, value, smaller, margin)?;
    let cpu_time = self::effect(test, &a, &b, cpu_time_ns, true, margin)?;
    Ok(VerifyReport {
        schema: report::SCHEMA,
        seed: args.seed,
        runs: a.samples.len(),
        margin_pct: args.margin,
        metric: args.metric.as_ref().map_or("time".into(), Metric::to_string),
        smaller_is_better: smaller,
        verdict: effect.words(args.margin),
        effect,
        cpu_time,
        a,
        b,
    })
}

fn effect(
    test: Option<RankTest>,
    a: &Side,
    b: &Side,
    value: impl Fn(&Sample) -> f64,
    smaller_is_better: bool,
    margin_frac: f64,
) -> Result<Effect, Failure> {
    let values = |side: &Side| -> Vec<f64> { side.samples.iter().map(&value).collect() };
    let (a, b) = (values(a), values(b));
    let compared = test.and_then(|test| test.compare(&a, &b, smaller_is_better, margin_frac));
    let Some(found) = compared else {
        return Err(Failure::failed(Problem::new(
            "the runs cannot be compared",
            "a value is 0 or negative, so there is no ratio",
            "choose a --metric that is positive",
        )));
    };
    let Comparison { ratio, low, high, verdict } = found;
    let pct = |ratio: f64| 100.0 * (ratio - 1.0);
    let median = |values: &[f64]| probe::stats::median(values).unwrap_or(0.0);
    let (verdict, runs_needed) = match verdict {
        Verdict::Better => (report::verify::Verdict::Better, None),
        Verdict::Worse => (report::verify::Verdict::Worse, None),
        Verdict::Same => (report::verify::Verdict::NoDifference, None),
        Verdict::NotEnough { runs } => (report::verify::Verdict::NotEnoughRuns, Some(runs)),
    };
    Ok(Effect {
        a: median(&a),
        b: median(&b),
        change_pct: pct(ratio),
        low_pct: pct(low),
        high_pct: pct(high),
        verdict,
        runs_needed,
    })
}

fn percent(text: &str) -> Result<f64, String> {
    let number = text.strip_suffix('%').ok_or("write a percentage, e.g. 1%")?;
    match number.trim().parse::<f64>() {
        Ok(value) if value > 0.0 && value <= 100.0 => Ok(value),
        _ => Err("write a percentage above 0% and up to 100%".into()),
    }
}
