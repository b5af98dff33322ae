// SPDX-License-Identifier: MIT OR Apache-2.0
//! The probe's files: raw samples, the page, the CPU file.

use std::fs;
use std::path::Path;

use probe::Recording;
use report::probe::{ProbeReport, machine_file};
use report::problem::Problem;

use super::{ProbeArgs, raw};
use crate::failure::Failure;
use crate::output_file::write;

/// A recording.
pub(super) fn read(file: &Path) -> Result<(raw::Header, Vec<raw::Trace>), Failure> {
    let unusable = |why: String| {
        Failure::failed(Problem::new(
            format!("cannot replay {}", file.display()),
            why,
            "give a file that turbolane probe --raw wrote",
        ))
    };
    let text = fs::read_to_string(file).map_err(|error| unusable(error.to_string()))?;
    raw::parse(&text).map_err(unusable)
}

/// Writes a recording.
pub(super) fn write_raw(file: &Path, recording: &Recording) -> Result<(), Failure> {
    let mut text = report::json_line(&recording.header) + "\n";
    for trace in &recording.traces {
        text += &report::json_line(trace);
        text.push('\n');
    }
    write(file, &text)
}

/// The files that the arguments ask for.
pub(super) fn write_files(args: &ProbeArgs, report: &ProbeReport) -> Result<(), Failure> {
    if let Some(file) = &args.html {
        write(file, report.html())?;
    }
    if let Some(file) = &args.machine_file {
        let text = machine_file(report).map_err(|why| {
            Failure::unsupported(Problem::new(
                "there is no CPU file to write",
                why,
                "measure longer, or when the machine is less busy",
            ))
        })?;
        write(file, &text)?;
    }
    Ok(())
}
