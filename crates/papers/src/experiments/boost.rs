// SPDX-License-Identifier: MIT OR Apache-2.0
//! TURBO's figures about boosted applications (slide 11): a hash table that is resized, and an
//! asymmetric software transactional memory, by `lockmodel`. Neither is fitted: one is counted from
//! its loop, the other is the largest gain that any load has.

use cpumodel::PstateModel;
use lockmodel::resize::items_per_s;
use lockmodel::stm::{self, Most, most};

use super::change::{BoostSetting, Change, Instead};
use super::locks::machine;

/// TURBO 11: "22 % higher frequency".
const RESIZE_CLOCK: f64 = 1.22;

impl BoostSetting {
    fn of(instead: Instead) -> BoostSetting {
        let mut setting = BoostSetting { crowded_before: false };
        for altered in instead.altered() {
            if let Change::Boost(change) = &altered.change {
                change(&mut setting);
            }
        }
        setting
    }
}

/// The figure of a row, in its unit; `None` if it is not one of these.
pub(super) fn figure(id: &str, instead: Instead) -> Option<f64> {
    let model = || machine("fx-8120", instead);
    match id {
        "turbo-memcached-speedup" => resize_pct(&model()?),
        "turbo-stm-speedup" => Some(memory(&model()?, instead)?.speedup_pct),
        "turbo-stm-energy" => Some(memory(&model()?, instead)?.energy_pct),
        _ => None,
    }
}

fn resize_pct(model: &PstateModel) -> Option<f64> {
    let base_khz = model.base_khz.value as f64;
    let (before, after) =
        (items_per_s(model, base_khz)?, items_per_s(model, RESIZE_CLOCK * base_khz)?);
    Some(100.0 * (after / before - 1.0))
}

fn memory(model: &PstateModel, instead: Instead) -> Option<Most> {
    let setting = BoostSetting::of(instead);
    let before = stm::Setting { boosted: false, crowded: setting.crowded_before };
    most(model, before, stm::Setting { boosted: true, crowded: false })
}
