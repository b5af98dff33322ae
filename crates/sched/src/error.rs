// SPDX-License-Identifier: MIT OR Apache-2.0
//! Why a run cannot start or go on. Each says what, why and what to do next; the kind decides
//! the exit code.

use std::fmt::Display;

use report::problem::Problem;
use thiserror::Error;

/// What went wrong.
#[derive(Debug, Error)]
pub enum Error {
    /// The request cannot be met as it was made. Exit code 2.
    #[error("{0}")]
    BadInput(Problem),
    /// This machine, kernel or user cannot do it. Exit code 77.
    #[error("{0}")]
    Unsupported(Problem),
    /// It should have worked. Exit code 2.
    #[error("{0}")]
    Failed(Problem),
}

impl Error {
    /// The process exit code for it, as in docs/commands.md.
    pub fn exit_code(&self) -> u8 {
        match self {
            Error::Unsupported(_) => 77,
            Error::BadInput(_) | Error::Failed(_) => 2,
        }
    }

    /// What, why and what next.
    pub fn problem(&self) -> &Problem {
        match self {
            Error::BadInput(problem) | Error::Unsupported(problem) | Error::Failed(problem) => {
                problem
            }
        }
    }

    /// The same, to be shown.
    pub fn into_problem(self) -> Problem {
        match self {
            Error::BadInput(problem) | Error::Unsupported(problem) | Error::Failed(problem) => {
                problem
            }
        }
    }

    /// A failure of an operation that has no reason to fail, so that no one knows a remedy.
    pub(crate) fn failed(what: impl Into<String>, cause: impl Display) -> Self {
        let next = "see dmesg, and report this with the output of turbolane doctor";
        Error::Failed(Problem::new(what, cause.to_string(), next))
    }
}

/// Result of this crate.
pub type Result<T> = std::result::Result<T, Error>;
