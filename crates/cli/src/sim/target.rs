// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a simulation is of.

use cpumodel::CpuModel;
use sim::program::Workload;
use sim::scenario::Scenario;

/// A scenario on its machines.
pub(crate) struct Target {
    pub scenario: Scenario,
    pub workload: Workload,
    pub models: Vec<CpuModel>,
    pub packages: usize,
}
