// SPDX-License-Identifier: MIT OR Apache-2.0
//! How many cores are wide, and of which class, see policy/sizing.h, tiers.h and cpus.h.

use crate::{LEVEL_MAX, NR_KINDS};

unsafe extern "C" {
    fn tlp_sizing_update(s: *mut Sizing, input: *const SizingInput) -> u32;
    fn tlp_core_class(rank: u32, split: *const Split) -> u32;
    fn tlp_tiers_resume(t: *mut Tiers);
    fn tlp_tiers_update(t: *mut Tiers, input: *const TiersInput) -> u32;
}

/// `tl_sizing`: state of the automatic sizing. Start with `nr_wide` = the cores wide now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
#[allow(missing_docs)]
pub struct Sizing {
    pub wide_run_q10: u64,
    pub wide_wait_q10: u64,
    pub rest_run_q10: u64,
    pub rest_q10: u64,
    pub mix_wait_q10: u64,
    pub settled_ns: u64,
    pub low_ns: u64,
    pub hold_ns: u64,
    pub shrunk_ns: u64,
    pub nr_before: u32,
    pub nr_low: u32,
    pub nr_wide: u32,
    pub nr_changes: u32,
}
const _: () = assert!(size_of::<Sizing>() == 88);

/// `tl_sizing_input`: what was seen since the last call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
#[allow(missing_docs)]
pub struct SizingInput {
    pub elapsed_ns: u64,
    pub wide_run_ns: u64,
    pub wide_wait_ns: u64,
    pub rest_run_ns: u64,
    pub rest_wait_ns: u64,
    pub mix_wait_ns: u64,
    pub nr_cores: u32,
    pub nr_cpus_per_core: u32,
    pub nr_useful: u32,
}

impl Sizing {
    /// Take in what was seen; returns how many cores should be wide.
    pub fn update(&mut self, input: &SizingInput) -> u32 {
        // SAFETY: plain data on both sides.
        unsafe { tlp_sizing_update(self, input) }
    }
}

/// `tl_split`: how many of the last cores have a class above 0, 1, ...
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Split {
    /// By class; the first is the number of wide cores.
    pub above: [u32; LEVEL_MAX as usize],
}

impl Split {
    /// So many wide cores, all of the highest class.
    pub fn one_class(nr_wide: u32) -> Self {
        Split { above: [nr_wide; LEVEL_MAX as usize] }
    }

    /// Number of wide cores.
    pub fn nr_wide(&self) -> usize {
        self.above[0] as usize
    }

    /// Class of the core with this rank from the end.
    pub fn core_class(&self, rank: u32) -> u32 {
        // SAFETY: plain data, only read.
        unsafe { tlp_core_class(rank, self) }
    }
}

/// [`TiersInput::nr_wide`]: to be chosen.
pub const WIDE_AUTO: u32 = u32::MAX;

/// `tl_tier`: a boundary between classes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
#[allow(missing_docs)]
pub struct Tier {
    pub set: Sizing,
    pub high_ns: u64,
    pub nr_high: u32,
}

/// `tl_tiers`: how many cores are wide, and of which class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
#[allow(missing_docs)]
pub struct Tiers {
    pub wide: Sizing,
    pub tier: [Tier; LEVEL_MAX as usize - 1],
    pub split: Split,
}
const _: () = assert!(size_of::<Tiers>() == 312);

/// `tl_tiers_input`: what was seen since the last call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
#[allow(missing_docs)]
pub struct TiersInput {
    pub elapsed_ns: u64,
    pub run_ns: [u64; NR_KINDS],
    pub wait_ns: [u64; NR_KINDS],
    pub mix_wait_ns: u64,
    pub nr_cores: u32,
    pub nr_cpus_per_core: u32,
    pub nr_wide: u32,
    pub tiers: u32,
    pub nr_useful: u32,
}

impl Tiers {
    /// So many cores are wide now, all of the highest class.
    pub fn start(nr_wide: usize) -> Self {
        let wide = Sizing { nr_wide: nr_wide as u32, ..Default::default() };
        Tiers { wide, split: Split::one_class(nr_wide as u32), ..Default::default() }
    }

    /// The cores were not divided for a while: sizes stay, averages begin anew.
    pub fn resume(&mut self) {
        // SAFETY: plain data, layout asserted.
        unsafe { tlp_tiers_resume(self) }
    }

    /// Take in what was seen; true if the split has changed.
    pub fn update(&mut self, input: &TiersInput) -> bool {
        // SAFETY: plain data on both sides.
        unsafe { tlp_tiers_update(self, input) != 0 }
    }
}
