// SPDX-License-Identifier: MIT OR Apache-2.0
//! What became of a run.

use crate::failure::Failure;

/// What a run gave.
pub(super) struct Done {
    /// From its start to its end, without what is done here with its output.
    pub(super) time_ns: u64,
    /// CPU time of the command, and of a `turbolane run` above it in that time; of the service.
    pub(super) cpu_time_ns: u64,
    /// Time to load and unload the scheduler; `None` if none was loaded.
    pub(super) around_ns: Option<u64>,
    /// The mean clock of the run, if cycles are counted.
    pub(super) clock_khz: Option<f64>,
    pub(super) metric: Option<f64>,
}

/// Why there is nothing.
pub(super) enum Broken {
    /// No run of it can work.
    NotStarted(Failure),
    /// This run did not; another may.
    Run { why: String, next: &'static str },
}
