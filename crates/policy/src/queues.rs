// SPDX-License-Identifier: MIT OR Apache-2.0
//! The queues of a shard, and the order in which a CPU serves them: policy/queues.h.

use crate::LEVEL_MAX;

unsafe extern "C" {
    fn tlp_step_has_default(step: u32) -> u32;
}

/// Queue of default tasks.
pub const QUEUE_DEFAULT: u32 = 0;
/// Queue of scalar tasks.
pub const QUEUE_SCALAR: u32 = 1;
/// Queue of wide tasks for class 1; those of higher classes follow.
pub const QUEUE_WIDE: u32 = 2;
/// Number of queues per shard.
pub const NR_QUEUES: u32 = QUEUE_WIDE + LEVEL_MAX;
/// "No queue", e.g. of an idle CPU.
pub const QUEUE_NONE: u32 = 255;

plain! {
    /// Id of a queue of a shard.
    queue_id = tlp_queue_id(shard: u32, queue: u32) -> u32;
    /// Id of the queue of the tasks that may run on this CPU only.
    pinned_id = tlp_pinned_id(cpu: u32) -> u32;
    /// Class of the CPUs that are there for a queue; [`NR_CLASSES`] if all are.
    queue_class = tlp_queue_class(queue: u32) -> u32;
    /// Steps in which a CPU of the class looks for work.
    nr_steps = tlp_nr_steps(class: u32) -> u32;
    /// The step's queue other than the default queue.
    step_queue = tlp_step_queue(class: u32, step: u32) -> u32;
    /// Step at which the class serves the queue; `nr_steps(class)` or more if never.
    queue_step = tlp_queue_step(class: u32, queue: u32) -> u32;
}

/// Whether the default queue belongs to the step.
pub fn step_has_default(step: u32) -> bool {
    // SAFETY: integers in, an integer out.
    unsafe { tlp_step_has_default(step) != 0 }
}
