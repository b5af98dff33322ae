// SPDX-License-Identifier: MIT OR Apache-2.0
//! What DVFS policies would bring: break-even times of a machine, and a timeline under policies
//! side by side, as documents and as tables ([`text`]).

mod text;

use serde::{Deserialize, Serialize};

use crate::timeline::Demand;

/// Break-even times of a machine's steps.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct BreakEven {
    /// See [`crate::SCHEMA`].
    pub schema: u32,
    /// Id of its CPU file.
    pub machine: String,
    /// Name for people.
    pub name: String,
    /// Names of its licence levels, level 0 first.
    pub levels: Vec<String>,
    /// The hardware's own timeout.
    pub relax_time_ns: u64,
    /// Steps by active cores.
    pub steps: Vec<Step>,
    /// Numbers that no one published and the computation assumed.
    pub assumed: Vec<String>,
}

/// One step between two levels, for a range of active cores.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Step {
    /// Least number of active cores.
    pub active_from: usize,
    /// Greatest.
    pub active_to: usize,
    /// Level with the lower clock.
    pub low_level: u8,
    /// Level with the higher clock.
    pub high_level: u8,
    /// Clock of the one.
    pub low_khz: u32,
    /// Clock of the other.
    pub high_khz: u32,
    /// CPU time lost by the change to the lower clock.
    pub lower_cost_ns: f64,
    /// CPU time lost by the change to the higher clock.
    pub raise_cost_ns: f64,
    /// Break-even time; `null` if both clocks are the same and no change pays.
    pub break_even_ns: Option<f64>,
}

/// A timeline under policies.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Replay {
    /// See [`crate::SCHEMA`].
    pub schema: u32,
    /// Names of the timelines, one for each sibling of the core.
    pub timelines: Vec<String>,
    /// What the first one is.
    pub about: String,
    /// Whether a recorder wrote all of them.
    pub recorded: bool,
    /// What a unit of work is.
    pub work: String,
    /// By timeline: where its levels come from; `null`: no licence levels were recorded.
    pub demand: Vec<Option<Demand>>,
    /// Id of the CPU file.
    pub machine: String,
    /// Name for people.
    pub machine_name: String,
    /// Active cores of the package.
    pub active_cores: usize,
    /// Clock by level.
    pub clock_khz: Vec<u32>,
    /// Random seed.
    pub seed: u64,
    /// Policy by policy, what the others are compared with first.
    pub runs: Vec<ReplayRun>,
    /// Numbers that no one published and the simulation assumed.
    pub assumed: Vec<String>,
}

/// One policy.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ReplayRun {
    /// As it was asked for.
    pub policy: String,
    /// What it does, in a few words.
    pub policy_about: String,
    /// Until everything was done.
    pub time_ns: u64,
    /// Percent more work per time than under the first policy.
    pub gain_pct: f64,
    /// Time that the licence cost, over the busy time, in percent.
    pub lost_pct: f64,
    /// Units of work per second; `null` if the timeline marks none.
    pub work_per_s: Option<f64>,
    /// Changes to a higher clock.
    pub raises: u64,
    /// Changes to a lower clock.
    pub lowers: u64,
    /// Time that the core was halted for them.
    pub halted_ns: u64,
    /// Time by granted level.
    pub level_ns: Vec<u64>,
    /// Energy of the busy core, an estimate.
    pub energy_j: f64,
}
