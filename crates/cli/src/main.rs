// SPDX-License-Identifier: MIT OR Apache-2.0
//! The `turbolane` command: one module per subcommand, and what they share.
//!
//! A subcommand is a clap `Args` struct and a function that returns an exit code or a
//! [`failure::Failure`]; printing the failure and leaving with its code happens here alone.

#![forbid(unsafe_op_in_unsafe_fn)]

mod advise;
mod bench;
mod client;
mod command;
mod completions;
mod ctl;
mod doctor;
#[cfg(test)]
mod documents;
mod failure;
mod fleet;
mod interrupt;
mod man;
mod mark_files;
mod output_file;
mod paint;
mod probe;
mod profile;
mod progress;
mod record;
#[cfg(test)]
mod reference;
mod replacement;
mod run;
mod running;
mod sample;
mod scan;
mod service;
mod sim;
mod stats;
mod table_format;
mod target;
mod terminal;
mod top;
mod trace;
mod usage;
mod verify;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::failure::Failure;

/// Run wide code (heavy AVX2, AVX-512, AMX) on CPUs of its own, so that all other code keeps its
/// turbo
///
/// Intel CPUs lower their frequency for wide code and keep it low for a while after the last wide
/// instruction. This also slows the code that runs next on the core, or on its SMT sibling.
/// Turbolane runs wide code on a few CPUs and everything else on the others.
#[derive(Parser)]
#[command(name = "turbolane", version, after_long_help = EXIT_CODES)]
#[command(max_term_width = 100, disable_help_subcommand = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

const EXIT_CODES: &str = "\
Exit codes:
  0   done, nothing found
  1   done, something found (doctor: the scheduler cannot run here; scan, sample: wide
      code; status: no lane runs; trace --check: a broken rule; verify: worse)
  2   failed, or the input is invalid
  77  this machine, kernel or user cannot answer the question
turbolane run -- CMD and record -- CMD exit with the exit code of CMD, or with 128 + N if
signal N ended it.";

#[derive(Subcommand)]
enum Command {
    Doctor(doctor::DoctorArgs),
    Advise(advise::AdviseArgs),
    Fleet(fleet::FleetArgs),
    Scan(scan::ScanArgs),
    Sample(sample::SampleArgs),
    Probe(probe::ProbeArgs),
    Record(record::RecordArgs),
    Trace(trace::TraceArgs),
    // boxed, because they are by far the largest
    Run(Box<run::RunArgs>),
    Enable(Box<service::EnableArgs>),
    Disable(service::DisableArgs),
    Status(service::StatusArgs),
    Ctl(ctl::CtlArgs),
    Stats(stats::StatsArgs),
    Top(top::TopArgs),
    Sim(sim::SimArgs),
    Profile(profile::ProfileArgs),
    Verify(Box<verify::VerifyArgs>),
    Bench(bench::BenchArgs),
    Completions(completions::CompletionsArgs),
    Man(man::ManArgs),
}

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return usage::report(&error),
    };
    let outcome = match cli.command {
        Command::Doctor(args) => doctor::main(&args),
        Command::Advise(args) => advise::main(&args),
        Command::Fleet(args) => fleet::main(&args),
        Command::Scan(args) => scan::main(&args),
        Command::Sample(args) => sample::main(&args),
        Command::Probe(args) => probe::main(&args),
        Command::Record(args) => record::main(args),
        Command::Trace(args) => trace::main(&args),
        Command::Run(args) => run::main(*args),
        Command::Enable(args) => service::enable(&args),
        Command::Disable(args) => service::disable(&args),
        Command::Status(args) => service::status(&args),
        Command::Ctl(args) => ctl::main(args),
        Command::Stats(args) => stats::main(&args),
        Command::Top(args) => top::main(args),
        Command::Sim(args) => sim::main(&args),
        Command::Profile(args) => profile::main(&args),
        Command::Verify(args) => verify::main(&args),
        Command::Bench(args) => bench::main(&args),
        Command::Completions(args) => completions::main(&args),
        Command::Man(args) => man::main(&args),
    };
    outcome.unwrap_or_else(|failure: Failure| failure.report())
}
