// SPDX-License-Identifier: MIT OR Apache-2.0
//! Who has which slot.
//!
//! Problem: slots are few (16384), threads come and go by the million, and nobody tells the daemon
//! when one ends: in scx mode the scheduler clears the slot's tid, in affinity mode nothing does.
//! And the page itself cannot be trusted, any application may write it.
//!
//! Idea: a table of our own says who was given what. Slots never used come first. When they run
//! out, the table is swept once: slots whose thread has ended, or whose tid on the page is gone,
//! are collected, and given out from that list. A sweep looks at every slot (16384 reads of /proc,
//! about 0.1 s), so there is at most one per second: with all slots in use by living threads, more
//! threads are refused cheaply.
//!
//! A thread that asks again gets its slot again: after it lost the page, after `exec`, and when
//! several copies of the library in one process ask for the same thread.

use std::collections::HashMap;
use std::time::{Duration, Instant};

/// Shortest time between two sweeps.
const SWEEP_PERIOD: Duration = Duration::from_secs(1);

/// A thread, named for good: numbers are used again, start times with them are not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Owner {
    pub tid: u32,
    pub tgid: u32,
    pub start_ticks: u64,
}

/// A slot that was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Given {
    pub slot: u32,
    /// False if it was this thread's already.
    pub is_new: bool,
}

/// The table.
#[derive(Debug)]
pub(super) struct Slots {
    /// By slot; as long as slots were ever used.
    owners: Vec<Option<Owner>>,
    by_tid: HashMap<u32, u32>,
    /// Used before, and free.
    free: Vec<u32>,
    capacity: usize,
    last_sweep: Option<Instant>,
}

impl Slots {
    pub fn new(capacity: usize) -> Self {
        let (owners, by_tid, free) = Default::default();
        Slots { owners, by_tid, free, capacity, last_sweep: None }
    }

    /// A slot for the thread; `None` if all are in use. `has_ended` tells whether the owner of a
    /// slot has.
    pub fn give(&mut self, owner: Owner, has_ended: impl Fn(u32, Owner) -> bool) -> Option<Given> {
        if let Some(&slot) = self.by_tid.get(&owner.tid) {
            let known = self.owners[slot as usize].replace(owner);
            return Some(Given { slot, is_new: known != Some(owner) });
        }
        if self.free.is_empty() && self.owners.len() == self.capacity {
            self.sweep(has_ended);
        }
        let slot = match self.free.pop() {
            Some(slot) => slot,
            None if self.owners.len() < self.capacity => {
                self.owners.push(None);
                self.owners.len() as u32 - 1
            }
            None => return None,
        };
        self.owners[slot as usize] = Some(owner);
        self.by_tid.insert(owner.tid, slot);
        Some(Given { slot, is_new: true })
    }

    /// Takes a slot back.
    pub fn release(&mut self, slot: u32) {
        if let Some(owner) = self.owners.get_mut(slot as usize).and_then(Option::take) {
            self.by_tid.remove(&owner.tid);
            self.free.push(slot);
        }
    }

    /// The slots in use, with their owners.
    pub fn iter(&self) -> impl Iterator<Item = (u32, Owner)> {
        let slots = self.owners.iter().enumerate();
        slots.filter_map(|(slot, owner)| Some((slot as u32, (*owner)?)))
    }

    fn sweep(&mut self, has_ended: impl Fn(u32, Owner) -> bool) {
        if self.last_sweep.is_some_and(|last| last.elapsed() < SWEEP_PERIOD) {
            return;
        }
        let ended: Vec<u32> = self
            .iter()
            .filter(|&(slot, owner)| has_ended(slot, owner))
            .map(|(slot, _)| slot)
            .collect();
        for slot in ended {
            self.release(slot);
        }
        self.last_sweep = Some(Instant::now());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::{HashMap, HashSet};

    fn owner(tid: u32) -> Owner {
        Owner { tid, tgid: tid, start_ticks: 1 }
    }

    /// A thread keeps its slot; another with the same number, later, gets it as a new one.
    #[test]
    fn same_thread_same_slot() {
        let mut slots = Slots::new(4);
        let never = |_, _| false;
        assert_eq!(slots.give(owner(7), never), Some(Given { slot: 0, is_new: true }));
        assert_eq!(slots.give(owner(8), never), Some(Given { slot: 1, is_new: true }));
        assert_eq!(slots.give(owner(7), never), Some(Given { slot: 0, is_new: false }));
        let later = Owner { start_ticks: 2, ..owner(7) };
        assert_eq!(slots.give(later, never), Some(Given { slot: 0, is_new: true }));
    }

    /// A full table is swept, but not at every request.
    #[test]
    fn full_table_is_swept_once_a_second() {
        let mut slots = Slots::new(2);
        let looks = std::cell::Cell::new(0);
        let never = |_, _| {
            looks.set(looks.get() + 1);
            false
        };
        for tid in 1..=2 {
            slots.give(owner(tid), never).unwrap();
        }
        for tid in 3..100 {
            assert_eq!(slots.give(owner(tid), never), None);
        }
        assert_eq!(looks.get(), 2);
        slots.last_sweep = None;
        let given = slots.give(owner(100), |_, owner| owner.tid == 1);
        assert_eq!(given, Some(Given { slot: 0, is_new: true }));
    }

    proptest! {
        /// Whoever comes and ends in whatever order: no two living threads share a slot, no slot
        /// is out of range, a refusal means that all are taken.
        #[test]
        fn slots_are_never_shared(steps in prop::collection::vec((1u32..20, any::<bool>()), 0..200)) {
            let mut slots = Slots::new(8);
            let mut alive: HashMap<u32, u32> = HashMap::new();
            for (tid, lives) in steps {
                if !lives {
                    alive.remove(&tid);
                    continue;
                }
                slots.last_sweep = None;
                match slots.give(owner(tid), |_, owner| !alive.contains_key(&owner.tid)) {
                    Some(given) => {
                        prop_assert!(given.slot < 8);
                        alive.insert(tid, given.slot);
                    }
                    None => prop_assert_eq!(alive.len(), 8),
                }
                let taken: HashSet<_> = alive.values().collect();
                prop_assert_eq!(taken.len(), alive.len());
            }
        }
    }
}
