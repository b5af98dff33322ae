// SPDX-License-Identifier: MIT OR Apache-2.0
//! The clock of a queue: policy/clock.h.

use crate::task::Task;

unsafe extern "C" {
    fn tlp_clock_advance(
        clock: *mut Clock,
        charged_ns: u64,
        nr_tasks: u32,
        nr_waiting: u32,
        now_ns: u64,
    );
    fn tlp_slice_from_ns(
        t: *const Task,
        clock: *const Clock,
        slice_ns: u64,
        nr_tasks: u32,
        nr_cpus: u32,
    ) -> u64;
    fn tlp_task_key(
        t: *const Task,
        old_vtime_ns: u64,
        clock: *const Clock,
        slice_ns: u64,
        most_wait_ns: u64,
        now_ns: u64,
    ) -> u64;
    fn tlp_vtime_charge(t: *mut Task, used_ns: u64) -> u64;
    fn tlp_vtime_place(
        t: *mut Task,
        id: u32,
        old_vtime_ns: u64,
        clock: *const Clock,
        slice_ns: u64,
        most_wait_ns: u64,
    );
}

/// `tl_clock`: the mean virtual time of a queue's tasks, and its pace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
#[allow(missing_docs)] // each field is explained where it is defined
pub struct Clock {
    pub vtime_ns: u64,
    pub since_ns: u64,
    pub since_vtime_ns: u64,
    pub pace_q10: u32,
    pub reserved: u32,
}
const _: () = assert!(size_of::<Clock>() == 32);

impl Clock {
    /// Tasks of the queue have used CPU time, `charged_ns` on their clocks; so many wait or run,
    /// `nr_waiting` of them wait.
    #[inline]
    pub fn advance(&mut self, charged_ns: u64, nr_tasks: u32, nr_waiting: u32, now_ns: u64) {
        // SAFETY: plain data on both sides, layout asserted.
        unsafe { tlp_clock_advance(self, charged_ns, nr_tasks, nr_waiting, now_ns) }
    }

    /// The slice of a task that runs out of the queue of this clock, which has so many tasks and
    /// CPUs.
    #[inline]
    pub fn slice_from_ns(&self, task: &Task, slice_ns: u64, nr_tasks: u32, nr_cpus: u32) -> u64 {
        // SAFETY: as above; both are only read.
        unsafe { tlp_slice_from_ns(task, self, slice_ns, nr_tasks, nr_cpus) }
    }

    /// The key of a task that begins to wait now in the queue of this clock. Its virtual time is on
    /// the clock whose value is `old_vtime_ns`; its slice is what a lag is limited by.
    #[inline]
    pub fn key(
        &self,
        task: &Task,
        old_vtime_ns: u64,
        slice_ns: u64,
        most_wait_ns: u64,
        now_ns: u64,
    ) -> u64 {
        // SAFETY: as above; both are only read.
        unsafe { tlp_task_key(task, old_vtime_ns, self, slice_ns, most_wait_ns, now_ns) }
    }
}

impl Task {
    /// Charge CPU time; returns what it is on the task's clock, ns.
    #[inline]
    pub fn charge(&mut self, used_ns: u64) -> u64 {
        // SAFETY: plain data on both sides, layout asserted.
        unsafe { tlp_vtime_charge(self, used_ns) }
    }

    /// Enter the queue with this id and clock, where a lag costs at most `most_wait_ns`, from the
    /// clock whose value is `old_vtime_ns`.
    #[inline]
    pub fn place(
        &mut self,
        id: u32,
        old_vtime_ns: u64,
        clock: &Clock,
        slice_ns: u64,
        most_wait_ns: u64,
    ) {
        // SAFETY: as in `charge`; the clock is only read.
        unsafe { tlp_vtime_place(self, id, old_vtime_ns, clock, slice_ns, most_wait_ns) }
    }
}

plain! {
    /// The slice of a task whose queue has so many tasks and CPUs.
    slice_in_round_ns = tlp_slice_in_round_ns(slice_ns: u64, nr_tasks: u32, nr_cpus: u32) -> u64;
    /// Longest wait that a lag may cost in that queue.
    most_wait_ns = tlp_most_wait_ns(slice_ns: u64, nr_tasks: u32, nr_cpus: u32) -> u64;
}
