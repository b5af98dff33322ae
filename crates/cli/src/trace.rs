// SPDX-License-Identifier: MIT OR Apache-2.0
//! `turbolane trace`: what a recording says.

mod export;
mod scenario;

use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use report::problem::Problem;
use report::text::{duration, wrap};
use report::{Document, json_line};
use sched::parse::duration_ns;
use sim::check::Bounds;
use sim::recorded::{Hidden, Judge, StallSum, Stalls, Unjudged, Verdict};
use trace::follow::{Follower, Visit};
use trace::summary::Summary;
use trace::{Ending, Reader, TraceError};

use crate::failure::{FOUND, Failure, print, show};
use crate::terminal;

/// Show what a recording of `turbolane record` contains
///
/// How long each task ran, how much of that time it spent in marked functions, how long tasks
/// waited for a CPU after a wake-up, and how many events were lost. A file that is still being
/// written can be read; the report then calls it partial.
#[derive(Args)]
#[command(after_long_help = "\
Examples:
  turbolane trace turbolane.trace           the summary
  turbolane trace turbolane.trace --json    the same for a program
  turbolane trace machine.trace --check     was a task left waiting?
  turbolane trace turbolane.trace --perfetto trace.json
                                            every run and wait, on ui.perfetto.dev
  turbolane trace turbolane.trace --task 4711 --machine xeon-gold-6130 --timeline web.jsonl
                                            a timeline for turbolane sim --replay web.jsonl
  turbolane trace machine.trace --machine xeon-gold-6130 --scenario service.toml
                                            a scenario for turbolane sim service.toml")]
pub(crate) struct TraceArgs {
    /// The recording
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Tasks to list
    #[arg(long, value_name = "N", default_value_t = 20)]
    top: usize,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Write a trace for ui.perfetto.dev
    #[arg(long, value_name = "OUT", conflicts_with_all = ["json", "check"])]
    perfetto: Option<PathBuf>,
    #[command(flatten)]
    timeline: export::TimelineArgs,
    #[command(flatten)]
    scenario: scenario::ScenarioArgs,
    #[command(flatten)]
    recorded_on: export::RecordedOn,
    /// Check a recording of an entire machine (record --system) against the rules that simulations
    /// are checked by
    ///
    /// Every task runs only on CPUs in its affinity mask and when it is runnable, and none waits
    /// too long. If the scheduler of `turbolane run` was active: wide tasks run only on wide CPUs,
    /// no CPU idles while a task that could use it waits, and no other task keeps a wide CPU from
    /// wide work. Exit code 1 if a rule is broken.
    #[arg(long, conflicts_with = "json")]
    check: bool,
    /// With --check: longest wait for a CPU
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = duration_ns)]
    #[arg(requires = "check")]
    longest_wait: u64,
    /// With --check: time allowed for interrupts, idle exits and, in a virtual machine, the host
    #[arg(long, value_name = "DURATION", default_value = "10ms", value_parser = duration_ns)]
    #[arg(requires = "check")]
    moment: u64,
}

/// A tick of the slowest kernels (CONFIG_HZ=100).
const TICK_NS: u64 = 10_000_000;

/// Reads a recording and says what it says.
pub(crate) fn main(args: &TraceArgs) -> Result<ExitCode, Failure> {
    if args.check {
        return check(args);
    }
    let written = match &args.perfetto {
        Some(out) => Some(export::perfetto(&args.file, out)?),
        None => match args.timeline.write(&args.file, &args.recorded_on)? {
            None => args.scenario.write(&args.file, &args.recorded_on)?,
            written => written,
        },
    };
    if let Some(text) = written {
        print(&text)?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut summary = Summary::default();
    let mut reader = open(&args.file)?;
    let (follower, ending) = follow(&args.file, &mut reader, &mut summary)?;
    let report = summary.finish(reader.info(), &follower, ending);
    show(args.json, || json_line(&Document::new(&report)), |width| report.text(width, args.top))?;
    Ok(ExitCode::SUCCESS)
}

/// Has the checkers judge a recording.
fn check(args: &TraceArgs) -> Result<ExitCode, Failure> {
    let path = &args.file;
    let cannot = |error: TraceError| unreadable(path, error);
    let unjudged = |why: Unjudged| {
        let what = format!("cannot check {}", path.display());
        let next = "record the entire machine: turbolane record --system, with a larger --buffer";
        Failure::failed(Problem::new(what, why.to_string(), next))
    };
    let bounds = Bounds {
        moment_ns: args.moment,
        tick_ns: TICK_NS,
        wait_ns: args.longest_wait,
        conserves: true,
    };
    // Stalls are reported after what they excuse.
    let (mut first, mut stalls) = (open(path)?, Stalls::default());
    if first.info().stalls {
        while let Some(event) = first.next_event().map_err(cannot)? {
            stalls.take(&event);
        }
    }
    let mut reader = open(path)?;
    let mut judge = Judge::new(reader.info(), stalls, bounds).map_err(unjudged)?;
    let mut last_ns = 0;
    while let Some(event) = reader.next_event().map_err(cannot)? {
        last_ns = event.at_ns;
        judge.take(&event);
    }
    let ending = reader.ending().expect("known after the last event");
    let verdict = judge.finish(ending.at_ns(last_ns)).map_err(unjudged)?;
    print(&verdict_text(&verdict))?;
    Ok(ExitCode::from(if verdict.result.is_ok() { 0 } else { FOUND }))
}

fn verdict_text(verdict: &Verdict) -> String {
    let rules = if verdict.lane {
        "order, class, liveness, conservation, wide first"
    } else {
        "order, liveness (the lane's scheduler did not run, so its promises were not checked)"
    };
    let width = terminal::width();
    let mut text = wrap("rules    ", rules, width);
    text += &match &verdict.result {
        Ok(checked) => wrap("verdict  ", &format!("kept, in {checked} events"), width),
        Err(violation) => wrap("verdict  ", &violation.to_string(), width),
    };
    let mut note = |what: &str| text += &wrap("note     ", what, width);
    if verdict.until_ns.is_some() {
        note("checked until the set of wide CPUs changed");
    }
    let StallSum { stalls, total_ns, longest_ns } = verdict.stalls;
    if stalls > 0 {
        let (total, longest) = (duration(total_ns), duration(longest_ns));
        note(&format!(
            "CPUs executed nothing {stalls} times, {total} in total, {longest} at most: that time was not checked"
        ));
    }
    let Hidden { tids, stops, unseen_ns } = &verdict.hidden;
    if !tids.is_empty() {
        let tids: Vec<String> = tids.iter().map(u32::to_string).collect();
        let unseen = duration(*unseen_ns);
        note(&format!(
            "this kernel does not report when some tasks stop ({}): {unseen} after {stops} such stops were not checked",
            tids.join(", ")
        ));
    }
    text
}

/// The recording, its first block read.
fn open(path: &Path) -> Result<Reader<BufReader<File>>, Failure> {
    let opened = File::open(path).map_err(TraceError::from);
    opened
        .and_then(|file| Reader::new(BufReader::new(file)))
        .map_err(|error| unreadable(path, error))
}

fn unreadable(path: &Path, error: TraceError) -> Failure {
    Failure::failed(error.problem(format!("cannot read {}", path.display())))
}

/// Shows a recording to `to`, from where its reader is to its end.
fn follow(
    path: &Path,
    reader: &mut Reader<BufReader<File>>,
    to: &mut dyn Visit,
) -> Result<(Follower, Ending), Failure> {
    let mut follower = Follower::new(reader.info());
    while let Some(event) = reader.next_event().map_err(|error| unreadable(path, error))? {
        follower.take(&event, to);
    }
    let ending = reader.ending().expect("known after the last event");
    follower.finish(ending.at_ns(follower.now_ns()), to);
    Ok((follower, ending))
}
