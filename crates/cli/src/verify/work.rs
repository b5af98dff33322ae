// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a run is: a command from its start to its end, or some time of a service that runs anyway.

use std::fmt;

use hw::cycles::FamilyCycles;

use super::command::{Command, Metric};
use super::outcome::{Broken, Done};
use super::service::Service;
use crate::interrupt::Interrupt;

/// What is measured in each run.
pub(super) enum Work {
    Command(Command),
    Service(Service),
}

impl Work {
    /// Makes a run.
    pub(super) fn run(
        &self,
        metric: Option<&Metric>,
        cycles: Option<&mut FamilyCycles>,
        interrupt: &Interrupt,
    ) -> Result<Done, Broken> {
        match self {
            Work::Command(command) => command.run(metric, cycles),
            Work::Service(service) => service.run(interrupt),
        }
    }
}

impl fmt::Display for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Work::Command(command) => command.fmt(f),
            Work::Service(service) => service.fmt(f),
        }
    }
}
