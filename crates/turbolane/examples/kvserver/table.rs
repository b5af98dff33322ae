// SPDX-License-Identifier: MIT OR Apache-2.0
//! A hash table that grows bucket by bucket, so that no request waits for all of it.
//!
//! As memcached's: chains in buckets, twice as many buckets when there are 1.5 items for each.
//! While it grows, buckets below `moved` of the old array are in the new one already; the others
//! are still in the old one.
//!
//! ```text
//!   old   [ moved ... | still here ... ]        bucket = hash mod len(old), if that is not moved yet
//!   new   [ .......... twice as many ......... ]         hash mod len(new), else
//! ```

use std::hash::{BuildHasher, RandomState};

/// One key and what is stored under it.
pub struct Item {
    pub key: Box<[u8]>,
    pub value: Box<[u8]>,
    /// Of the value, see `checksum`.
    pub sum: u64,
    next: Chain,
}

type Chain = Option<Box<Item>>;

/// The table.
pub struct Table {
    hasher: RandomState,
    buckets: Vec<Chain>,
    old: Vec<Chain>,
    moved: usize,
    len: usize,
}

/// Buckets of an empty table.
const FEWEST: usize = 16;

impl Table {
    pub fn new() -> Table {
        let buckets = empty(FEWEST);
        Table { hasher: RandomState::new(), buckets, old: Vec::new(), moved: 0, len: 0 }
    }

    /// Items.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Buckets, those that it grows to included.
    pub fn buckets(&self) -> usize {
        self.buckets.len()
    }

    /// It should grow, and does not yet.
    pub fn is_crowded(&self) -> bool {
        self.old.is_empty() && 2 * self.len > 3 * self.buckets.len()
    }

    pub fn get(&self, key: &[u8]) -> Option<&Item> {
        let hash = self.hash(key);
        let chain = match self.old_index(hash) {
            Some(index) => &self.old[index],
            None => &self.buckets[self.index(hash)],
        };
        std::iter::successors(chain.as_deref(), |item| item.next.as_deref())
            .find(|item| *item.key == *key)
    }

    /// Stores a value in the place of the one before.
    pub fn set(&mut self, key: &[u8], value: Box<[u8]>, sum: u64) {
        self.remove(key);
        let chain = self.chain_mut(key);
        let next = chain.take();
        *chain = Some(Box::new(Item { key: key.into(), value, sum, next }));
        self.len += 1;
    }

    /// Takes a key out; whether it was there.
    pub fn remove(&mut self, key: &[u8]) -> bool {
        let mut place = self.chain_mut(key);
        while place.as_ref().is_some_and(|item| *item.key != *key) {
            place = &mut place.as_mut().expect("looked at above").next;
        }
        let Some(found) = place.take() else { return false };
        *place = found.next;
        self.len -= 1;
        true
    }

    /// All items, in no order.
    pub fn items(&self) -> impl Iterator<Item = &Item> {
        self.old
            .iter()
            .chain(&self.buckets)
            .flat_map(|chain| std::iter::successors(chain.as_deref(), |item| item.next.as_deref()))
    }

    /// Begins to grow if it should, and moves so many buckets; whether there is more to do.
    pub fn grow(&mut self, buckets: usize) -> bool {
        if self.is_crowded() {
            let twice = empty(2 * self.buckets.len());
            self.old = std::mem::replace(&mut self.buckets, twice);
            self.moved = 0;
        }
        for _ in 0..buckets {
            if self.moved == self.old.len() {
                break;
            }
            let mut chain = self.old[self.moved].take();
            self.moved += 1;
            while let Some(mut item) = chain {
                chain = item.next.take();
                let index = self.index(self.hash(&item.key));
                item.next = self.buckets[index].take();
                self.buckets[index] = Some(item);
            }
        }
        if self.moved == self.old.len() {
            self.old = Vec::new();
            self.moved = 0;
        }
        !self.old.is_empty() || self.is_crowded()
    }

    fn hash(&self, key: &[u8]) -> u64 {
        self.hasher.hash_one(key)
    }

    fn index(&self, hash: u64) -> usize {
        hash as usize & (self.buckets.len() - 1)
    }

    /// The old bucket, if it has not been moved.
    fn old_index(&self, hash: u64) -> Option<usize> {
        let mask = self.old.len().checked_sub(1)?;
        Some(hash as usize & mask).filter(|&index| index >= self.moved)
    }

    fn chain_mut(&mut self, key: &[u8]) -> &mut Chain {
        let hash = self.hash(key);
        match self.old_index(hash) {
            Some(index) => &mut self.old[index],
            None => {
                let index = self.index(hash);
                &mut self.buckets[index]
            }
        }
    }
}

fn empty(buckets: usize) -> Vec<Chain> {
    std::iter::repeat_with(|| None).take(buckets).collect()
}
