// SPDX-License-Identifier: MIT OR Apache-2.0
//! `turbolane sim --break-even MACHINE`: the break-even time of every step of a machine (DIM 4.3).

use cpumodel::{CpuModel, Platform};
use report::SCHEMA;
use report::dvfs::BreakEven;

pub(super) fn report(model: &CpuModel) -> BreakEven {
    let platform = Platform::new(model);
    BreakEven {
        schema: SCHEMA,
        machine: model.id.clone(),
        name: model.name.clone(),
        levels: model.levels.iter().map(|level| level.name.clone()).collect(),
        relax_time_ns: platform.times.relax_ns,
        steps: dvfs::steps(&platform),
        assumed: used(&platform.assumed, &CLOCKS),
    }
}

/// What a change of the clock depends on, in the words of a platform's list.
const CLOCKS: [&str; 4] = ["throttle", "halt", "relax", "level"];

/// Of what a platform assumed, that which has one of these words.
pub(super) fn used(assumed: &[String], words: &[&str]) -> Vec<String> {
    let is_used = |text: &&String| words.iter().any(|word| text.contains(word));
    assumed.iter().filter(is_used).cloned().collect()
}
