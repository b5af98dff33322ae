// SPDX-License-Identifier: MIT OR Apache-2.0
//! DIM's Table 2: power scores of processes alone and of two that share all cores (6.1).
//!
//! The rules are policy/score.h's. The programs are models: x265 alone and the single instructions
//! are what they were fitted to, one number each (data/README.md); scores of processes that share
//! cores are predictions. Hyperthreading is off, as for "all further experiments" of DIM 2.
//!
//! There is no column for Turbolane's policy: it would have to use scores as its signal, and would
//! then separate the two processes that the experiment has to distinguish.

use machine::{CpuModel, Platform};
use sim::engine::Options;
use sim::scenario::Scenario;
use sim::score::power_scores;

use super::change::Change;
use super::plan::Instead;

/// With seeds 1 to 4 mixed processes differ by 0.02 at most, the loops by 0.09.
const SEED: u64 = 1;

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

/// The score of a row of Table 2; `None` if it is none.
pub(super) fn figure(id: &str, instead: Instead) -> Option<f64> {
    let experiment = experiment(id)?;
    let scenario = Scenario::built_in(experiment.scenario)?.ok()?;
    let model = CpuModel::built_in(&scenario.machine)?.ok()?;
    let mut platform = Platform::new(&model);
    (platform.threads_per_core, platform.smt_frac) = (1, 1.0);
    match instead {
        Instead::Turbolane => return None,
        Instead::WhatIf(what_if) => {
            if let Change::Platform(change) = &what_if.change {
                change(&mut platform);
            }
        }
        Instead::Nothing => {}
    }
    let mut workload = scenario.workload(Some(experiment.variant))?.clone();
    for group in &mut workload.groups {
        let name = group.name.as_str();
        if name != experiment.whose && !experiment.beside.contains(&name) {
            group.tasks = 0;
        }
    }
    let at = workload.groups.iter().position(|group| group.name == experiment.whose)?;
    let options = Options { seed: SEED, duration_ns: scenario.duration_ns, ..Options::default() };
    power_scores(&platform, scenario.packages, workload, options).ok()?[at]
}
