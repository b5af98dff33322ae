// SPDX-License-Identifier: MIT OR Apache-2.0
//! The lane's queues: what `bpf/clocks.bpf.h` has of each.

use policy::{Clock, NR_QUEUES};

use crate::sched::queue::Queue;

/// A queue that CPUs share.
#[derive(Clone, Debug, Default)]
pub(super) struct Shared {
    pub(super) queue: Queue,
    /// Virtual time of its tasks; at rest in the one of tasks that were in none yet.
    pub(super) clock: Clock,
    /// Tasks that run on its clock.
    pub(super) nr_running: u32,
    /// CPUs that are there for it.
    pub(super) nr_cpus: u32,
    /// `tl_queue_id`, `tl_pinned_id`; 0 in the one of tasks that were in none yet.
    pub(super) id: u32,
}

impl Shared {
    pub(super) fn new(id: u32) -> Self {
        Shared { id, nr_cpus: 1, ..Default::default() }
    }

    /// Tasks that wait, and those that run on its clock.
    #[inline]
    pub(super) fn nr_tasks(&self) -> u32 {
        self.queue.len() as u32 + self.nr_running
    }
}

/// All queues: of the shards, of the CPUs, and the one of tasks that were in none yet.
pub(super) fn queues(nr_shards: usize, nr_cpus: usize) -> Vec<Shared> {
    let shards =
        (0..nr_shards as u32 * NR_QUEUES).map(|i| policy::queue_id(i / NR_QUEUES, i % NR_QUEUES));
    let pinned = (0..nr_cpus as u32).map(policy::pinned_id);
    shards.chain(pinned).chain([0]).map(Shared::new).collect()
}
