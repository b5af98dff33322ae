// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where a task waits, whether it goes on where it is, and which CPU helps another shard:
//! policy/locality.h.

use crate::NR_CLASSES;
use crate::task::Task;

unsafe extern "C" {
    fn tlp_waits_here(
        queue_class: u32,
        caps: u32,
        here_class: u32,
        allowed: u32,
        everywhere: u32,
        shard_classes: u32,
    ) -> u32;
    fn tlp_leaves_core(is_first: u32, nr_ticks: u32) -> u32;
    fn tlp_compares_now(nr_looks: u32) -> u32;
    fn tlp_running_key(key_ns: u64, now_ns: u64) -> u64;
    fn tlp_helps(own: *const Backlog, other: *const Backlog, slice_ns: u64) -> u32;
    fn tlp_must_leave(t: *const Task, class: u32, wanted: u32) -> u32;
    fn tlp_may_stay(t: *const Task, class: u32, better_idle: u32, better_core: u32) -> u32;
    fn tlp_look_class(t: *const Task, i: u32) -> u32;
    fn tlp_look_scope(t: *const Task, i: u32) -> u32;
}

/// Looks for an idle CPU, at most: each class in the cache, the node and the machine.
pub const IDLE_LOOKS: usize = 3 * NR_CLASSES as usize;

/// [`Task::look`]: scopes of a search, from the last-level cache to the machine.
pub const NR_SCOPES: u32 = 3;

plain! {
    /// The class of a CPU in whose shard a task waits that does not wait where it is.
    waits_at_class = tlp_waits_at_class(queue_class: u32, caps: u32) -> u32;
}

/// Whether a task waits in the shard where it is; see policy/locality.h.
#[inline]
pub fn waits_here(
    queue_class: u32,
    caps: u32,
    here_class: u32,
    allowed: bool,
    everywhere: bool,
    shard_classes: u32,
) -> bool {
    let (allowed, everywhere) = (u32::from(allowed), u32::from(everywhere));
    // SAFETY: integers in, an integer out.
    let here = unsafe {
        tlp_waits_here(queue_class, caps, here_class, allowed, everywhere, shard_classes)
    };
    here != 0
}

/// Whether a sibling of a shared core is the one whose task goes to an idle core.
#[inline]
pub fn leaves_core(is_first: bool, nr_ticks: u32) -> bool {
    // SAFETY: integers in, an integer out.
    unsafe { tlp_leaves_core(u32::from(is_first), nr_ticks) != 0 }
}

/// Whether a CPU's look for work, counted from 0, compares its shard with another one.
#[inline]
pub fn compares_now(nr_looks: u32) -> bool {
    // SAFETY: an integer in, an integer out.
    unsafe { tlp_compares_now(nr_looks) != 0 }
}

/// `tl_backlog`: what waits in a shard for a CPU that compares.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Backlog {
    /// Of the head.
    pub key_ns: u64,
    /// 0 = nothing waits, and there is no head.
    pub nr_waiting: u32,
    /// CPUs of the shard that serve it.
    pub nr_cpus: u32,
    /// Of the head's clock, 1024 = 1.0; 0 = not measured.
    pub pace_q10: u32,
    /// 0.
    pub reserved: u32,
}
const _: () = assert!(size_of::<Backlog>() == 24);

/// The key that a running task counts with where its CPU compares its shard with another one.
#[inline]
pub fn running_key(key_ns: u64, now_ns: u64) -> u64 {
    // SAFETY: integers in, an integer out.
    unsafe { tlp_running_key(key_ns, now_ns) }
}

/// Whether a CPU takes from another shard although its own has work.
#[inline]
pub fn helps(own: &Backlog, other: &Backlog, slice_ns: u64) -> bool {
    // SAFETY: plain data on both sides.
    unsafe { tlp_helps(own, other, slice_ns) != 0 }
}

impl Task {
    /// Whether it gives up its CPU at once after a change of its type; `wanted`: something waits
    /// that goes before it, or a scalar CPU that it may use is idle. See policy/locality.h.
    pub fn must_leave(&self, class: u32, wanted: bool) -> bool {
        // SAFETY: plain data on both sides; the task is only read.
        unsafe { tlp_must_leave(self, class, wanted.into()) != 0 }
    }

    /// Whether it may go on where it is when there is nothing else for its CPU.
    #[inline]
    pub fn may_stay(&self, class: u32, better_idle: bool, better_core: bool) -> bool {
        // SAFETY: as in `must_leave`.
        unsafe { tlp_may_stay(self, class, u32::from(better_idle), u32::from(better_core)) != 0 }
    }

    /// Class and scope of the `i`-th look for an idle CPU; `None` when there is none left.
    pub fn look(&self, i: u32) -> Option<(u32, u32)> {
        // SAFETY: as in `must_leave`.
        let (class, scope) = unsafe { (tlp_look_class(self, i), tlp_look_scope(self, i)) };
        (class < NR_CLASSES).then_some((class, scope))
    }
}
