// SPDX-License-Identifier: MIT OR Apache-2.0
//! `turbolane trace`: what a recording says.

use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use report::{Document, json_line};
use trace::follow::{Follower, Visit};
use trace::summary::Summary;
use trace::{Ending, Info, Reader, TraceError};

use crate::failure::{Failure, print};
use crate::terminal;

/// Show what a recording of `turbolane record` says
///
/// Who ran how long, how much of it inside of marked functions, how long tasks waited for a CPU after they
/// were woken, and how many events were lost. A file that is still being written can be read: it is
/// called partial.
#[derive(Args)]
#[command(after_long_help = "\
Examples:
  turbolane trace turbolane.trace           the summary
  turbolane trace turbolane.trace --json    the same for a program")]
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
}

/// Reads a recording and says what it says.
pub(crate) fn main(args: &TraceArgs) -> Result<ExitCode, Failure> {
    let mut summary = Summary::default();
    let (info, follower, ending) = read(&args.file, &mut summary)?;
    let report = summary.finish(&info, &follower, ending);
    let text = if args.json {
        json_line(&Document::new(report)) + "\n"
    } else {
        report.text(terminal::width(), args.top)
    };
    print(&text)?;
    Ok(ExitCode::SUCCESS)
}

/// Shows a whole recording to `to`.
fn read(path: &Path, to: &mut dyn Visit) -> Result<(Info, Follower, Ending), Failure> {
    read_all(path, to).map_err(|error| {
        Failure::failed(error.problem(format!("cannot read {}", path.display())))
    })
}

fn read_all(path: &Path, to: &mut dyn Visit) -> Result<(Info, Follower, Ending), TraceError> {
    let mut reader = Reader::new(BufReader::new(File::open(path)?))?;
    let mut follower = Follower::new(reader.info());
    while let Some(event) = reader.next_event()? {
        follower.take(&event, to);
    }
    let ending = reader.ending().expect("known behind the last event");
    let end_ns = match ending {
        Ending::Complete(end) => end.at_ns,
        Ending::Partial { .. } => follower.now_ns(),
    };
    follower.finish(end_ns, to);
    Ok((reader.info().clone(), follower, ending))
}
