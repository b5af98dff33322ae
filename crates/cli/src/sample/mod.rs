// SPDX-License-Identifier: MIT OR Apache-2.0
//! `turbolane sample`: who executes wide code, on any CPU.
//!
//! CPUs are sampled by the kernel's clock (`hw::sampling`), addresses become places in files
//! (`observe.rs`), the files are scanned, and samples in functions with wide code are added up
//! (`attribute.rs`; `session.rs` is all of it, for `advise` too). Nothing is changed.

mod attribute;
mod observe;
mod output;
mod session;
mod throttle;

use std::collections::HashSet;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, ValueEnum};
use report::json_line;
use report::problem::Problem;
use report::text::duration;
use sched::parse::{ParseError, duration_ns};

use crate::failure::{FOUND, Failure, print, show};
use crate::interrupt::Interrupt;
pub(crate) use attribute::{Observed, Stacks};
pub(crate) use observe::Asked;
use session::READ_EVERY;
pub(crate) use session::{Plan, Taken, take};
pub(crate) use throttle::shown;

/// Show which tasks execute wide code, and what runs right after it
///
/// Samples what the CPUs execute, scans the files that the samples are in, and adds up the samples
/// in functions with wide code. Needs no licence counters, so it works on every CPU and in virtual
/// machines. Needs root, or kernel.perf_event_paranoid of at most 0. Changes nothing. Exits with 1
/// if wide code was seen.
#[derive(Args)]
#[command(after_long_help = AFTER_HELP)]
pub(crate) struct SampleArgs {
    /// Processes to search for wide code [default: all]
    #[arg(long, value_name = "PID", num_args = 1..)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    pid: Vec<u32>,
    /// How long to sample, 60s at most
    #[arg(long = "for", value_name = "TIME", default_value = "10s", value_parser = time)]
    time: Duration,
    /// Lowest licence level of a function that counts as wide
    ///
    /// 1 heavy AVX2 or light AVX-512, 2 heavy AVX-512, 3 AMX.
    #[arg(long, value_name = "LEVEL", default_value_t = 1)]
    #[arg(value_parser = clap::value_parser!(u8).range(1..=3))]
    level: u8,
    #[command(flatten)]
    throttle: ThrottleArgs,
    /// What to print
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
    #[command(flatten)]
    files: output::Files,
}

/// What is done about throttle reasons.
#[derive(Args)]
pub(crate) struct ThrottleArgs {
    /// Clear the CPU's throttle reasons before sampling (Granite Rapids and later)
    ///
    /// A reason stays set until it is cleared. Without this option the reasons are read before and
    /// after sampling, and only new ones count. Clearing concerns all programs that read them.
    #[arg(long)]
    pub clear_throttle_reasons: bool,
}

const AFTER_HELP: &str = "\
LEVEL and LASTING are those of turbolane scan. A sample in a function with wide code
shows that the CPU was in that function, not which instruction it executed: if only the
beginning of a function uses AVX-512, all its samples count as wide.

A victim is other code that was sampled on the same core within 1ms after wide code.
The samples do not show whether the clock was low then.

In a virtual machine the timer that takes samples can be 0.1 ms late. Wide sections
shorter than that lose some of their samples to the code after them.

folded: one line per call chain, outermost caller first, with its number of samples, in
the format that flame graph programs read. Frames are named by function if it has wide
code, otherwise by file. Callers are found by frame pointers, which many libraries omit.

pprof: the same chains as `go tool pprof` and other viewers read them, with labels level
and process: go tool pprof -tagroot=level,process -http=: FILE.

Examples:
  sudo turbolane sample
  sudo turbolane sample --pid $(pidof nginx) --for 30s
  sudo turbolane sample --format folded | flamegraph.pl > wide.svg
  sudo turbolane sample --html wide.html --pprof wide.pb.gz";

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    /// Tables
    Text,
    /// One line of JSON
    Json,
    /// Call chains
    Folded,
    /// Functions with wide code, all of them, as comma-separated values
    Csv,
    /// The same as a table of Markdown
    Markdown,
}

/// A sample takes 48 bytes: 3 MB per CPU and minute, and the call chains.
const LONGEST: Duration = Duration::from_secs(60);

/// A time that can be sampled.
pub(crate) fn time(text: &str) -> Result<Duration, ParseError> {
    match Duration::from_nanos(duration_ns(text)?) {
        time if time >= READ_EVERY && time <= LONGEST => Ok(time),
        _ => Err(ParseError {
            why: "sampling takes 50ms to 60s".into(),
            next: "choose a time within that; sample again for more".into(),
        }),
    }
}

/// Samples, and prints what was found.
pub(crate) fn main(args: &SampleArgs) -> Result<ExitCode, Failure> {
    args.files.check()?;
    for pid in &args.pid {
        let cannot = |error: std::io::Error| {
            let next = "check the number with ps";
            Failure::failed(Problem::new(
                format!("cannot sample process {pid}"),
                error.to_string(),
                next,
            ))
        };
        hw::task::name(*pid).map_err(cannot)?;
    }
    let pids: HashSet<u32> = args.pid.iter().copied().collect();
    let asked = move |pid: u32| pids.is_empty() || pids.contains(&pid);
    let plan = Plan {
        time: args.time,
        level: args.level,
        lasting: false,
        clear: args.throttle.clear_throttle_reasons,
    };
    let interrupt = Interrupt::watch();
    let Taken { mut report, observed, stacks } =
        take(Box::new(asked), &plan, || interrupt.is_seen())?;
    if interrupt.is_seen() {
        let (sampled, asked) = (duration(report.time_ns), duration(args.time.as_nanos() as u64));
        report.partial = Some(format!("interrupted after {sampled} of {asked}"));
    }
    let chains = observed.chains(&stacks);
    args.files.write(&report, &chains)?;
    match args.format {
        Format::Folded => {
            print(&chains.folded())?;
            return Ok(ExitCode::SUCCESS);
        }
        Format::Csv => print(&report.csv())?,
        Format::Markdown => print(&report.markdown())?,
        Format::Json | Format::Text => {
            show(args.format == Format::Json, || json_line(&report), |width| report.text(width))?;
        }
    }
    Ok(if report.wide() > 0 { ExitCode::from(FOUND) } else { ExitCode::SUCCESS })
}
