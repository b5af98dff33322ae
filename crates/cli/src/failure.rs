// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a subcommand says: a document on standard output; where it fails, a problem and an exit
//! code.

use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

use report::problem::Problem;

use crate::terminal;

/// The scheduler can not run here, or something else was found.
pub(crate) const FOUND: u8 = 1;
const FAILED: u8 = 2;
/// This machine, kernel or user cannot answer.
pub(crate) const UNSUPPORTED: u8 = 77;

/// A problem that ends the program.
#[derive(Debug)]
pub(crate) struct Failure {
    problem: Problem,
    code: u8,
}

impl Failure {
    /// It should have worked, or the input makes no sense.
    pub(crate) fn failed(problem: Problem) -> Self {
        Failure { problem, code: FAILED }
    }

    /// This machine, kernel or user cannot do it.
    pub(crate) fn unsupported(problem: Problem) -> Self {
        Failure { problem, code: UNSUPPORTED }
    }

    /// Why it failed, without what and what next.
    pub(crate) fn why(&self) -> &str {
        &self.problem.why
    }

    /// Prints the problem and returns the exit code.
    pub(crate) fn report(&self) -> ExitCode {
        let text = self.problem.text(terminal::width());
        // Nothing is left to do about a standard error that is closed.
        _ = io::stderr().write_all(text.as_bytes());
        ExitCode::from(self.code)
    }
}

impl From<sched::error::Error> for Failure {
    fn from(error: sched::error::Error) -> Self {
        Failure { code: error.exit_code(), problem: error.into_problem() }
    }
}

/// A file that the user has named cannot be written.
pub(crate) fn unwritable(path: &Path, error: &io::Error) -> Failure {
    let what = format!("cannot write {}", path.display());
    Failure::failed(Problem::new(what, error.to_string(), "name another file"))
}

/// A line about what goes on. Standard output belongs to a command; nothing may be reading standard
/// error.
pub(crate) fn tell(text: &str) {
    _ = writeln!(io::stderr(), "turbolane: {text}");
}

/// Prints to standard output; false if its reader has gone away (`| head`), which is no error.
fn print_to_reader(text: &str) -> Result<bool, Failure> {
    match io::stdout().write_all(text.as_bytes()).and_then(|()| io::stdout().flush()) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        Err(error) => {
            let what = "cannot write the output";
            Err(Failure::failed(Problem::new(what, error.to_string(), "check where it goes")))
        }
    }
}

/// Prints to standard output, whether or not anyone reads it.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    print_to_reader(text).map(drop)
}

/// Prints a document, as a line of JSON or as text of a terminal's width; false if its reader has
/// gone away.
pub(crate) fn show(
    is_json: bool,
    json: impl FnOnce() -> String,
    text: impl FnOnce(usize) -> String,
) -> Result<bool, Failure> {
    print_to_reader(&if is_json { json() + "\n" } else { text(terminal::width()) })
}
