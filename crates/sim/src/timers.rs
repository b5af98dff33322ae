// SPDX-License-Identifier: MIT OR Apache-2.0
//! What happens next: timers that always exist, and those that come and go.
//!
//! Problem: each CPU has exactly one next event (its work ends, a tick, an interrupt), which is
//! moved with each change of its speed. In a plain queue every move leaves a stale entry behind.
//!
//! Idea: two structures.
//!
//! [`Timers`] is a tournament tree with one leaf per CPU (or core): moving a timer plays the games
//! on its way to the root again, 6 for 64 CPUs, 10 for 1,024, and stops where the winner is and
//! stays somebody else. [`Agenda`] is a 4-ary heap for what is never moved: ends of sleep,
//! arrivals. Its key packs time, order of insertion and what, so that a comparison is one of two
//! integers.
//!
//! Ties: the lowest index; what was inserted first. Nothing depends on addresses or hashes.

/// "Never".
pub const NEVER: u64 = u64::MAX;

/// Bits of a timer's index in its packed key.
const INDEX_BITS: u32 = 10;
/// Timers that a tree can hold.
pub const TIMERS_MAX: usize = 1 << INDEX_BITS;

/// A fixed number of timers of which the earliest is known.
#[derive(Clone, Debug)]
pub struct Timers {
    /// `node[1]` is the root, the leaves begin at `leaves`. Time and index in one word, so that the
    /// earlier of two is the lesser number:
    ///
    /// ```text
    ///   63 .. 10            9 .. 0
    ///   +------------------+-------+
    ///   | time, ns         | index |     2^54 ns are 208 days; all ones are "never"
    ///   +------------------+-------+
    /// ```
    node: Vec<u64>,
    leaves: usize,
}

#[inline]
fn pack(at_ns: u64, index: usize) -> u64 {
    at_ns.min(NEVER >> INDEX_BITS) << INDEX_BITS | index as u64
}

#[inline]
fn time_of(key: u64) -> u64 {
    let at_ns = key >> INDEX_BITS;
    if at_ns == NEVER >> INDEX_BITS { NEVER } else { at_ns }
}

impl Timers {
    /// `nr` timers, all [`NEVER`].
    pub fn new(nr: usize) -> Self {
        assert!(nr <= TIMERS_MAX, "{nr} timers exceed {TIMERS_MAX}");
        let leaves = nr.max(1).next_power_of_two();
        let mut node = vec![NEVER; 2 * leaves];
        for i in 0..leaves {
            node[leaves + i] = pack(NEVER, i);
        }
        for i in (1..leaves).rev() {
            node[i] = node[2 * i].min(node[2 * i + 1]);
        }
        Timers { node, leaves }
    }

    /// The earliest: (time, index).
    #[inline]
    pub fn first(&self) -> (u64, u32) {
        let key = self.node[1];
        (time_of(key), key as u32 & (TIMERS_MAX as u32 - 1))
    }

    /// When a timer is due.
    #[inline]
    pub fn get(&self, index: usize) -> u64 {
        time_of(self.node[self.leaves + index])
    }

    /// Move a timer.
    #[inline]
    pub fn set(&mut self, index: usize, at_ns: u64) {
        let mut i = self.leaves + index;
        let key = pack(at_ns, index);
        if self.node[i] == key {
            return;
        }
        self.node[i] = key;
        while i > 1 {
            let winner = self.node[i & !1].min(self.node[i | 1]);
            i /= 2;
            if self.node[i] == winner {
                return;
            }
            self.node[i] = winner;
        }
    }
}

/// Events that are added once and taken in order of time, then of insertion.
#[derive(Clone, Debug, Default)]
pub struct Agenda {
    heap: Vec<u128>,
    inserted: u32,
}

impl Agenda {
    /// Time of the next event; [`NEVER`] if there is none.
    #[inline]
    pub fn first_ns(&self) -> u64 {
        self.heap.first().map_or(NEVER, |key| (key >> 64) as u64)
    }

    /// Number of events.
    pub fn len(&self) -> usize {
        self.heap.len()
    }

    /// True if there is none.
    pub fn is_empty(&self) -> bool {
        self.heap.is_empty()
    }

    /// Add an event. The order of insertion is kept among 2^31 neighbours of the same time.
    #[inline]
    pub fn push(&mut self, at_ns: u64, what: u32) {
        self.inserted = self.inserted.wrapping_add(1);
        let key = u128::from(at_ns) << 64 | u128::from(self.inserted) << 32 | u128::from(what);
        let mut i = self.heap.len();
        self.heap.push(key);
        while i > 0 {
            let parent = (i - 1) / 4;
            if self.heap[parent] <= key {
                break;
            }
            self.heap[i] = self.heap[parent];
            i = parent;
        }
        self.heap[i] = key;
    }

    /// Take the next event: (time, what).
    #[inline]
    pub fn pop(&mut self) -> Option<(u64, u32)> {
        let top = *self.heap.first()?;
        let last = self.heap.pop()?;
        if !self.heap.is_empty() {
            self.sift_down(last);
        }
        Some(((top >> 64) as u64, top as u32))
    }

    fn sift_down(&mut self, key: u128) {
        let nr = self.heap.len();
        let mut i = 0;
        loop {
            let first = 4 * i + 1;
            if first >= nr {
                break;
            }
            let mut least = first;
            for child in first + 1..(first + 4).min(nr) {
                if self.heap[child] < self.heap[least] {
                    least = child;
                }
            }
            if self.heap[least] >= key {
                break;
            }
            self.heap[i] = self.heap[least];
            i = least;
        }
        self.heap[i] = key;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// After any moves the first timer is the earliest, the lowest index among equals.
        #[test]
        fn the_first_is_the_earliest(
            nr in 1usize..40,
            moves in prop::collection::vec((0usize..40, 0u64..20), 0..200),
        ) {
            let mut timers = Timers::new(nr);
            let mut plain = vec![NEVER; nr];
            for (index, at_ns) in moves {
                timers.set(index % nr, at_ns);
                plain[index % nr] = at_ns;
                let least = plain.iter().enumerate().min_by_key(|(i, at)| (**at, *i)).unwrap();
                prop_assert_eq!(timers.first(), (*least.1, least.0 as u32));
            }
        }

        /// Events come out by time, equal ones in the order they went in.
        #[test]
        fn events_come_in_order(times in prop::collection::vec(0u64..30, 0..200)) {
            let mut agenda = Agenda::default();
            for (i, &at_ns) in times.iter().enumerate() {
                agenda.push(at_ns, i as u32);
            }
            let mut expected: Vec<(u64, u32)> = times.iter().copied().zip(0..).collect();
            expected.sort();
            let mut taken = Vec::new();
            while let Some(event) = agenda.pop() {
                taken.push(event);
            }
            prop_assert_eq!(taken, expected);
        }
    }
}
