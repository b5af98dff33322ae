// SPDX-License-Identifier: MIT OR Apache-2.0
//! What an experiment may change, and what is simulated instead of what a paper did (`what_if.rs`
//! and `free.rs` have the changes).

use cpumodel::{Platform, PstateModel};
use lockmodel::Reading;
use sim::program::Workload;
use sim::sched::prototype::PrototypeConfig;

/// What the slides leave open about the boosted memory, and a changed experiment changes.
#[derive(Clone, Copy, Debug)]
pub(super) struct BoostSetting {
    /// Without the boost, threads filled module after module.
    pub crowded_before: bool,
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
    /// How TURBO's slides are read.
    Locks(fn(&mut Reading)),
    /// Something about TURBO's machines.
    Pstates(fn(&mut PstateModel)),
}

/// How a machine's clocks are changed for an experiment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Clocks {
    /// As its file says.
    AsIs,
    /// THESIS 5.4.2: no turbo, 3.10 GHz, 3.00 GHz above level 0.
    Flat,
    /// Every level at the clocks of level 0 (THESIS 5.3: no throttling).
    Unthrottled,
}

/// A change, and where.
#[derive(Debug)]
pub(super) struct Altered {
    /// What, in words.
    pub says: &'static str,
    /// In which scenarios, of those that the change could alter.
    pub on: fn(scenario: &str, clocks: Clocks) -> bool,
    pub change: Change,
}

/// [`Altered::on`] everywhere.
pub(super) fn everywhere(_: &str, _: Clocks) -> bool {
    true
}

/// A near-free constant (`free.rs`).
#[derive(Debug)]
pub(super) struct Free {
    pub name: &'static str,
    /// What the model has.
    pub model: &'static str,
    /// Why it may be something else.
    pub source: &'static str,
    pub elsewhere: &'static [Altered],
}

/// Changes that need each other, and what they are held to be the cause of (`what_if.rs`).
#[derive(Debug)]
pub(super) struct WhatIf {
    /// Their words follow "if", joined by "and".
    pub altered: &'static [Altered],
    /// Rows and rankings that they explain.
    pub explains: &'static [&'static str],
}

impl WhatIf {
    pub(super) fn says(&self) -> String {
        self.altered.iter().map(|altered| altered.says).collect::<Vec<_>>().join(", and ")
    }
}

/// What is simulated instead of what a paper did.
#[derive(Clone, Copy, Debug)]
pub(super) enum Instead {
    /// The model as it is.
    Nothing,
    /// Turbolane's policy for the papers' prototypes.
    Turbolane,
    /// A near-free constant has another value.
    Elsewhere(&'static Free, &'static Altered),
    /// All that is held to be the cause of a miss is so.
    Explained(&'static [WhatIf]),
}

impl Instead {
    /// All that is changed.
    pub(super) fn altered(self) -> Vec<&'static Altered> {
        match self {
            Instead::Nothing | Instead::Turbolane => Vec::new(),
            Instead::Elsewhere(_, altered) => vec![altered],
            Instead::Explained(what_ifs) => what_ifs.iter().flat_map(|one| one.altered).collect(),
        }
    }

    /// Its name: equal ones change the same.
    pub(super) fn label(self) -> String {
        match self {
            Instead::Nothing => String::new(),
            Instead::Turbolane => "turbolane".into(),
            Instead::Elsewhere(free, altered) => format!("{} = {}", free.name, altered.says),
            Instead::Explained(_) => "explained".into(),
        }
    }

    /// The same, or nothing if it changes none of these.
    pub(super) fn if_any(self, concerns: impl Fn(&Altered) -> bool) -> Instead {
        let any = self.altered().into_iter().any(concerns);
        if any || matches!(self, Instead::Turbolane) { self } else { Instead::Nothing }
    }
}
