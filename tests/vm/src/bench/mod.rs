// SPDX-License-Identifier: MIT OR Apache-2.0
//! The benchmarks. Group `vm`: each measures its claim beside its baseline in one guest. Group `sim`:
//! the simulator's speed.

pub mod conservation;
mod hints;
mod migration;
mod overhead;
mod placement;
mod sim;

use crate::suite::Case;

/// All benchmarks.
pub const ALL: &[Case] = &[
    Case::bench("hints", hints::run).host(),
    Case::bench("placement", placement::run).limit_s(900),
    Case::bench("conservation", conservation::run).limit_s(400),
    Case::bench("overhead", overhead::run).icount().limit_s(900).peers(&["scx_layered"]),
    Case::bench("sim", sim::run).group("sim").host(),
    Case::bench("migration", migration::run).icount().limit_s(300),
];
