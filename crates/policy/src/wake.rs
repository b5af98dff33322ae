// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whether a task that wakes displaces the one that runs on its CPU: policy/wake.h.

use crate::{Task, Turns};

unsafe extern "C" {
    fn tlp_run_note(run: *mut Run, t: *const Task, now_ns: u64);
    fn tlp_run_begins(run: *mut Run, t: *const Task, now_ns: u64);
    fn tlp_wake_side(t: *const Task, cpu: u32, class: u32, shard: u32) -> u32;
    fn tlp_task_comes(t: *mut Task);
    fn tlp_wake_cpu(t: *const Task, from: *const WakeFrom, wakes: u32, now_ns: u64) -> i32;
    fn tlp_wake_displaces(
        run: *const Run,
        turns: *const Turns,
        t: *const Task,
        clock_ns: u64,
        wakes: u32,
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

/// `tl_wake_from`: where a task was that waits now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
#[allow(missing_docs)] // each field is explained where it is defined
pub struct WakeFrom {
    pub cpu: u32,
    pub class: u32,
    pub shard: u32,
    pub scalar_cpu: i32,
    pub began_ns: u64,
}
const _: () = assert!(size_of::<WakeFrom>() == 24);

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

    /// Whether a task that has just come, and waits on a side of the CPU's first step, displaces
    /// what runs there.
    #[inline]
    pub fn is_displaced_by(
        &self,
        turns: &Turns,
        comer: &Comer<'_>,
        slice_ns: u64,
        now_ns: u64,
    ) -> bool {
        let Comer { task, clock_ns, wakes, side } = *comer;
        let wakes = u32::from(wakes);
        // SAFETY: plain data, only read.
        unsafe {
            tlp_wake_displaces(self, turns, task, clock_ns, wakes, side, slice_ns, now_ns) != 0
        }
    }
}

/// A task that has just come to a queue.
#[derive(Clone, Copy, Debug)]
pub struct Comer<'a> {
    /// The task, on that queue's clock.
    pub task: &'a Task,
    /// That clock's virtual time.
    pub clock_ns: u64,
    /// Whether it has slept; else it comes back from a wide CPU.
    pub wakes: bool,
    /// The side of the CPU on which it waits.
    pub side: u32,
}

impl Task {
    /// The side of this CPU on which the task waits; [`crate::SIDE_NONE`] if that is none of its
    /// first step.
    #[inline]
    pub fn wakes_on_side(&self, cpu: u32, class: u8, shard: u32) -> u32 {
        // SAFETY: plain data, only read.
        unsafe { tlp_wake_side(self, cpu, u32::from(class), shard) }
    }

    /// It comes to a CPU.
    #[inline]
    pub fn comes(&mut self) {
        // SAFETY: plain data on both sides.
        unsafe { tlp_task_comes(self) }
    }

    /// The CPU where the task, which waits, looks for something to displace.
    #[inline]
    pub fn wake_cpu(&self, from: &WakeFrom, wakes: bool, now_ns: u64) -> Option<usize> {
        // SAFETY: plain data, only read.
        let cpu = unsafe { tlp_wake_cpu(self, from, u32::from(wakes), now_ns) };
        usize::try_from(cpu).ok()
    }
}
