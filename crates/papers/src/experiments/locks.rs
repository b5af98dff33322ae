// SPDX-License-Identifier: MIT OR Apache-2.0
//! TURBO's figures about contended locks: break-even sizes and effective clocks (slides 7 and 9),
//! by `lockmodel`. A simulation takes microseconds, so each figure makes its own.

use crate::comparison::Measure;
use crate::published::Config;

use super::change::{Change, Instead};
use cpumodel::PstateModel;
use lockmodel::{Reading, Strategy, break_even_cycles, simulate};

/// A machine, changed.
pub(super) fn machine(id: &str, instead: Instead) -> Option<PstateModel> {
    let mut model = PstateModel::built_in(id)?.ok()?;
    for altered in instead.altered() {
        if let Change::Pstates(change) = &altered.change {
            change(&mut model);
        }
    }
    Some(model)
}

/// How the slides are read.
fn reading(instead: Instead) -> Reading {
    let mut reading = Reading::default();
    for altered in instead.altered() {
        if let Change::Locks(change) = &altered.change {
            change(&mut reading);
        }
    }
    reading
}

fn strategy(policy: &str) -> Option<Strategy> {
    Strategy::ALL.into_iter().find(|(_, name)| *name == policy).map(|(strategy, _)| strategy)
}

/// As many threads as in the paper.
fn threads(model: &PstateModel) -> Option<usize> {
    usize::try_from(model.threads.value).ok()
}

/// The figure of a row, in its unit; `None` if it is not one of these.
pub(super) fn figure(id: &str, instead: Instead) -> Option<f64> {
    let (id, policy) = match id {
        "turbo-break-even-futex-amd" => ("fx-8120", "futex"),
        "turbo-break-even-futex-intel" => ("core-i7-4770", "futex"),
        "turbo-break-even-owner" => ("fx-8120", "owner"),
        "turbo-break-even-delegate" => ("fx-8120", "delegate"),
        "turbo-break-even-migrate" => ("fx-8120", "migrate"),
        _ => return None,
    };
    let model = machine(id, instead)?;
    break_even_cycles(&model, strategy(policy)?, threads(&model)?, reading(instead))
}

/// A measure of a configuration with sections of one size; `None` if it is none.
pub(super) fn measure(config: &Config, measure: Measure, instead: Instead) -> Option<f64> {
    let cycles = match (config.workload.as_str(), measure) {
        ("section-300k", Measure::Clock) => 3e5,
        ("section-500k", Measure::Clock) => 5e5,
        ("section-1m", Measure::Clock) => 1e6,
        ("section-3m", Measure::Clock) => 3e6,
        ("section-8m", Measure::Clock) => 8e6,
        _ => return None,
    };
    let model = machine(&config.machine, instead)?;
    let strategy = strategy(&config.policy)?;
    let out = simulate(&model, strategy, cycles, threads(&model)?, reading(instead))?;
    Some(out.effective_khz)
}
