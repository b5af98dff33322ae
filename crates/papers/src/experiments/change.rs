// SPDX-License-Identifier: MIT OR Apache-2.0
//! What an experiment may change, and an experiment that changes it (`what_if.rs` has them).

use machine::Platform;
use sim::program::Workload;
use sim::sched::prototype::PrototypeConfig;

/// What the slides leave open, and a changed experiment changes.
#[derive(Clone, Copy, Debug)]
pub(super) struct BoostSetting {
    /// Without the boost, threads filled module after module.
    pub crowded_before: bool,
    /// The energy is that of the cores, without the rest of the package.
    pub cores_only: bool,
}

/// What the papers leave open, and a changed experiment changes.
#[derive(Clone, Copy, Debug)]
pub(super) struct ClockSetting {
    /// What a change by software costs beyond one of the hardware.
    pub software_extra_ns: u64,
}

/// What is changed.
#[derive(Debug)]
pub(super) enum Change {
    /// Something about the machine.
    Platform(fn(&mut Platform)),
    /// Something about the papers' prototype.
    Prototype(fn(&mut PrototypeConfig)),
    /// Something about the load.
    Workload(fn(&mut Workload)),
    /// Something about a change of the clock.
    Clock(fn(&mut ClockSetting)),
    /// Something about what TURBO boosts.
    Boost(fn(&mut BoostSetting)),
}

/// One experiment.
#[derive(Debug)]
pub(super) struct WhatIf {
    /// What is changed, in words that follow "if".
    pub says: &'static str,
    pub change: Change,
    /// Rows and rankings that it explains.
    pub explains: &'static [&'static str],
}
