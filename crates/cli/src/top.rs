// SPDX-License-Identifier: MIT OR Apache-2.0
//! `turbolane top`: what CPUs and tasks do now, on a screen or as reports.

use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, ValueEnum};
use hw::Rooted;
use hw::levels::LevelCounters;
use report::ctl::{Reply, Request};
use report::problem::Problem;
use report::{Document, json_line};
use top::live::{Fault, Intervals, show};
use top::order::{Selection, SortKey};
use top::sample::{AskLane, CountLevels, LaneAnswer, NoCounters, Sampler};
use top::screen::Screen;

use crate::client::{At, Client, unexpected};
use crate::failure::{Failure, print};
use crate::stats::interval;
use crate::terminal;

/// Tasks in a report for people if --top is not given.
const TASKS_IN_TEXT: usize = 20;

/// Show what CPUs and tasks do now: roles, levels, types, migrations
///
/// While turbolane run is active: which CPUs are wide, what each CPU runs, which tasks are wide and
/// for how much of their time, which tasks migrate, how often and why. Without it: how busy CPUs
/// and threads are. A dash means unknown; press ? on the screen, or see the note in a report, for
/// the reason.
///
/// Only root can query turbolane run.
#[derive(Args)]
#[command(after_long_help = "\
Screen:
  q quit, ? help, s sort, r reverse, / filter, p pause, + - interval, c CPUs

Examples:
  sudo turbolane top                        the screen, updated every second
  sudo turbolane top --sort migrations      which tasks migrate the most?
  sudo turbolane top --once --sort wide     one second as a table: which tasks are wide?
  sudo turbolane top --once --json          the same for a program
  turbolane top --pid 4242 --interval 5s    the threads of one process

The scheduler of turbolane run reports tasks of the normal scheduling classes, with
times in nanoseconds. Without it tasks are read from /proc, with times in ticks of
10 ms. While top runs, it uses three counters on each CPU that counts licence levels.")]
pub(crate) struct TopArgs {
    /// Print a report about one interval and exit
    #[arg(long, conflicts_with = "count")]
    once: bool,
    /// Print this many reports, one per interval, and exit
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    count: Option<u32>,
    /// Print reports as JSON, one document per line
    #[arg(long)]
    json: bool,
    /// Length of an interval
    #[arg(long, value_name = "INTERVAL", default_value = "1s", value_parser = interval)]
    interval: Duration,
    /// Sort tasks by this key, highest first
    #[arg(long, value_name = "KEY", default_value = "cpu", value_parser = sort_key())]
    sort: SortKey,
    /// Print at most N tasks [default: 20; with --json all]
    #[arg(long, value_name = "N")]
    top: Option<usize>,
    /// Only tasks of this process; repeatable
    #[arg(long = "pid", value_name = "PID")]
    pids: Vec<u32>,
    /// Look at the files of a machine below this folder
    #[arg(long, value_name = "DIR", default_value = "/", hide = true)]
    machine: PathBuf,
    /// Break the screen on purpose, for tests of what happens then
    #[arg(long, value_enum, hide = true)]
    fault: Option<FaultArg>,
    #[command(flatten)]
    at: At,
}

#[derive(Clone, Copy, ValueEnum)]
enum FaultArg {
    Panic,
}

fn sort_key() -> impl TypedValueParser<Value = SortKey> {
    PossibleValuesParser::new(SortKey::ALL.map(SortKey::word)).map(|word| {
        let is_it = |key: &SortKey| key.word() == word;
        SortKey::ALL.into_iter().find(is_it).unwrap_or_default()
    })
}

/// Shows intervals until it has shown enough.
pub(crate) fn main(args: TopArgs) -> Result<ExitCode, Failure> {
    let reports = if args.once { Some(1) } else { args.count };
    check(&args, reports)?;
    let source = Rooted::new(&args.machine);
    let lane = Box::new(Lane { at: args.at.clone() });
    let sampler = Sampler::new(source, lane, levels(&args.machine), args.pids.clone());
    let intervals = Intervals::begin(sampler).map_err(|error| no_machine(&args.machine, &error))?;
    let selection = Selection {
        sort: args.sort,
        pids: args.pids.clone(),
        max: args.top,
        ..Selection::default()
    };
    match reports {
        Some(count) => print_reports(intervals, selection, count, &args)?,
        None => {
            let screen = Screen::new(selection, args.interval);
            let fault = args.fault.map_or(Fault::None, |FaultArg::Panic| Fault::Panic);
            show(intervals, screen, fault).map_err(|error| no_screen(&error))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// The counters of licence levels, of this machine alone: a folder has none.
fn levels(root: &Path) -> Box<dyn CountLevels> {
    if root != Path::new("/") {
        return Box::new(NoCounters("a folder has no counters".into()));
    }
    match LevelCounters::of_this_machine(&hw::Live) {
        Ok(counters) => Box::new(counters),
        Err(why) => Box::new(NoCounters(why)),
    }
}

/// Refuses what makes no sense before anything is read.
fn check(args: &TopArgs, reports: Option<u32>) -> Result<(), Failure> {
    let what = "cannot show what runs";
    if reports.is_none() && args.json {
        let next = "add --once, or --count N";
        return Err(Failure::failed(Problem::new(what, "JSON is for reports, not a screen", next)));
    }
    if reports.is_none() && !io::stdout().is_terminal() {
        let why = "the screen needs a terminal, and standard output is not one";
        return Err(Failure::failed(Problem::new(what, why, "print a report: --once, --count N")));
    }
    let source = Rooted::new(&args.machine);
    match args.pids.iter().find(|pid| !hw::activity::has_process(&source, **pid)) {
        None => Ok(()),
        Some(pid) => Err(Failure::failed(Problem::new(
            format!("cannot watch process {pid}"),
            "there is no such process",
            "give the number of a running process: see pidof, pgrep",
        ))),
    }
}

fn print_reports(
    mut intervals: Intervals<Rooted>,
    mut selection: Selection,
    count: u32,
    args: &TopArgs,
) -> Result<(), Failure> {
    if !args.json {
        selection.max.get_or_insert(TASKS_IN_TEXT);
    }
    for number in 0..count {
        std::thread::sleep(args.interval);
        let next = intervals.end_one().map_err(|error| no_machine(&args.machine, &error))?;
        let Some(mut top) = next else { continue };
        selection.apply(&mut top);
        let text = match (args.json, number) {
            (true, _) => json_line(&Document::new(top)) + "\n",
            (false, 0) => top.text(terminal::width()),
            (false, _) => format!("\n{}", top.text(terminal::width())),
        };
        print(&text)?;
    }
    Ok(())
}

fn no_machine(root: &Path, error: &io::Error) -> Failure {
    Failure::unsupported(Problem::new(
        "cannot find out what the CPUs do",
        format!("{}: {error}", root.join("proc/stat").display()),
        "is /proc mounted? In a container it may be hidden",
    ))
}

fn no_screen(error: &io::Error) -> Failure {
    let next = "try another terminal, or print reports: --once, --count N";
    Failure::failed(Problem::new("cannot go on showing what runs", error.to_string(), next))
}

/// Asks the lane over its control socket, by a new connection each time.
struct Lane {
    at: At,
}

impl AskLane for Lane {
    fn ask(&mut self, tasks_since_ns: u64) -> Result<LaneAnswer, String> {
        self.answer(tasks_since_ns).map_err(|failure| failure.why().to_string())
    }
}

impl Lane {
    fn answer(&self, tasks_since_ns: u64) -> Result<LaneAnswer, Failure> {
        let mut client = Client::connect(&self.at)?;
        let status = match client.ask(&Request::Status)? {
            Reply::Status(status) => status,
            other => return Err(unexpected(&other)),
        };
        let stats = match client.ask(&Request::Stats)? {
            Reply::Stats(stats) => *stats,
            other => return Err(unexpected(&other)),
        };
        match client.ask(&Request::Tasks { since_ns: tasks_since_ns })? {
            Reply::Tasks(tasks) => Ok(LaneAnswer { status, stats, tasks }),
            other => Err(unexpected(&other)),
        }
    }
}
