// SPDX-License-Identifier: MIT OR Apache-2.0
//! `turbolane probe`: what this CPU does when it executes wide code.
//!
//! Needs no privilege. Binds its own threads while it measures, changes nothing else. A measurement
//! that is cut short (Ctrl-C, the time is up, the CPUs are taken away) prints what is known so far
//! and says that it is partial.

mod output;
#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Args;
use probe::{End, Live, Machine, Noise, Plan, ProbeError, Recording, Simulated, analyse};
use report::json_line;
use report::probe::ProbeReport;
use report::probe::raw;
use report::problem::Problem;
use sched::parse::duration_ns;

use crate::failure::{Failure, show};
use crate::interrupt::Interrupt;
use crate::progress::Progress;

/// How long a quick measurement may take, calibration included.
const QUICK: Duration = Duration::from_millis(9_500);
/// How long a full one may take.
const FULL: Duration = Duration::from_secs(120);
/// Rounds of a simulated machine, whose time costs nothing.
const SIMULATED_ROUNDS: usize = 24;

/// Measure what this CPU does when it executes wide code
///
/// Executes blocks of each instruction class between scalar code and measures the core clock with a
/// resolution of 1 us, by timing chains of dependent instructions with the time stamp counter.
/// Reports the clock in the block, the throttle and the halts at its start, and when the clock
/// recovers. Needs no root. Repetitions during which other cores changed the clock are discarded.
#[derive(Args)]
#[command(after_long_help = AFTER_HELP)]
pub(crate) struct ProbeArgs {
    /// Take at most 10 seconds: two densities (dense and one in 80), one active CPU
    #[arg(long)]
    quick: bool,
    /// Longest time to measure; ends earlier once the intervals are narrow enough [default: 120s]
    #[arg(long, value_name = "DURATION", value_parser = duration_ns, conflicts_with = "quick")]
    time: Option<u64>,
    /// How many CPUs to keep active; several counts [default: 1 and all allowed; with --quick 1]
    #[arg(long, value_name = "N,...", value_delimiter = ',')]
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    active: Vec<u32>,
    /// Only these kernels, e.g. 512-fma; scalar is always measured
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    #[arg(value_parser = kernel)]
    kernels: Vec<String>,
    /// Random seed for the order of the repetitions
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Measure a simulated CPU of this model, with the noise of a shared machine
    ///
    /// A name from `turbolane sim`, or a CPU file. Shows what the probe would find on this CPU.
    #[arg(long, value_name = "CPU", conflicts_with_all = ["replay", "time"])]
    simulate: Option<String>,
    /// Print the report of a recording instead of measuring
    #[arg(long, value_name = "FILE", conflicts_with_all = ["quick", "time", "active", "kernels"])]
    replay: Option<PathBuf>,
    /// Write the raw samples to a file, for --replay
    #[arg(long, value_name = "FILE", conflicts_with = "replay")]
    raw: Option<PathBuf>,
    /// Write a page with charts of the clock over time to a file
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Write a CPU file, for `turbolane sim --machine`
    #[arg(long, value_name = "FILE")]
    machine_file: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

const AFTER_HELP: &str = "\
Columns:
  ONE IN      N: one in N instructions is the kernel's, the others are scalar
  ACTIVE      CPUs kept busy; other cores of the package may also be busy
  N           quiet repetitions: those that began in the fastest clock bin that
              holds a quarter of all repetitions
  BEFORE, AFTER  clock of scalar code before and right after the block
  PER CYCLE   instructions of the kernel per cycle in the steady state
  THROTTLE, AT   duration of the slow start, and its rate relative to steady state
  HALT        time that the core halted: at the start, and when the clock rises
  COST        extra time of the start, compared with the steady state
  RELAX, SINCE   time until the clock recovers, and the wide instruction from
              which it is counted: the last one or the first
  BREAK-EVEN  time after which the higher clock has paid for both changes

A list below the tables shows what the probe could not see. In a virtual machine,
the figures are those of the machine if no other load runs on the host; otherwise
they include the effect of that load.

Exit codes: 0 measured (perhaps partially), 2 failed, 77 this machine cannot be
measured: no invariant counter, no wide instructions, or never quiet.

Examples:
  turbolane probe --quick
  turbolane probe --machine-file here.toml && turbolane sim nginx-x265 --machine here.toml
  turbolane probe --raw samples.jsonl --html clock.html
  turbolane probe --replay samples.jsonl --json
  turbolane probe --simulate xeon-gold-6130";

pub(crate) fn main(args: &ProbeArgs) -> Result<ExitCode, Failure> {
    let report = match &args.replay {
        Some(file) => {
            let (header, traces) = output::read(file)?;
            analyse(&header, &traces)
        }
        None => measure(args)?,
    };
    show(args.json, || json_line(&report), |width| report.text(width))?;
    output::write_files(args, &report)?;
    if report.rows.iter().all(|row| row.steady_khz.is_none()) {
        return Err(Failure::unsupported(Problem::new(
            "there is no result for this CPU",
            format!("only {} of {} repetitions were quiet", report.quiet, report.repetitions),
            "measure when the machine is less busy, or longer with --time",
        )));
    }
    Ok(ExitCode::SUCCESS)
}

/// A quick measurement of this machine, for `doctor --probe`.
pub(crate) fn quick() -> Result<ProbeReport, Failure> {
    let mut machine = Live::new(&hw::Live).map_err(failure)?;
    let plan = Plan::quick(&machine, &[1], 1);
    let started = Instant::now();
    let recording = probe::run(&mut machine, &plan, &mut |_, _| started.elapsed() < QUICK);
    match recording.end {
        End::Failed(error) => Err(failure(error)),
        _ => Ok(analyse(&recording.header, &recording.traces)),
    }
}

fn kernel(name: &str) -> Result<String, String> {
    if probe::Kernel::named(name).is_some() {
        return Ok(name.to_string());
    }
    let names: Vec<&str> = probe::KERNELS.iter().map(|kernel| kernel.name).collect();
    Err(format!("there is no such kernel; there are {}", names.join(", ")))
}

/// Measures on this machine or a simulated one, and writes the raw samples.
fn measure(args: &ProbeArgs) -> Result<ProbeReport, Failure> {
    let started = Instant::now();
    let mut machine: Box<dyn Machine> = match &args.simulate {
        Some(id) => {
            let model = crate::sim::model(id)?;
            Box::new(Simulated::new(&model, Noise::SHARED, args.seed))
        }
        None => Box::new(Live::new(&hw::Live).map_err(failure)?),
    };
    let plan = plan(args, machine.as_ref())?;
    let limit = match (&args.simulate, args.quick, args.time) {
        (Some(_), ..) => None,
        (None, true, _) => Some(QUICK),
        (None, false, time) => Some(time.map_or(FULL, Duration::from_nanos)),
    };
    let interrupt = Interrupt::watch();
    let mut progress = Progress::new();
    let mut recording = probe::run(machine.as_mut(), &plan, &mut |done, open| {
        progress.show(|| {
            let (known, all) = (plan.cells.len() - open, plan.cells.len());
            let seconds = started.elapsed().as_secs_f64();
            format!("{seconds:.0} s: {done} repetitions, {known} of {all} cells known")
        });
        !interrupt.is_seen() && limit.is_none_or(|limit| started.elapsed() < limit)
    });
    drop(progress);
    drop(machine);
    recording.header.partial = partial(&recording, interrupt.is_seen(), limit);
    if let Some(file) = &args.raw {
        output::write_raw(file, &recording)?;
    }
    let report = analyse(&recording.header, &recording.traces);
    match recording.end {
        End::Failed(error) => {
            // What is known comes before what went wrong.
            show(args.json, || json_line(&report), |width| report.text(width))?;
            Err(failure(error))
        }
        _ => Ok(report),
    }
}

/// The cells, as the arguments want them.
fn plan(args: &ProbeArgs, machine: &dyn Machine) -> Result<Plan, Failure> {
    let (_, most) = machine.cells();
    if let Some(active) = args.active.iter().find(|active| **active > most) {
        return Err(Failure::failed(Problem::new(
            format!("{active} CPUs cannot be kept active"),
            format!("this process may use {most}"),
            "give a smaller number, or more CPUs to the process",
        )));
    }
    let mut active = match (args.active.is_empty(), args.quick) {
        (false, _) => args.active.clone(),
        (true, true) => vec![1],
        (true, false) => vec![1, most],
    };
    active.sort_unstable();
    active.dedup();
    let mut plan = match args.quick {
        true => Plan::quick(machine, &active, args.seed),
        false => Plan::full(machine, &active, args.seed),
    };
    if args.simulate.is_some() {
        plan.max_rounds = SIMULATED_ROUNDS;
    }
    let wide = |name: &str| {
        probe::Kernel::named(name).is_some_and(|kernel| kernel.class != cpumodel::InsnClass::Scalar)
    };
    if !plan.cells.iter().any(|cell| wide(&cell.kernel)) {
        return Err(Failure::unsupported(Problem::new(
            "there is nothing to measure",
            "this CPU has no AVX2, AVX-512 or AMX, or the kernel keeps them off",
            "wide code cannot lower this CPU's clock; nothing needs to be done",
        )));
    }
    if !args.kernels.is_empty() {
        let wanted = |name: &String| name == "scalar" || args.kernels.contains(name);
        if let Some(missing) =
            args.kernels.iter().find(|name| !plan.cells.iter().any(|cell| cell.kernel == **name))
        {
            let skipped = machine.header(args.seed).skipped;
            let why = skipped.iter().find(|one| one.what == *missing);
            return Err(Failure::unsupported(Problem::new(
                format!("this CPU cannot execute {missing}"),
                why.map_or("it has no such instructions", |one| one.why.as_str()),
                "leave it out of --kernels",
            )));
        }
        plan.cells.retain(|cell| wanted(&cell.kernel));
    }
    Ok(plan)
}

fn partial(recording: &Recording, stopped: bool, limit: Option<Duration>) -> Option<String> {
    match &recording.end {
        End::Complete => None,
        End::Stopped if stopped => Some("interrupted by a signal".into()),
        End::Stopped => Some(match limit {
            Some(limit) => {
                format!(
                    "the limit of {:.0} s was reached before every interval was narrow",
                    limit.as_secs_f64()
                )
            }
            None => "the rounds were used up before every interval was narrow".into(),
        }),
        End::Failed(error) => Some(error.to_string()),
    }
}

fn failure(error: ProbeError) -> Failure {
    let what = error.to_string();
    match error {
        ProbeError::NoInvariantTsc => Failure::unsupported(Problem::new(
            "this machine cannot be measured",
            what,
            "measure on a machine whose CPUID says so (flag nonstop_tsc in /proc/cpuinfo)",
        )),
        ProbeError::MeterDisagrees { .. } => Failure::unsupported(Problem::new(
            "the clock cannot be measured here",
            what,
            "measure when the machine is less busy; an emulator has no clock to be measured",
        )),
        ProbeError::CpusChanged(_) => Failure::failed(Problem::new(
            "the measurement cannot go on",
            what,
            "keep the process's CPUs (taskset, cgroup) as they are while it measures",
        )),
        ProbeError::NoKernel(_) | ProbeError::System { .. } => Failure::failed(Problem::new(
            "the measurement cannot go on",
            what,
            "see what restricts the process, or report it as a bug",
        )),
    }
}
