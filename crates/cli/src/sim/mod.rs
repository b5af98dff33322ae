// SPDX-License-Identifier: MIT OR Apache-2.0
//! `turbolane sim`: the effect of a scheduler, on machines that need not be available.
//!
//! Every combination of scenario, machine and policy is one run; runs share nothing, so they go on
//! in parallel, and their order in the output is that of the command line. No root, no hardware,
//! nothing is changed.
//!
//! `--replay` and `--break-even` are about when one core's clock is raised again, not about who
//! runs where: they ask `dvfs` instead of `sim`.

mod break_even;
mod convert;
pub(crate) mod input;
mod replay;
mod sweep;
mod target;

pub(crate) use input::model;
pub(crate) use sweep::{cannot_simulate, in_parallel, in_parallel_until, once};
pub(crate) use target::Target;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use report::json_line;
use report::sim::SimReport;
use sim::policy_spec::PolicySpec;

use replay::DvfsPolicy;

use crate::failure::{Failure, print, show, unwritable};
use crate::interrupt::Interrupt;
use crate::output_file;
use crate::table_format::TableFormat;

/// Simulate schedulers on any machine, and compare them
///
/// Runs a scenario on machines with licence levels under several schedulers. One of them is
/// Turbolane's own policy, the same code that runs in the kernel. Needs no root and changes
/// nothing. The same seed gives the same output.
///
/// --replay instead replays the timeline of one core under policies that decide when to raise its
/// clock after wide code. --break-even prints after what time raising the clock pays.
#[derive(Args)]
#[command(after_long_help = "\
Policies:
  fair              the kernel's fair scheduling
  fair-hrtick       the same, with a timer that ends each turn, as in Linux 7.3
  cfs               the kernel's scheduling before Linux 6.6, which the papers used
  muqss             MuQSS, the baseline of the papers
  core-scheduling   wide and other tasks never share a core
  affinity:CORES    wide tasks are bound to this number of cores, all others to the rest
  lane[:KEY=VALUE[,KEY=VALUE...]]
                    Turbolane: wide=CORES|auto, detect=hint|mark|trap|trap-avx|score,
                    remigrate=gap|last-syscall|syscall-entry|syscall-return|
                    context-switch|timeout|none (joined by +),
                    timeout=100ms, slice=5ms, tiers=yes|no, standby=yes|no,
                    clocks=known|unknown, first-look=150ms
  prototype[:KEY=VALUE[,KEY=VALUE...]]
                    the papers' prototypes: cpus=N, alpha=X (automatic sizing), detect=trap|mark,
                    end=entry|return|switch|never, timeout=2ms, slice=6ms, guests=yes|no

Policies for the clock (--dvfs):
  hardware          the machine's own timeout
  fixed:TIME        a timeout, e.g. fixed:670us; or never
  break-even        when the loss equals the cost of the changes (2-competitive)
  random            after a random part of that time (1.58-competitive on average)
  average           at once if gaps have been long on average, otherwise break-even
  share             learns which timeout pays
  hints[:TIME]      when the application gives a hint, or after TIME [default: never]
  switches[:TIME]   when the kernel switches to a scalar task, or after TIME [default: as hardware]
  oracle            optimal, because it looks ahead; not with --sibling

Examples:
  turbolane sim                                    list scenarios and machines
  turbolane sim thesis-nginx                       fair scheduling and Turbolane
  turbolane sim thesis-nginx -p muqss -p lane:wide=1 -p lane:wide=2
  turbolane sim parsec-x265 --machine xeon-6980p --html report.html
  turbolane sim parsec-x265 --machine xeon-6980p --power-limit 500
  turbolane sim ./mine.toml --machine ./probed.toml --json
  turbolane sim --break-even xeon-gold-6130
  turbolane sim --replay dim-nginx --dvfs fixed:670us,break-even,hints,oracle")]
pub(crate) struct SimArgs {
    /// Names of built-in scenarios, or scenario files; without any, lists scenarios and machines
    #[arg(value_name = "SCENARIO")]
    scenarios: Vec<String>,
    /// CPU models: built-in ids or CPU files [default: the scenario's own]
    #[arg(short, long = "machine", value_name = "ID|FILE")]
    machines: Vec<String>,
    /// Schedulers; the others are compared with the first [default: fair and lane]
    #[arg(short, long = "policy", value_name = "POLICY")]
    policies: Vec<PolicySpec>,
    /// Variant of the scenario's code, e.g. none, avx2, avx512 [default: the code in the file]
    #[arg(long, value_name = "NAME")]
    variant: Option<String>,
    /// Packages of the machine [default: the scenario's]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=64))]
    packages: Option<u16>,
    /// Long-term power limit of a package, W; clocks are lowered until it is met [default: the CPU
    /// file's, or no limit]
    #[arg(long, value_name = "WATTS", value_parser = input::watts)]
    power_limit: Option<f64>,
    /// Random seed [default: 1]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Number of parallel runs [default: number of CPUs]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    jobs: Option<u16>,
    /// Print JSON, one line per scenario; without any, the list of scenarios and machines
    #[arg(long)]
    json: bool,
    /// Print the tables of simulations in another format
    #[arg(long, value_enum, value_name = "FORMAT")]
    #[arg(conflicts_with_all = ["json", "break_even", "replay"])]
    format: Option<TableFormat>,
    /// Write a page with charts; one scenario only
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Write a trace for ui.perfetto.dev; one scenario only
    #[arg(long, value_name = "FILE")]
    perfetto: Option<PathBuf>,
    /// Print the break-even time of every step of this machine
    #[arg(long, value_name = "ID|FILE", conflicts_with_all = [
        "scenarios", "machines", "policies", "variant", "packages", "power_limit", "seed", "jobs",
        "html", "perfetto", "replay",
    ])]
    break_even: Option<String>,
    #[command(flatten)]
    replay: ReplayArgs,
}

/// A replay of what one core does.
#[derive(Args)]
#[command(next_help_heading = "Replays of one core")]
struct ReplayArgs {
    /// Replay a timeline under DVFS policies: a built-in model, a model file, or a timeline that
    /// turbolane trace or --write-timeline wrote
    #[arg(long, value_name = "NAME|FILE", conflicts_with_all = [
        "scenarios", "policies", "packages", "power_limit", "jobs", "html", "perfetto",
    ])]
    replay: Option<String>,
    /// Policies for the clock; the others are compared with the first [default: all that need no
    /// hints, and those that use the timeline's hints]
    #[arg(
        long,
        value_name = "POLICY,...",
        requires = "replay",
        conflicts_with = "scenarios",
        value_delimiter = ','
    )]
    dvfs: Vec<DvfsPolicy>,
    /// Timeline of the core's other CPU, executed at the same time
    #[arg(long, value_name = "NAME|FILE", requires = "replay", conflicts_with = "scenarios")]
    sibling: Option<String>,
    /// Active cores of the package [default: as in the timeline, or all]
    #[arg(long, value_name = "N", requires = "replay", conflicts_with = "scenarios")]
    active_cores: Option<u16>,
    /// Use the base clock of each level
    #[arg(long, requires = "replay", conflicts_with_all = ["scenarios", "active_cores"])]
    no_turbo: bool,
    /// Write the replayed timeline to a file
    #[arg(long, value_name = "FILE", requires = "replay", conflicts_with = "scenarios")]
    write_timeline: Option<PathBuf>,
}

impl SimArgs {
    fn seed(&self) -> u64 {
        self.seed.unwrap_or(1)
    }
}

/// Simulates, and prints what came out.
pub(crate) fn main(args: &SimArgs) -> Result<ExitCode, Failure> {
    if let Some(id) = &args.break_even {
        let report = break_even::report(&input::model(id)?);
        show(args.json, || json_line(&report), |width| report.text(width))?;
        return Ok(ExitCode::SUCCESS);
    }
    if let Some(name) = &args.replay.replay {
        let report = replay::report(args, name)?;
        show(args.json, || json_line(&report), |width| report.text(width))?;
        return Ok(ExitCode::SUCCESS);
    }
    if args.scenarios.is_empty() {
        input::check_nothing_is_asked(args)?;
        let list = input::list();
        show(args.json, || json_line(&list), |width| list.text(width))?;
        return Ok(ExitCode::SUCCESS);
    }
    let sweep = input::sweep(args)?;
    let reports = sweep::run(&sweep, &Interrupt::watch())?;
    match args.format {
        Some(TableFormat::Csv) => print(&SimReport::csv(&reports))?,
        Some(TableFormat::Markdown) => {
            let texts: Vec<String> = reports.iter().map(SimReport::markdown).collect();
            print(&texts.join("\n"))?;
        }
        None => {
            for report in &reports {
                show(args.json, || json_line(report), |width| report.text(width))?;
            }
        }
    }
    write_files(args, &reports)?;
    Ok(ExitCode::SUCCESS)
}

fn write_files(args: &SimArgs, reports: &[SimReport]) -> Result<(), Failure> {
    let [report] = reports else { return Ok(()) };
    if let Some(path) = &args.html {
        output_file::write(path, report.html())?;
    }
    if let Some(path) = &args.perfetto {
        let mut text = Vec::new();
        report.write_perfetto(&mut text).map_err(|error| unwritable(path, &error))?;
        output_file::write(path, text)?;
    }
    Ok(())
}
