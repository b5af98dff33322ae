// SPDX-License-Identifier: MIT OR Apache-2.0
//! `turbolane fleet`: the answers of `advise --json` from many machines in one report.
//!
//! A file has one answer per line, so that the output of many machines may be collected in one
//! file. A machine has the name of its file, and the number of its line if there are several.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use report::advise::Advice;
use report::fleet::Fleet;
use report::json_line;
use report::problem::Problem;

use crate::failure::{Failure, show};
use crate::output_file;

/// Join the advice for many machines: what is at stake, and what to do first
///
/// Reads files that `turbolane advise --json` has printed, on this machine or elsewhere. Changes
/// nothing.
#[derive(Args)]
#[command(after_long_help = "\
Examples:
  for host in web1 web2; do ssh $host turbolane advise --json > $host.json; done
  turbolane fleet web1.json web2.json
  turbolane fleet *.json --html fleet.html --csv fleet.csv

A machine is named after its file, with the line number if a file has several.
Machines come in the order in which to look at them: first where a gain was
predicted (advise --unit, --pid or -- CMD), then where most of the clock is at
stake. MHZ AT STAKE is what the lowest licence level takes from the clock with
all cores active. SERVICE shows what the code of a service can do, not what it
does.")]
pub(crate) struct FleetArgs {
    /// Files of turbolane advise --json
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Also write the machines as CSV
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    /// Also write a page for a browser
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

/// Reads all files, then prints.
pub(crate) fn main(args: &FleetArgs) -> Result<ExitCode, Failure> {
    let mut advices = Vec::new();
    for file in &args.files {
        advices.extend(read(file)?);
    }
    let fleet = Fleet::new(&advices);
    if let Some(path) = &args.csv {
        output_file::write(path, fleet.csv())?;
    }
    if let Some(path) = &args.html {
        output_file::write(path, fleet.html())?;
    }
    show(args.json, || json_line(&fleet), |width| fleet.text(width))?;
    Ok(ExitCode::SUCCESS)
}

/// The answers of a file, each with its machine's name.
fn read(file: &Path) -> Result<Vec<(String, Advice)>, Failure> {
    let refused = |place: String, why: String| {
        let what = format!("cannot use {}{place}", file.display());
        let next = "give files that turbolane advise --json has printed";
        Failure::failed(Problem::new(what, why, next))
    };
    let text =
        fs::read_to_string(file).map_err(|error| refused(String::new(), error.to_string()))?;
    let lines = || text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    let has_several = lines().nth(1).is_some();
    if lines().next().is_none() {
        return Err(refused(String::new(), "it is empty".into()));
    }
    let name = file.with_extension("");
    let one = |(at, line): (usize, &str)| {
        let advice =
            Advice::parse(line).map_err(|why| refused(format!(", line {}", at + 1), why))?;
        let number = if has_several { format!(":{}", at + 1) } else { String::new() };
        Ok((format!("{}{number}", name.display()), advice))
    };
    lines().map(one).collect()
}
