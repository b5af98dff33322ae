// SPDX-License-Identifier: MIT OR Apache-2.0
//! `turbolane doctor`: what this machine can and cannot do for Turbolane, and why.
//!
//! Reading only, no root. Every check says what was seen; one that is not fine also says why it
//! matters and what to do. The checks are pure functions of [`Facts`], so each can be tried on
//! recorded machines.

mod checks;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use hw::plr::Plr;
use hw::{Facts, Live, Recorded, Source};
use report::doctor::{Check, Doctor};
use report::json_line;
use report::problem::Problem;
use sched::obstacles;

use crate::failure::{FOUND, Failure};
use crate::paint::{self, ColorArgs};
use crate::sim::input;
pub(crate) use checks::effects::FALL_KHZ;

/// Report what this machine can and cannot do, and why
///
/// Examines the CPU, the kernel, the counters and the frequency control. Changes nothing and
/// needs no root. Exits with 0 if `turbolane run` can use its sched_ext scheduler here (as root),
/// with 1 if not.
#[derive(Args)]
#[command(after_long_help = "\
Examples:
  turbolane doctor                  this machine
  turbolane doctor --json           the same for a program
  turbolane doctor --probe          also measure the CPU for ten seconds
  turbolane doctor --record here    write a recording, to attach to a question
  turbolane doctor --machine here   the machine that was recorded
  turbolane doctor --machine probed.toml
                                    this machine, with the results of turbolane probe --machine-file")]
pub(crate) struct DoctorArgs {
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Examine a recorded machine instead of this one, or report what a CPU file says
    ///
    /// A folder is a recording. A file is a CPU file that turbolane probe wrote on this machine:
    /// the report then shows which effects the CPU has, and which tools can gain something.
    #[arg(long, value_name = "DIR|FILE")]
    machine: Option<PathBuf>,
    /// Write a recording of the examined facts to a folder
    ///
    /// Two text files with the contents of some files in /sys and /proc and the results of CPUID.
    /// They contain no names of users, hosts or programs.
    #[arg(long, value_name = "DIR")]
    record: Option<PathBuf>,
    /// Also measure for ten seconds which effects this CPU has
    #[arg(long, conflicts_with = "machine")]
    probe: bool,
    #[command(flatten)]
    color: ColorArgs,
}

/// Looks, and prints what was found.
pub(crate) fn main(args: &DoctorArgs) -> Result<ExitCode, Failure> {
    let (file, recording) = match &args.machine {
        Some(path) if path.is_file() => (Some(path), None),
        path => (None, path.as_ref()),
    };
    let model = file.map(|path| input::model(&path.to_string_lossy())).transpose()?;
    let source = open(recording)?;
    let facts = read_facts(source.as_ref())?;
    if let Some(dir) = &args.record {
        let recording = hw::record(source.as_ref(), |source| {
            _ = (Facts::read(source), Plr::read(source));
        });
        recording.save(dir).map_err(|error| {
            let what = format!("cannot write the recording to {}", dir.display());
            Failure::failed(Problem::new(what, error.to_string(), "name another folder"))
        })?;
    }
    let mut report = examine(&facts);
    let plr = Plr::read(source.as_ref());
    checks::add_throttle_reasons(&mut report.sections, &facts, &plr);
    if recording.is_none() {
        report.sections.push(checks::here(&facts));
        if obstacles::of_scx(&facts.kernel).is_none() {
            report.sections.push(checks::control_groups());
        }
    }
    if let Some(model) = &model {
        report.sections.push(checks::of_file(model, &facts));
    }
    if args.probe {
        report.sections.push(checks::measured(&crate::probe::quick()?));
    }
    args.color.show(
        args.json,
        || json_line(&report),
        |width| report.text(width),
        &paint::CHECKS,
    )?;
    let can_run = obstacles::of_scx(&facts.kernel).is_none();
    Ok(if can_run { ExitCode::SUCCESS } else { ExitCode::from(FOUND) })
}

/// This machine, or the recorded one.
pub(crate) fn open(recording: Option<&PathBuf>) -> Result<Box<dyn Source>, Failure> {
    let Some(dir) = recording else { return Ok(Box::new(Live)) };
    let recorded = Recorded::open(dir).map_err(|error| {
        let what = format!("cannot read the recorded machine {}", dir.display());
        let next = "name a folder that turbolane doctor --record wrote";
        Failure::failed(Problem::new(what, error.to_string(), next))
    })?;
    Ok(Box::new(recorded))
}

/// The facts of a machine.
pub(crate) fn read_facts(source: &dyn Source) -> Result<Facts, Failure> {
    Facts::read(source).map_err(|error| obstacles::of_topology(&error).into())
}

/// The checks of a machine that have these names.
pub(crate) fn selected(facts: &Facts, ids: &[&str]) -> Vec<Check> {
    let all = checks::sections(facts).into_iter().flat_map(|section| section.checks);
    all.filter(|check| ids.contains(&check.id.as_str())).collect()
}

fn examine(facts: &Facts) -> Doctor {
    Doctor::new(headline(facts), checks::sections(facts))
}

fn headline(facts: &Facts) -> String {
    let cpu = &facts.cpu;
    let name = if cpu.name.is_empty() { cpu.vendor_id.as_str() } else { cpu.name.as_str() };
    let topology = &facts.topology;
    format!(
        "{name} (family {} model {} stepping {}), {}, {}, {}, Linux {}",
        cpu.family,
        cpu.model,
        cpu.stepping,
        count(topology.packages().len(), "package"),
        count(topology.cores().len(), "core"),
        count(topology.online().len(), "CPU"),
        facts.kernel.release,
    )
}

/// A number and its noun, in the plural where it must be.
pub(crate) fn count(number: usize, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}
