// SPDX-License-Identifier: MIT OR Apache-2.0
//! `turbolane sim`: what a scheduler would bring, on machines that nobody here owns.
//!
//! Every combination of scenario, machine and policy is one run; runs share nothing, so they go on
//! in parallel, and their order in the output is that of the command line. No root, no hardware,
//! nothing is changed.

mod convert;
mod input;
mod sweep;

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use report::json_line;
use report::problem::Problem;
use report::sim::SimReport;
use sim::policy_spec::PolicySpec;

use crate::failure::{Failure, print};
use crate::terminal;

/// Simulate: predict what a scheduler brings, on any machine
///
/// Runs a scenario on machines with licence levels under several schedulers, side by side; among
/// them Turbolane's own policy, the same code that runs in the kernel. Needs no root and changes
/// nothing. The same seed gives the same output.
#[derive(Args)]
#[command(after_long_help = "\
Policies:
  fair              the kernel's fair scheduling
  muqss             MuQSS, the baseline of the papers
  core-scheduling   wide and other tasks never share a core
  affinity:CORES    wide tasks are bound to so many cores, all others to the rest
  lane[:KEY=VALUE[,KEY=VALUE...]]
                    Turbolane: wide=CORES|auto, detect=hint|mark|trap|trap-avx,
                    remigrate=syscall-entry|syscall-return|context-switch|timeout (joined by +),
                    timeout=2ms, slice=5ms, tiers=yes|no
  prototype[:KEY=VALUE[,KEY=VALUE...]]
                    what the papers measured: cpus=N, alpha=X (automatic sizing), detect=trap|mark,
                    end=entry|return|switch|never, timeout=2ms, slice=6ms, guests=yes|no

Examples:
  turbolane sim                                    the scenarios and machines there are
  turbolane sim thesis-nginx                       fair scheduling and Turbolane
  turbolane sim thesis-nginx -p muqss -p lane:wide=1 -p lane:wide=2
  turbolane sim parsec-x265 --machine xeon-6980p --html report.html
  turbolane sim ./mine.toml --machine ./probed.toml --json")]
pub(crate) struct SimArgs {
    /// Names of built-in scenarios, or scenario files; lists what there is if none is given
    #[arg(value_name = "SCENARIO")]
    scenarios: Vec<String>,
    /// CPU models: built-in ids or CPU files [default: the scenario's own]
    #[arg(short, long = "machine", value_name = "ID|FILE")]
    machines: Vec<String>,
    /// Schedulers; what the others are compared with first [default: fair and lane]
    #[arg(short, long = "policy", value_name = "POLICY")]
    policies: Vec<PolicySpec>,
    /// Variant of the scenario's code, e.g. none, avx2, avx512 [default: as the file stands]
    #[arg(long, value_name = "NAME")]
    variant: Option<String>,
    /// Packages of the machine [default: the scenario's]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=64))]
    packages: Option<u16>,
    /// The whole input beside the files
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Runs at the same time [default: the CPUs there are]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    jobs: Option<u16>,
    /// Print JSON, one line per scenario
    #[arg(long)]
    json: bool,
    /// Write a page with charts; one scenario only
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Write a trace for ui.perfetto.dev; one scenario only
    #[arg(long, value_name = "FILE")]
    perfetto: Option<PathBuf>,
}

/// Simulates, and prints what came out.
pub(crate) fn main(args: &SimArgs) -> Result<ExitCode, Failure> {
    if args.scenarios.is_empty() {
        print(&input::list(terminal::width()))?;
        return Ok(ExitCode::SUCCESS);
    }
    let sweep = input::sweep(args)?;
    let reports = sweep::run(&sweep)?;
    for report in &reports {
        let text =
            if args.json { json_line(report) + "\n" } else { report.text(terminal::width()) };
        print(&text)?;
    }
    write_files(args, &reports)?;
    Ok(ExitCode::SUCCESS)
}

fn write_files(args: &SimArgs, reports: &[SimReport]) -> Result<(), Failure> {
    let cannot = |path: &PathBuf, error: std::io::Error| {
        let what = format!("cannot write {}", path.display());
        Failure::failed(Problem::new(what, error.to_string(), "name another file"))
    };
    let [report] = reports else { return Ok(()) };
    if let Some(path) = &args.html {
        fs::write(path, report.html()).map_err(|error| cannot(path, error))?;
    }
    if let Some(path) = &args.perfetto {
        let mut text = Vec::new();
        report.write_perfetto(&mut text).map_err(|error| cannot(path, error))?;
        fs::write(path, text).map_err(|error| cannot(path, error))?;
    }
    Ok(())
}
