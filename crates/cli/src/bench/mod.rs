// SPDX-License-Identifier: MIT OR Apache-2.0
//! `turbolane bench`: microbenchmarks. `locks` sweeps section sizes and strategies, on this machine or in a model.

mod native;

use std::process::ExitCode;

use clap::{Args, Subcommand};
use lockmodel::{Reading, Strategy, break_even_cycles, simulate};
use machine::{PSTATE_FILES, PstateModel};
use report::json_line;
use report::locks::{BreakEven, LockBench, Point, Sweep};
use report::problem::Problem;

use crate::failure::{Failure, print};
use crate::terminal;

/// Measure what locks cost, here or in a model
#[derive(Args)]
pub(crate) struct BenchArgs {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    Locks(LocksArgs),
}

/// Sweep the size of a critical section under each strategy of its lock
///
/// Threads do nothing but critical sections under one queue lock. Waiters spin, sleep, or spin and then
/// sleep; owners stay, or move to another CPU; in a model owners are boosted too, by themselves or by another
/// core. Printed are the time from one section to the next, the CPU time of all threads for it, and
/// the clock that the section effectively ran at. Sections are counted in core cycles, so a higher clock makes
/// them shorter.
#[derive(Args)]
#[command(after_long_help = "\
Examples:
  turbolane bench locks                              this machine
  turbolane bench locks --model fx-8120              the AMD machine of TURBO
  turbolane bench locks --sections 1000,1000000 --threads 4 --json")]
struct LocksArgs {
    /// Simulate a machine instead of measuring this one; may be repeated
    #[arg(long, value_name = "ID", value_parser = PSTATE_FILES.map(|(id, _)| id))]
    model: Vec<String>,
    /// Sizes of the section, core cycles
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    #[arg(default_values_t = SIZES, value_parser = clap::value_parser!(u64).range(100..=1_000_000_000))]
    sections: Vec<u64>,
    /// Threads that want the lock [default: one per CPU, at least 2; in a model as in the paper]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(2..=1024))]
    threads: Option<u32>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// TURBO 7 and 9: 10^3 to 10^8.
const SIZES: [u64; 6] = [1_000, 10_000, 100_000, 1_000_000, 10_000_000, 100_000_000];

/// Measures or simulates, and prints.
pub(crate) fn main(args: &BenchArgs) -> Result<ExitCode, Failure> {
    let What::Locks(args) = &args.what;
    let sweeps = if args.model.is_empty() {
        let cpus = std::thread::available_parallelism().map_or(2, usize::from);
        let threads = args.threads.unwrap_or_else(|| u32::try_from(cpus).unwrap_or(2).max(2));
        vec![native::sweep(&args.sections, threads)]
    } else {
        args.model.iter().map(|id| modelled(id, args)).collect::<Result<_, _>>()?
    };
    let bench = LockBench::new(sweeps);
    let text = match args.json {
        true => json_line(&bench) + "\n",
        false => bench.text(terminal::width()),
    };
    print(&text)?;
    Ok(ExitCode::SUCCESS)
}

fn modelled(id: &str, args: &LocksArgs) -> Result<Sweep, Failure> {
    let broken = |why: String| {
        Failure::failed(Problem::new(format!("cannot use the model {id}"), why, "report a bug"))
    };
    let model = PstateModel::built_in(id).ok_or_else(|| broken("it is not built in".into()))?;
    let model = model.map_err(|error| broken(error.to_string()))?;
    let threads = args.threads.unwrap_or(u32::try_from(model.threads.value).unwrap_or(2));
    let point = |cycles: u64, (strategy, name): (Strategy, &str)| {
        let out = simulate(&model, strategy, cycles as f64, threads as usize, Reading::default());
        Point {
            section_cycles: cycles,
            strategy: name.into(),
            sections: None,
            time_ns: out.map(|out| out.period_ns),
            cpu_time_ns: out.map(|out| out.cpu_ns),
            effective_khz: out.map(|out| out.effective_khz as u64),
            energy_nj: None,
        }
    };
    let points = args.sections.iter();
    let points = points.flat_map(|&cycles| Strategy::ALL.map(|strategy| point(cycles, strategy)));
    let even = |(strategy, name): &(Strategy, &str)| BreakEven {
        strategy: (*name).into(),
        section_cycles: break_even_cycles(&model, *strategy, threads as usize, Reading::default()),
    };
    Ok(Sweep {
        model: Some(id.into()),
        threads,
        points: points.collect(),
        break_evens: Strategy::ALL[1..].iter().map(even).collect(),
    })
}
