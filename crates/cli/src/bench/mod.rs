// SPDX-License-Identifier: MIT OR Apache-2.0
//! `turbolane bench`: microbenchmarks. `locks` sweeps section sizes and strategies, on this machine
//! or in a model.

mod native;
mod timed;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::{Args, Subcommand};
use cpumodel::{PSTATE_FILES, PstateModel};
use hw::{EnergyMeter, Live};
use lockmodel::{Reading, Strategy, break_even_cycles, simulate};
use pstate::{Control, Options, Way};
use report::json_line;
use report::locks::{BreakEven, LockBench, Point, Sweep};
use report::problem::Problem;
use sched::parse::duration_ns;

use self::native::Bench;
use crate::failure::{Failure, print, show};
use crate::table_format::TableFormat;

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

/// Measure critical sections of several sizes under each locking strategy
///
/// Threads only execute critical sections under one queue lock. Waiters spin, sleep, or spin and
/// then sleep; owners stay on their CPU or move to another one. In a model, and with --boost,
/// owners are also boosted, by themselves or by another core; with --boost a lock that measures its
/// sections and chooses among these is measured too (hybrid). The last CPU writes P-states for
/// others, and executes sections that move. To keep it free for this, use fewer threads than CPUs.
/// The report shows the time from one section to the next, the CPU time of all threads in
/// that time, the effective clock of the section, and the energy of the package if it can be read.
/// Section sizes are in core cycles, so a higher clock makes sections shorter.
#[derive(Args)]
#[command(after_long_help = "\
Examples:
  turbolane bench locks                              this machine
  turbolane bench locks --model fx-8120              the AMD machine of TURBO
  turbolane bench locks --boost --html locks.html    with P-states, as a page
  turbolane bench locks --sections 1000,1000000 --threads 4 --json")]
struct LocksArgs {
    /// Simulate a machine instead of measuring this one; repeatable
    #[arg(long, value_name = "ID", value_parser = PSTATE_FILES.map(|(id, _)| id))]
    model: Vec<String>,
    /// Sizes of the section in core cycles
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    #[arg(default_values_t = SIZES)]
    #[arg(value_parser = clap::value_parser!(u64).range(100..=1_000_000_000))]
    sections: Vec<u64>,
    /// Threads that use the lock [default: one per CPU, at least 2; in a model as in the paper]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(2..=1024))]
    threads: Option<u32>,
    /// Measure each size and strategy for at least so long
    #[arg(long, value_name = "DURATION", default_value = "30ms", value_parser = duration_ns)]
    #[arg(conflicts_with = "model")]
    time: u64,
    /// Set P-states of this machine for the strategies that boost; all are restored at the end
    #[arg(long, conflicts_with = "model")]
    boost: bool,
    /// Write a page with charts to a file
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Print the tables in another format
    #[arg(long, value_enum, value_name = "FORMAT", conflicts_with = "json")]
    format: Option<TableFormat>,
}

/// TURBO 7 and 9: 10^3 to 10^8.
const SIZES: [u64; 6] = [1_000, 10_000, 100_000, 1_000_000, 10_000_000, 100_000_000];

/// Measures or simulates, and prints.
pub(crate) fn main(args: &BenchArgs) -> Result<ExitCode, Failure> {
    let What::Locks(args) = &args.what;
    let sweeps = if args.model.is_empty() {
        let cpus = std::thread::available_parallelism().map_or(2, usize::from);
        let threads = args.threads.unwrap_or_else(|| u32::try_from(cpus).unwrap_or(2).max(2));
        vec![measured(args, threads)?]
    } else {
        args.model.iter().map(|id| modelled(id, args)).collect::<Result<_, _>>()?
    };
    let bench = LockBench::new(sweeps);
    if let Some(path) = &args.html {
        fs::write(path, bench.html()).map_err(|error| unwritable(path, &error))?;
    }
    match args.format {
        Some(TableFormat::Csv) => print(&bench.csv())?,
        Some(TableFormat::Markdown) => print(&bench.markdown())?,
        None => {
            show(args.json, || json_line(&bench), |width| bench.text(width))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn unwritable(path: &Path, error: &std::io::Error) -> Failure {
    let what = format!("cannot write {}", path.display());
    Failure::failed(Problem::new(what, error.to_string(), "choose another file"))
}

/// The sweep on this machine, whose P-states are as before afterwards.
fn measured(args: &LocksArgs, threads: u32) -> Result<Sweep, Failure> {
    let energy = EnergyMeter::find(&Live).ok();
    let (energy, least) = (energy.as_ref(), Duration::from_nanos(args.time));
    let bench = |control| Bench { threads, least, control, energy };
    if !args.boost {
        let sweep = bench(None).sweep(&args.sections);
        return Ok(Sweep { pstates: Some("not set: --boost sets them".into()), ..sweep });
    }
    let control = open_control()?;
    let why = control.choice().why.clone();
    let sweep = bench(Some(&control)).sweep(&args.sections);
    match control.restore_all().failed {
        0 => Ok(Sweep { pstates: Some(why), ..sweep }),
        failed => Err(Failure::failed(Problem::new(
            format!("{failed} P-state settings could not be put back"),
            "another program changes them too, or the machine refuses them",
            "the watchdog has tried once more by now; look at cpufreq's limits and governor",
        ))),
    }
}

/// Control of this machine's P-states; on a machine without any, this fails before anything is
/// measured.
fn open_control() -> Result<Arc<Control>, Failure> {
    let what = "cannot set P-states for --boost";
    let next = "leave --boost out, or use --model fx-8120";
    let control = Control::open(&Options::default())
        .map_err(|error| Failure::failed(Problem::new(what, error.to_string(), next)))?;
    match control.choice() {
        choice if choice.way == Way::None => {
            Err(Failure::unsupported(Problem::new(what, choice.why.clone(), next)))
        }
        _ => Ok(Arc::new(control)),
    }
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
            energy_nj: out.and_then(|out| out.energy_nj),
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
        pstates: None,
        points: points.collect(),
        break_evens: Strategy::ALL[1..].iter().map(even).collect(),
    })
}
