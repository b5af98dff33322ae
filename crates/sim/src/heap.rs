// SPDX-License-Identifier: MIT OR Apache-2.0
//! A heap of keys that are all different, least first.
//!
//! Problem: much of what the engine does is to take the earliest of something. A heap of 100 keys
//! is seven levels deep, and each comparison is an unpredictable branch.
//!
//! Idea: the key that replaces the root comes from the bottom and nearly always belongs there. So
//! it is not compared while it sinks (Floyd's variant): the hole sinks to a leaf, by the lesser of
//! two children, which takes no branch; and the key rises from there, by less than one level on the
//! mean.

/// The root's index is 0, the children of `i` are `2 * i + 1` and the next.
#[derive(Clone, Debug, Default)]
pub(crate) struct Heap {
    keys: Vec<u128>,
}

impl Heap {
    /// All keys, the least first, the others in no order.
    #[inline]
    pub(crate) fn keys(&self) -> &[u128] {
        &self.keys
    }

    /// The least.
    #[inline]
    pub(crate) fn first(&self) -> Option<u128> {
        self.keys.first().copied()
    }

    /// Add a key.
    #[inline]
    pub(crate) fn push(&mut self, key: u128) {
        self.keys.push(key);
        self.rise(self.keys.len() - 1, key);
    }

    /// Take the key at an index of `keys`.
    #[inline]
    pub(crate) fn remove(&mut self, i: usize) {
        let last = self.keys.pop();
        if let Some(last) = last
            && i < self.keys.len()
        {
            let hole = self.sink(i);
            self.rise(hole, last);
        }
    }

    /// Take all, in order.
    pub(crate) fn drain(&mut self) -> impl Iterator<Item = u128> + '_ {
        self.keys.sort_unstable();
        self.keys.drain(..)
    }

    /// Move the hole at `i` down to a leaf; returns where it is.
    #[inline]
    fn sink(&mut self, mut i: usize) -> usize {
        let keys = &mut self.keys[..];
        loop {
            let first = 2 * i + 1;
            match keys.get(first..first + 2) {
                Some(&[a, b]) => {
                    let least = first + usize::from(b < a);
                    keys[i] = keys[least];
                    i = least;
                }
                _ if first < keys.len() => {
                    keys[i] = keys[first];
                    return first;
                }
                _ => return i,
            }
        }
    }

    /// Put the key into the hole at `i`, or above it.
    #[inline]
    fn rise(&mut self, mut i: usize, key: u128) {
        let keys = &mut self.keys[..];
        while i > 0 {
            let parent = (i - 1) / 2;
            if keys[parent] <= key {
                break;
            }
            keys[i] = keys[parent];
            i = parent;
        }
        keys[i] = key;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Whatever is added and removed, the first is the least, and nothing is lost.
        #[test]
        fn the_first_is_the_least(
            keys in prop::collection::btree_set(0u128..1000, 1..200),
            removed in prop::collection::vec(0usize..1000, 0..100),
        ) {
            let mut heap = Heap::default();
            let mut plain: Vec<u128> = Vec::new();
            // neither ascending nor descending
            let mixed = keys.iter().map(|key| key * 617 % 1009 * 1000 + key);
            for key in mixed {
                heap.push(key);
                plain.push(key);
            }
            for i in removed {
                prop_assert_eq!(heap.first(), plain.iter().min().copied());
                if let Some(&key) = heap.keys().get(i % plain.len().max(1)) {
                    heap.remove(i % plain.len());
                    plain.retain(|&other| other != key);
                }
            }
            plain.sort_unstable();
            prop_assert!(heap.drain().eq(plain));
        }
    }
}
