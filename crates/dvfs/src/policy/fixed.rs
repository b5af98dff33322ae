// SPDX-License-Identifier: MIT OR Apache-2.0
//! The fixed timeout: what the hardware does (DIM 4), with any time.
//!
//! Each level is held on its own for so long after it was last asked for, as in
//! `cpumodel::license`: code of level 2 followed by code of level 1 falls to level 1 first. With
//! the hardware's time the two do the same at the same times; `tests/one_model.rs` compares them.

use super::{Policy, Raise, View};

/// Raises the clock a fixed time after the last code that asked for the level.
#[derive(Clone, Copy, Debug)]
pub struct Fixed {
    /// The time; `u64::MAX`: never.
    pub timeout_ns: u64,
}

impl Policy for Fixed {
    fn wait(&mut self, view: &View<'_>) -> Option<Raise> {
        if self.timeout_ns == u64::MAX {
            return None;
        }
        let ends_ns = |level: u8| view.license.last_ns(level).saturating_add(self.timeout_ns);
        let (level, demand) = (view.license.level(), view.license.demand());
        let at_ns = view.now_ns.max(ends_ns(level));
        let to = (demand + 1..level).rev().find(|&lower| at_ns < ends_ns(lower)).unwrap_or(demand);
        Some(Raise { at_ns, to })
    }
}
