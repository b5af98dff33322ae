// SPDX-License-Identifier: MIT OR Apache-2.0
//! The table and its locks: a plain one for each request, and a boosted one for the thread that
//! grows it.
//!
//! Problem: while the table grows, each request waits for the steps of one thread. That thread
//! should be fast, and the others need not be (TURBO 11, "hash table resize in memcached").
//!
//! Idea: growing has a lock of its own, whose decoration boosts the core of who holds it. Inside,
//! the table's lock is taken for a few buckets at a time and given back, so that requests come
//! between. A boost for each step would not pay: a step takes microseconds, a change of the clock
//! tens of them (TURBO 8).

use locks::{Block, CpuFrequency, Decorated, Futex, Mutex, Owner};
use turbolane::WideSection;

use crate::checksum::Checksum;
use crate::table::Table;

/// Buckets that are moved under one hold of the table's lock.
const STEP: usize = 64;

/// All keys and values.
pub struct Store<F: CpuFrequency> {
    table: Mutex<Table, Futex<Block>>,
    growing: Mutex<(), Decorated<Futex<Block>, Owner<F>>>,
    checksum: Checksum,
}

/// What a check has found.
#[derive(Debug, PartialEq, Eq)]
pub struct Checked {
    /// Values that are as they were stored.
    pub good: usize,
    /// Values that are not.
    pub bad: usize,
}

impl<F: CpuFrequency> Store<F> {
    /// An empty store; who grows it is boosted through `frequency`.
    pub fn new(frequency: F) -> Store<F> {
        Store {
            table: Mutex::new(Futex::new(Block), Table::new()),
            growing: Mutex::new(Decorated::new(Futex::new(Block), Owner::new(frequency)), ()),
            checksum: Checksum::of_this_cpu(),
        }
    }

    /// Items and buckets.
    pub fn size(&self) -> (usize, usize) {
        let table = self.table.lock();
        (table.len(), table.buckets())
    }

    /// A copy of a key's value.
    pub fn get(&self, key: &[u8]) -> Option<Box<[u8]>> {
        self.table.lock().get(key).map(|item| item.value.clone())
    }

    /// Stores a value; whether the table should grow now.
    pub fn set(&self, key: &[u8], value: Box<[u8]>) -> bool {
        let sum = self.wide(|checksum| checksum.of(&value));
        let mut table = self.table.lock();
        table.set(key, value, sum);
        table.is_crowded()
    }

    /// Takes a key out; whether it was there.
    pub fn delete(&self, key: &[u8]) -> bool {
        self.table.lock().remove(key)
    }

    /// Grows the table as far as it should, boosted; steps that it took.
    pub fn grow(&self) -> usize {
        let _boosted = self.growing.lock();
        let mut steps = 0;
        while self.table.lock().grow(STEP) {
            steps += 1;
        }
        steps
    }

    /// Compares each value with its checksum: a batch of wide code, in one section.
    pub fn check(&self) -> Checked {
        let table = self.table.lock();
        self.wide(|checksum| {
            let good = table.items().filter(|item| checksum.of(&item.value) == item.sum).count();
            Checked { good, bad: table.len() - good }
        })
    }

    /// Runs wide code in a section, on a CPU for it where there is one.
    fn wide<T>(&self, code: impl FnOnce(&Checksum) -> T) -> T {
        // None if the code is not wide on this CPU: level 0 is no section's.
        let _section = WideSection::enter(self.checksum.level).ok();
        code(&self.checksum)
    }
}
