// SPDX-License-Identifier: MIT OR Apache-2.0
//! `turbolane sim --break-even MACHINE`: the break-even time of every step of a machine (DIM 4.3).

use machine::{CpuModel, Platform};
use report::SCHEMA;
use report::dvfs::{BreakEven, Step};

pub(super) fn report(model: &CpuModel) -> BreakEven {
    let platform = Platform::new(model);
    BreakEven {
        schema: SCHEMA,
        machine: model.id.clone(),
        name: model.name.clone(),
        levels: model.levels.iter().map(|level| level.name.clone()).collect(),
        relax_time_ns: platform.times.relax_ns,
        steps: dvfs::steps(&platform).into_iter().map(step).collect(),
        assumed: used(&platform.assumed, &CLOCKS),
    }
}

fn step(step: dvfs::Step) -> Step {
    Step {
        active_from: step.active_from,
        active_to: step.active_to,
        low_level: step.low_level,
        high_level: step.high_level,
        low_khz: step.low_khz,
        high_khz: step.high_khz,
        lower_cost_ns: step.lower_cost_ns,
        raise_cost_ns: step.raise_cost_ns,
        break_even_ns: step.break_even_ns,
    }
}

/// What a change of the clock depends on, in the words of a platform's list.
const CLOCKS: [&str; 4] = ["throttle", "halt", "relax", "level"];

/// Of what a platform assumed, that which has one of these words.
pub(super) fn used(assumed: &[String], words: &[&str]) -> Vec<String> {
    let is_used = |text: &&String| words.iter().any(|word| text.contains(word));
    assumed.iter().filter(is_used).cloned().collect()
}
