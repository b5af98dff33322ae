// SPDX-License-Identifier: MIT OR Apache-2.0
//! Why a recording cannot be read. A file that merely ends early is none of these: see
//! [`Ending::Partial`](crate::Ending).

use std::io;

use report::problem::Problem;

/// Why a recording cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The file cannot be read or written.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// It does not begin as recordings do.
    #[error("it does not begin like a recording of turbolane")]
    NotATrace,
    /// It was written by another version of the format.
    #[error("its format has version {found}, and this program reads version {known}")]
    Version {
        /// Its version.
        found: u32,
        /// The one that can be read.
        known: u32,
    },
    /// Bytes have changed since they were written.
    #[error("it is damaged at byte {offset}: {what}")]
    Corrupt {
        /// Where the block begins.
        offset: u64,
        /// What is wrong with it.
        what: &'static str,
    },
}

impl TraceError {
    /// The whole of it, when `what` is not possible for it.
    pub fn problem(&self, what: impl Into<String>) -> Problem {
        Problem::new(what, self.to_string(), self.next())
    }

    fn next(&self) -> &'static str {
        match self {
            TraceError::Io(_) => "check the path and its rights",
            TraceError::NotATrace => "name a file that turbolane record wrote",
            TraceError::Version { .. } => "read it with the version of turbolane that wrote it",
            TraceError::Corrupt { .. } => {
                "use an undamaged copy; the part before that byte can be cut off and read"
            }
        }
    }
}
