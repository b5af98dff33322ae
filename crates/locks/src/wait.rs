// SPDX-License-Identifier: MIT OR Apache-2.0
//! How to wait: spin, or sleep in the kernel.
//!
//! Problem: a waiter that spins sees the lock at once, keeps a core at full power, and so keeps the
//! others from their turbo. One that sleeps gives its core's power away and costs a wake-up: TURBO
//! 7 finds sleeping better only above 1.5 M (AMD) and 4 M cycles (Intel) of critical section. And
//! on a machine with fewer CPUs than threads a spinner may be what keeps the owner from running.
//!
//! Idea: a lock asks its strategy after each look at the word what to do next, [`Wait::step`], with
//! the number of looks so far. The strategy pauses, or gives the CPU away, or answers that it is
//! time to sleep; how one sleeps on *this* lock is the lock's business, because the thread that
//! ends the wait must know it. [`Wait::SLEEPS`] is false where no waiter ever sleeps: then
//! releasing looks for none, and the lock's words are smaller in effect by one locked instruction.
//!
//! Pauses double up to 64, so that the line of a contended word is asked for less often.

use crate::sync::{self, AtomicU32, Ordering, futex_wait};

/// A waiting strategy. [`Spin`] and [`Block`] are without state; `hybrid::Learned` has some.
pub trait Wait: Send + Sync {
    /// Whether a waiter may sleep in the kernel.
    const SLEEPS: bool;

    /// What a waiter does after its look number `round`, counted from 0. True: sleep now. Only if
    /// [`Wait::SLEEPS`].
    fn step(&self, round: u32) -> bool;
}

/// Spins; after some microseconds gives its CPU to others between looks, and so finds its owner
/// running on machines with few CPUs. Never sleeps.
#[derive(Clone, Copy, Debug, Default)]
pub struct Spin;

/// Spins for about as long as a wake-up takes, then sleeps.
#[derive(Clone, Copy, Debug, Default)]
pub struct Block;

/// Sleeps at once: TURBO's `futex`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sleep;

/// Rounds of [`Spin`] before it yields: five times what [`Block`] spins, since whoever chose to
/// spin expects to be served soon.
const SPIN_BEFORE_YIELD: u32 = 5 * sync::SPIN_ROUNDS;

impl Wait for Spin {
    const SLEEPS: bool = false;

    #[inline]
    fn step(&self, round: u32) -> bool {
        if round < SPIN_BEFORE_YIELD {
            doubled(round)
        } else {
            sync::give_way()
        }
        false
    }
}

impl Wait for Block {
    const SLEEPS: bool = true;

    #[inline]
    fn step(&self, round: u32) -> bool {
        if round >= sync::SPIN_ROUNDS {
            return true;
        }
        doubled(round);
        false
    }
}

impl Wait for Sleep {
    const SLEEPS: bool = true;

    #[inline]
    fn step(&self, _round: u32) -> bool {
        true
    }
}

/// Sleeps on a word that was `seen`, once it says `asleep`: that a thread may sleep, for the one
/// that ends the wait. Not if the word is another one by now.
#[inline]
pub fn sleep_marked(word: &AtomicU32, seen: u32, asleep: u32) {
    let relaxed = Ordering::Relaxed;
    if seen == asleep || word.compare_exchange(seen, asleep, relaxed, relaxed).is_ok() {
        futex_wait(word, asleep);
    }
}

/// The pause of a round: 1, 2, 4, ... 64, 64.
#[inline]
pub fn doubled(round: u32) {
    sync::pause(1 << round.min(6));
}
