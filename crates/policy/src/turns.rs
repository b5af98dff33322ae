// SPDX-License-Identifier: MIT OR Apache-2.0
//! How the queues that a CPU serves with equal rights share it: policy/turns.h.

use crate::{Cfg, Task};

unsafe extern "C" {
    fn tlp_turns_choose(turns: *mut Turns, sides: *const Sides, slice_ns: u64, now_ns: u64) -> u32;
    fn tlp_turns_begin(turns: *mut Turns, side: u32, clock: u32, nr_tasks: u32, nr_cpus: u32);
    fn tlp_turns_end(turns: *mut Turns);
    fn tlp_charge(
        t: *mut Task,
        turns: *mut Turns,
        cfg: *const Cfg,
        used_ns: u64,
        went_first: u32,
    ) -> u64;
    fn tlp_goes_first(turns: *const Turns, is_vital: u32, wakes: u32, slice_ns: u64) -> u32;
}

/// `tl_side`: the step's own queue.
pub const SIDE_OWN: u32 = 0;
/// `tl_side`: default tasks.
pub const SIDE_DEFAULT: u32 = 1;
/// `tl_side`: tasks pinned to the CPU.
pub const SIDE_PINNED: u32 = 2;
/// `tl_side`: none has tasks.
pub const SIDE_NONE: u32 = 3;

/// `tl_turns`: a CPU's balance between its sides.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
#[allow(missing_docs)] // each field is explained where it is defined
pub struct Turns {
    pub served_ns: [u64; 3],
    pub first_ns: i64,
    pub clock: u32,
    pub part_q10: u32,
    pub side: u32,
    pub present: u32,
}
const _: () = assert!(size_of::<Turns>() == 48);

/// `tl_sides`: what a CPU finds on its sides.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Sides {
    /// Of the first task.
    pub key_ns: [u64; 3],
    /// 0 = the side is empty.
    pub nr_tasks: [u32; 3],
}

impl Turns {
    /// Which side goes first now; [`SIDE_NONE`] if all are empty.
    #[inline]
    pub fn choose(&mut self, sides: &Sides, slice_ns: u64, now_ns: u64) -> u32 {
        // SAFETY: plain data on both sides.
        unsafe { tlp_turns_choose(self, sides, slice_ns, now_ns) }
    }

    /// The CPU runs a task of this side. The side's queue has so many tasks, waiting and running,
    /// and so many CPUs serve it.
    #[inline]
    pub fn begin(&mut self, side: u32, clock: u32, nr_tasks: u32, nr_cpus: u32) {
        // SAFETY: as in `choose`.
        unsafe { tlp_turns_begin(self, side, clock, nr_tasks, nr_cpus) }
    }

    /// What runs now did not come from a side.
    #[inline]
    pub fn end(&mut self) {
        // SAFETY: as in `choose`.
        unsafe { tlp_turns_end(self) }
    }

    /// The CPU's task has used CPU time: all that this moves but its queue's clock. Returns what
    /// that is to be advanced by, ns.
    #[inline]
    pub fn charge(&mut self, task: &mut Task, cfg: &Cfg, used_ns: u64, went_first: bool) -> u64 {
        // SAFETY: as in `choose`.
        unsafe { tlp_charge(task, self, cfg, used_ns, u32::from(went_first)) }
    }

    /// Whether a task that wakes goes before all queues of this CPU.
    #[inline]
    pub fn goes_first(&self, is_vital: bool, wakes: bool, slice_ns: u64) -> bool {
        let (is_vital, wakes) = (u32::from(is_vital), u32::from(wakes));
        // SAFETY: plain data, only read.
        unsafe { tlp_goes_first(self, is_vital, wakes, slice_ns) != 0 }
    }
}
