// SPDX-License-Identifier: MIT OR Apache-2.0
//! A queue of runnable tasks by a time (virtual time, deadline), first come first served among
//! equals.
//!
//! As the kernel's dispatch queues: times are compared as signed numbers, so that a clock near 0
//! may have tasks before it. Nearly always the head may run on the CPU that asks, so this is a
//! heap; a head that may not costs a search through all.

use crate::heap::Heap;
use crate::sys::Tid;

/// A queue.
#[derive(Clone, Debug, Default)]
pub(super) struct Queue {
    heap: Heap,
}

#[inline]
fn task_of(key: u128) -> Tid {
    key as Tid
}

#[inline]
fn time_of(key: u128) -> i64 {
    ((key >> 64) as u64 ^ 1 << 63) as i64
}

impl Queue {
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.heap.keys().is_empty()
    }

    #[inline]
    pub(super) fn head(&self) -> Option<Tid> {
        self.heap.first().map(task_of)
    }

    pub(super) fn len(&self) -> usize {
        self.heap.keys().len()
    }

    /// Time of the head.
    pub(super) fn head_ns(&self) -> Option<i64> {
        self.heap.first().map(time_of)
    }

    /// Insert by time; `order` grows from call to call.
    #[inline]
    pub(super) fn insert(&mut self, task: Tid, time_ns: i64, order: u32) {
        let time = u128::from(time_ns as u64 ^ 1 << 63);
        self.heap.push(time << 64 | u128::from(order) << 32 | u128::from(task));
    }

    /// Take the first that may be taken.
    #[inline]
    pub(super) fn take(&mut self, may: impl Fn(Tid) -> bool) -> Option<Tid> {
        let i = self.first(may)?;
        let task = task_of(self.heap.keys()[i]);
        self.heap.remove(i);
        Some(task)
    }

    /// Time of the first that may be taken.
    pub(super) fn first_ns(&self, may: impl Fn(Tid) -> bool) -> Option<i64> {
        self.first(may).map(|i| time_of(self.heap.keys()[i]))
    }

    #[inline]
    fn first(&self, may: impl Fn(Tid) -> bool) -> Option<usize> {
        if may(self.head()?) {
            return Some(0);
        }
        let all = self.heap.keys().iter().enumerate();
        all.filter(|(_, key)| may(task_of(**key))).min_by_key(|(_, key)| **key).map(|(i, _)| i)
    }

    /// Take all, in order.
    pub(super) fn drain(&mut self) -> Vec<Tid> {
        self.heap.drain().map(task_of).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bits::Mask;
    use crate::sys::{Layout, Sys};
    use cpumodel::Topology;
    use proptest::prelude::*;

    proptest! {
        /// Each CPU gets the allowed task of the least virtual time, the first inserted of equals.
        #[test]
        fn takes_the_first_allowed(
            tasks in prop::collection::vec((-5i64..5, 1u8..8), 0..30),
            cpus in prop::collection::vec(0usize..3, 0..40),
        ) {
            let mut sys = Sys::new(Layout::new(&Topology::uniform(3, 1)));
            let mut queue = Queue::default();
            let mut plain: Vec<(i64, u32, u8)> = Vec::new();
            for (order, &(vtime, allowed)) in tasks.iter().enumerate() {
                let mask = Mask::of(3, (0..3).filter(|cpu| allowed >> cpu & 1 == 1));
                let affinity = sys.intern_affinity(mask);
                let task = sys.add_task(affinity, 0);
                queue.insert(task, vtime, order as u32);
                plain.push((vtime, task, allowed));
            }
            plain.sort();
            for cpu in cpus {
                let expected = plain.iter().position(|(_, _, allowed)| allowed >> cpu & 1 == 1);
                let expected = expected.map(|i| plain.remove(i).1);
                prop_assert_eq!(queue.take(|task| sys.allows(task, cpu)), expected);
            }
        }
    }
}
