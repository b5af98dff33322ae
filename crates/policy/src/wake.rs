// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whether a task that wakes displaces the one that runs on its CPU: policy/wake.h.

use crate::{Task, Turns};

unsafe extern "C" {
    fn tlp_run_note(run: *mut Run, t: *const Task, now_ns: u64);
    fn tlp_run_begins(run: *mut Run, t: *const Task, now_ns: u64);
    fn tlp_wake_side(t: *const Task, cpu: u32, class: u32, shard: u32) -> u32;
    fn tlp_wake_displaces(
        run: *const Run,
        turns: *const Turns,
        t: *const Task,
        side: u32,
        slice_ns: u64,
        now_ns: u64,
    ) -> u32;
}

/// `tl_run`: what runs on a CPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
#[allow(missing_docs)] // each field is explained where it is defined
pub struct Run {
    pub vtime_ns: u64,
    pub since_ns: u64,
    pub began_ns: u64,
    pub clock: u32,
    pub weight: u32,
}
const _: () = assert!(size_of::<Run>() == 32);

impl Run {
    /// A task begins to run on the CPU.
    #[inline]
    pub fn begins(&mut self, task: &Task, now_ns: u64) {
        // SAFETY: plain data on both sides.
        unsafe { tlp_run_begins(self, task, now_ns) }
    }

    /// The CPU's task was charged.
    #[inline]
    pub fn note(&mut self, task: &Task, now_ns: u64) {
        // SAFETY: plain data on both sides.
        unsafe { tlp_run_note(self, task, now_ns) }
    }

    /// Whether a task that has just woken, and waits on this side of the CPU's first step,
    /// displaces what runs there.
    #[inline]
    pub fn is_displaced_by(
        &self,
        turns: &Turns,
        task: &Task,
        side: u32,
        slice_ns: u64,
        now_ns: u64,
    ) -> bool {
        // SAFETY: plain data, only read.
        unsafe { tlp_wake_displaces(self, turns, task, side, slice_ns, now_ns) != 0 }
    }
}

impl Task {
    /// The side of this CPU on which the task waits; [`crate::SIDE_NONE`] if that is none of its
    /// first step.
    #[inline]
    pub fn wakes_on_side(&self, cpu: u32, class: u8, shard: u32) -> u32 {
        // SAFETY: plain data, only read.
        unsafe { tlp_wake_side(self, cpu, u32::from(class), shard) }
    }
}
