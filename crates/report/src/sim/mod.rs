// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a simulation found: several runs side by side, as a document, a table ([`text`]), a page
//! with charts ([`html`]) and a trace for Perfetto ([`perfetto`]).
//!
//! A report holds one scenario. Each of its runs is one machine under one policy; the first run
//! of a machine is the one that the others on that machine are compared with. A run may carry a
//! [`Timeline`]: who ran where and which licence each core had, for a part of the simulated time.
//!
//! Fractions are of the run's simulated time, of one CPU unless said otherwise.

pub(crate) mod html;
mod list;
mod perfetto;
mod text;

use serde::{Deserialize, Serialize};

use crate::SCHEMA;
pub use list::{BuiltIn, BuiltInMachine, Named};

/// The whole document.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct SimReport {
    /// See [`SCHEMA`].
    pub schema: u32,
    /// Name of the scenario.
    pub scenario: String,
    /// What it shows, in a sentence.
    pub about: String,
    /// Random seed: the same scenario and seed give the same report.
    pub seed: u64,
    /// Why runs are missing, such as an interrupt; `null` if all were made.
    #[serde(default)]
    pub partial: Option<String>,
    /// The runs, those of one machine together, what the others are compared with first.
    pub runs: Vec<SimRun>,
}

/// One machine under one policy.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct SimRun {
    /// What was simulated.
    pub machine: Machine,
    /// Short name of the policy.
    pub policy: String,
    /// What the policy does, in a sentence.
    pub policy_about: String,
    /// Simulated time that the figures are of, without the warm-up.
    pub simulated_ns: u64,
    /// What each load achieved, the most important first.
    pub loads: Vec<Load>,
    /// Figures of the whole machine.
    pub total: Total,
    /// Figures of each CPU, by number.
    pub cpus: Vec<CpuUse>,
    /// Who ran where; `null` if none was recorded.
    pub timeline: Option<Timeline>,
}

/// The simulated machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Machine {
    /// Id of its CPU file.
    pub id: String,
    /// Name for people.
    pub name: String,
    /// Names of its licence levels, level 0 first.
    pub levels: Vec<String>,
    /// Power that each package may use in the long run, W; `null` if only the turbo tables limit
    /// its clocks.
    #[serde(default)]
    pub limit_w: Option<f64>,
    /// Numbers that no one published and the simulation assumed.
    pub assumed: Vec<String>,
}

/// What one load achieved.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Load {
    /// Its name.
    pub name: String,
    /// Whether it executes what raises the licence level.
    pub wide: bool,
    /// Units of work per second; `null` for a load that has none.
    pub work_per_s: Option<f64>,
    /// What a unit of work is, e.g. `request`.
    pub work: String,
    /// CPU time of a unit of work.
    pub cpu_per_work_ns: Option<f64>,
    /// Mean clock of the CPUs that it ran on, while it did; `null` if it never ran.
    pub mean_khz: Option<f64>,
    /// CPU time on cores at a licence level above 0, whoever asked for it, over its CPU time; 0 if
    /// it never ran.
    pub reduced_frac: f64,
    /// How often one of its tasks was put onto a CPU.
    pub starts_per_s: f64,
    /// Response times; `null` for a load that answers no one.
    pub latency: Option<Latency>,
}

/// Response times.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Latency {
    /// How many were measured.
    pub count: u64,
    /// Mean.
    pub mean_ns: u64,
    /// Median.
    pub p50_ns: u64,
    /// 90th percentile.
    pub p90_ns: u64,
    /// 99th percentile.
    pub p99_ns: u64,
    /// 99.9th percentile.
    pub p999_ns: u64,
    /// Longest.
    pub max_ns: u64,
}

/// Figures of the whole machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Total {
    /// Busy CPU time over that of all CPUs.
    pub busy_frac: f64,
    /// Mean clock of busy CPUs, weighted by busy time; `null` if none was ever busy.
    pub mean_khz: Option<f64>,
    /// Busy time by licence level, over all busy time; sums up to 1, or to 0 if nothing ran.
    pub residency_frac: Vec<f64>,
    /// Tasks that went on running on another CPU than before.
    pub migrations_per_s: f64,
    /// Changes of the set of wide CPUs; 0 if the policy has none or keeps it.
    pub wide_set_changes_per_s: f64,
    /// Energy of all packages, an estimate; `null` if none was made.
    pub energy_j: Option<f64>,
}

/// Figures of one CPU.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct CpuUse {
    /// The CPU.
    pub cpu: u32,
    /// Its core.
    pub core: u32,
    /// Highest level that may run there at the end; `null` if the policy has no classes.
    pub class: Option<u8>,
    /// Time that it was busy.
    pub busy_frac: f64,
    /// Mean clock while busy; `null` if it never was.
    pub mean_khz: Option<f64>,
    /// Busy time by the licence level of its core, over its busy time; sums up to 1, or to 0 if it
    /// never was busy.
    pub residency_frac: Vec<f64>,
}

/// Who ran where and at which level, for a part of the run. Columns of equal length, so that a
/// hundred thousand spans stay readable for programs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Timeline {
    /// Begin of the part, on the run's clock.
    pub start_ns: u64,
    /// Its end.
    pub end_ns: u64,
    /// The tasks that occur, by index.
    pub tasks: Vec<TaskNote>,
    /// CPUs, by number.
    pub cpus: Vec<CpuTrack>,
    /// Cores, by number.
    pub cores: Vec<CoreTrack>,
    /// Changes that exceeded the recorder's limit and are missing; 0: the timeline is complete.
    pub dropped: u64,
}

/// One task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct TaskNote {
    /// Its name.
    pub name: String,
    /// Which load it belongs to: an index into the run's loads; `null` for none.
    pub load: Option<u32>,
}

/// What one CPU did: span `i` is `start_ns[i]..end_ns[i]`. Spans do not overlap; between them the
/// CPU was idle.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct CpuTrack {
    /// The CPU.
    pub cpu: u32,
    /// Index into [`Timeline::cores`].
    pub core: u32,
    /// Begin of each span.
    pub start_ns: Vec<u64>,
    /// End of each span.
    pub end_ns: Vec<u64>,
    /// Who ran: index into [`Timeline::tasks`].
    pub task: Vec<u32>,
    /// Licence level that its code asked for; more than 0 makes it an offender.
    pub asks: Vec<u8>,
}

/// What one core's licence did: step `i` holds from `at_ns[i]` until the next, the last one until
/// the timeline's end.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct CoreTrack {
    /// The core.
    pub core: u32,
    /// When.
    pub at_ns: Vec<u64>,
    /// The granted level.
    pub level: Vec<u8>,
    /// The clock; 0 while the core is halted.
    pub clock_khz: Vec<u32>,
    /// Whether wide code waits for its licence at reduced dispatch.
    pub throttled: Vec<bool>,
}

impl SimReport {
    /// A report of these runs.
    pub fn new(
        scenario: impl Into<String>,
        about: impl Into<String>,
        seed: u64,
        runs: Vec<SimRun>,
    ) -> Self {
        let (scenario, about) = (scenario.into(), about.into());
        SimReport { schema: SCHEMA, scenario, about, seed, partial: None, runs }
    }

    /// The run that `run` is compared with: the first one on the same machine.
    pub fn base_of(&self, run: &SimRun) -> Option<&SimRun> {
        self.runs.iter().find(|base| base.machine.id == run.machine.id)
    }
}

impl SimRun {
    /// Percent more work of a load than in `base`; `None` if either did none or has no such load.
    pub fn gain_pct(&self, base: &SimRun, load: &str) -> Option<f64> {
        let work = |run: &SimRun| {
            run.loads.iter().find(|one| one.name == load)?.work_per_s.filter(|work| *work > 0.0)
        };
        Some(100.0 * (work(self)? / work(base)? - 1.0))
    }
}
