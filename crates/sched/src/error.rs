// SPDX-License-Identifier: MIT OR Apache-2.0
//! Why a run cannot start or go on. Each says what, why and what to do next; the kind decides
//! the exit code.

use thiserror::Error;

/// What went wrong.
#[derive(Debug, Error)]
pub enum Error {
    /// The request cannot be met as it was made. Exit code 2.
    #[error("{0}")]
    BadInput(String),
    /// This machine, kernel or user cannot do it. Exit code 77.
    #[error("{0}")]
    Unsupported(String),
    /// It should have worked. Exit code 2.
    #[error("{0}")]
    Failed(String),
}

impl Error {
    /// The process exit code for it, as in README.
    pub fn exit_code(&self) -> u8 {
        match self {
            Error::Unsupported(_) => 77,
            Error::BadInput(_) | Error::Failed(_) => 2,
        }
    }

    /// A failure of an operation that has no reason to fail.
    pub(crate) fn failed(what: &str, cause: impl std::fmt::Display) -> Self {
        Error::Failed(format!("{what}: {cause}"))
    }
}

/// Result of this crate.
pub type Result<T> = std::result::Result<T, Error>;
