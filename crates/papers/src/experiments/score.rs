// SPDX-License-Identifier: MIT OR Apache-2.0
//! DIM's Table 2: power scores of processes alone and of two that share all cores (6.1).
//!
//! The rules are policy/score.h's. The programs are models: x265 alone and the single instructions
//! are what they were fitted to, one number each (data/README.md); scores of processes that share
//! cores are predictions. Hyperthreading is off, as for "all further experiments" of DIM 2.
//!
//! There is no column for Turbolane's policy: it would have to use scores as its signal, and would
//! then separate the two processes that the experiment has to distinguish.

use cpumodel::{CpuModel, Platform};
use sim::engine::Options;
use sim::scenario::Scenario;
use sim::score::power_scores;

use super::change::{Altered, Change, Clocks, Instead};

/// Whose score in which experiment.
struct Experiment {
    scenario: &'static str,
    variant: &'static str,
    /// Groups that take part besides; the others have no tasks.
    beside: &'static [&'static str],
    whose: &'static str,
}

/// The experiment of a row; `None` if it is none of Table 2's.
fn experiment(id: &str) -> Option<Experiment> {
    let of = |scenario, variant, beside, whose| Experiment { scenario, variant, beside, whose };
    let alone = |variant| of("dim-x265-swaptions", variant, &[], "x265");
    let instruction = |variant| of("dim-instructions", variant, &["kworker"], "loop");
    Some(match id {
        "dim-t2-x265-avx" => alone("none"),
        "dim-t2-x265-avx2" => alone("avx2"),
        "dim-t2-x265-avx512" => alone("avx512"),
        "dim-t2-mixed-x265-apache" => of("dim-x265-apache", "avx512", &["apache", "ab"], "x265"),
        "dim-t2-mixed-apache" => of("dim-x265-apache", "avx512", &["ab", "x265"], "apache"),
        "dim-t2-mixed-x265-swaptions" => of("dim-x265-swaptions", "avx512", &["swaptions"], "x265"),
        "dim-t2-mixed-swaptions" => of("dim-x265-swaptions", "avx512", &["x265"], "swaptions"),
        "dim-t2-fma-512" => instruction("fma-512"),
        "dim-t2-add-512" => instruction("add-512"),
        "dim-t2-fma-256" => instruction("fma-256"),
        _ => return None,
    })
}

/// One score to be simulated.
#[derive(Clone, Debug)]
pub(super) struct ScorePlan {
    id: String,
    instead: Instead,
}

impl ScorePlan {
    /// For a row, if it is one of Table 2's that this can be simulated for.
    pub(super) fn of(id: &str, instead: Instead) -> Option<ScorePlan> {
        let experiment = experiment(id)?;
        let instead = match instead {
            Instead::Turbolane => return None,
            instead => instead.if_any(|altered| is_concerned(&experiment, altered)),
        };
        Some(ScorePlan { id: id.into(), instead })
    }

    /// Whether it differs from the model's.
    pub(super) fn is_changed(&self) -> bool {
        !matches!(self.instead, Instead::Nothing)
    }

    /// Names the plan: equal plans are run once.
    pub(super) fn key(&self) -> String {
        format!("{} {}", self.id, self.instead.label())
    }

    /// Simulate it; `None` if it cannot be.
    pub(super) fn run(&self, seed: u64) -> Option<f64> {
        let experiment = experiment(&self.id)?;
        let scenario = Scenario::built_in(experiment.scenario)?.ok()?;
        let model = CpuModel::built_in(&scenario.machine)?.ok()?;
        let mut platform = Platform::new(&model);
        (platform.threads_per_core, platform.smt_frac) = (1, 1.0);
        let mut workload = scenario.workload(Some(experiment.variant))?.clone();
        for altered in self.instead.altered() {
            match &altered.change {
                _ if !is_concerned(&experiment, altered) => {}
                Change::Platform(change) => change(&mut platform),
                Change::Workload(change) => change(&mut workload),
                _ => {}
            }
        }
        for group in &mut workload.groups {
            let name = group.name.as_str();
            if name != experiment.whose && !experiment.beside.contains(&name) {
                group.tasks = 0;
            }
        }
        let at = workload.groups.iter().position(|group| group.name == experiment.whose)?;
        let options = Options { seed, duration_ns: scenario.duration_ns, ..Options::default() };
        power_scores(&platform, scenario.packages, workload, options).ok()?[at]
    }
}

fn is_concerned(experiment: &Experiment, altered: &Altered) -> bool {
    matches!(altered.change, Change::Platform(_) | Change::Workload(_))
        && (altered.on)(experiment.scenario, Clocks::AsIs)
}
