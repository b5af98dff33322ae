// SPDX-License-Identifier: MIT OR Apache-2.0
//! What happens next: timers that always exist, and those that come and go.
//!
//! Problem: each CPU has exactly one next event (its work ends, a tick, an interrupt), which is
//! moved with each change of its speed. In a plain queue every move leaves a stale entry.
//!
//! Idea: two structures.
//!
//! [`Timers`] is a tournament with one leaf per CPU (or core), four to a game: moving a timer plays
//! the games up to the root again, 3 for 64 CPUs, 5 for 1,024, and stops where the winner is
//! another timer and stays the same. A game of four has no branch. (Eight to a game are fewer
//! rounds and more instructions.) [`Agenda`] is a heap for what is never moved: ends of sleep,
//! arrivals. Its key packs time, order of insertion and what, so that a comparison is one of two
//! integers.
//!
//! Ties: the lowest index; what was inserted first. Nothing depends on addresses or hashes.

use crate::heap::Heap;

/// "Never".
pub const NEVER: u64 = u64::MAX;

/// Bits of a timer's index in its packed key.
const INDEX_BITS: u32 = 10;
/// Timers that a tree can hold.
pub const TIMERS_MAX: usize = 1 << INDEX_BITS;

/// Timers in one game.
const WAYS: usize = 4;
/// Games from a leaf to the root at most: 4^5 leaves are [`TIMERS_MAX`].
const ROUNDS_MAX: usize = 5;

/// Two to a line of the cache.
#[derive(Clone, Copy, Debug)]
#[repr(align(32))]
struct Game([u64; WAYS]);

impl Game {
    /// The least of all, without branches.
    #[inline]
    fn winner(&self) -> u64 {
        let [a, b, c, d] = self.0;
        a.min(b).min(c.min(d))
    }
}

/// A fixed number of timers of which the earliest is known.
#[derive(Clone, Debug)]
pub struct Timers {
    /// Round by round, the leaves first. Time and index in one word, so that the earlier of two is
    /// the lesser number:
    ///
    /// ```text
    ///   63 .. 10            9 .. 0
    ///   +------------------+-------+
    ///   | time, ns         | index |     2^54 ns are 208 days; all ones are "never"
    ///   +------------------+-------+
    /// ```
    games: Vec<Game>,
    /// Where each round begins in `games`.
    begins: [usize; ROUNDS_MAX],
    rounds: usize,
    first: u64,
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
        let mut timers =
            Timers { games: Vec::new(), begins: [0; ROUNDS_MAX], rounds: 0, first: pack(NEVER, 0) };
        let mut keys: Vec<u64> = (0..nr.max(1)).map(|i| pack(NEVER, i)).collect();
        while timers.rounds == 0 || keys.len() > 1 {
            timers.begins[timers.rounds] = timers.games.len();
            timers.rounds += 1;
            let games = keys.chunks(WAYS).map(|chunk| {
                let mut game = Game([u64::MAX; WAYS]);
                game.0[..chunk.len()].copy_from_slice(chunk);
                game
            });
            let games: Vec<Game> = games.collect();
            keys = games.iter().map(Game::winner).collect();
            timers.games.extend(games);
        }
        timers
    }

    /// The earliest: (time, index).
    #[inline]
    pub fn first(&self) -> (u64, u32) {
        (time_of(self.first), self.first as u32 & (TIMERS_MAX as u32 - 1))
    }

    /// When a timer is due.
    #[inline]
    pub fn get(&self, index: usize) -> u64 {
        time_of(self.games[index / WAYS].0[index % WAYS])
    }

    /// Move a timer.
    #[inline]
    pub fn set(&mut self, index: usize, at_ns: u64) {
        let mut key = pack(at_ns, index);
        let mut i = index;
        for &begin in &self.begins[..self.rounds] {
            let game = &mut self.games[begin + i / WAYS];
            let slot = &mut game.0[i % WAYS];
            if *slot == key {
                return;
            }
            *slot = key;
            key = game.winner();
            i /= WAYS;
        }
        self.first = key;
    }
}

/// Events that are added once and taken in order of time, then of insertion.
#[derive(Clone, Debug, Default)]
pub struct Agenda {
    heap: Heap,
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
        self.heap.keys().len()
    }

    /// True if there is none.
    pub fn is_empty(&self) -> bool {
        self.heap.keys().is_empty()
    }

    /// Add an event. The order of insertion is kept among 2^31 neighbours of the same time.
    #[inline]
    pub fn push(&mut self, at_ns: u64, what: u32) {
        self.inserted = self.inserted.wrapping_add(1);
        self.heap
            .push(u128::from(at_ns) << 64 | u128::from(self.inserted) << 32 | u128::from(what));
    }

    /// Put all events off by so long.
    pub fn delay(&mut self, ns: u64) {
        let keys: Vec<u128> = self.heap.drain().collect();
        // none is at a time that this would overflow: they are within the run
        keys.into_iter().for_each(|key| self.heap.push(key + (u128::from(ns) << 64)));
    }

    /// Take the next event: (time, what).
    #[inline]
    pub fn pop(&mut self) -> Option<(u64, u32)> {
        let top = self.heap.first()?;
        self.heap.remove(0);
        Some(((top >> 64) as u64, top as u32))
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
            nr in 1usize..600,
            moves in prop::collection::vec((0usize..600, 0u64..20), 0..200),
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
