// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the raw locks are made of, in one place, so that `tests/loom` can put a model checker's
//! atomics, futex and pauses in its place: the locks' own files are compiled there unchanged.

pub use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

pub(crate) use crate::sys::{futex_wait, futex_wake};

/// `PAUSE` so often: a hint to the core that it spins (and, on a core with siblings, to let those
/// run).
#[inline]
pub fn pause(times: u32) {
    for _ in 0..times {
        core::hint::spin_loop();
    }
}

/// Lets others run on this CPU.
#[cold]
pub fn give_way() {
    std::thread::yield_now();
}

/// Rounds of doubled pauses before a waiter sleeps or yields: 1 + 2 + ... + 64 = 127 pauses are 3
/// to 6 us on cores whose PAUSE takes 45 to 140 cycles, which is what waking a sleeper costs (3.7
/// to 6 us, measured on a 2-CPU guest). A waiter that spins as long as a sleep would have cost
/// loses at most twice what the better of the two would have.
pub const SPIN_ROUNDS: u32 = 7;

/// Looks of the head of a queue at a word that others take before it, until it has itself promised
/// the word: with pauses of 64 some 0.3 to 1 ms, the time after which parking_lot's mutex is fair.
pub const PATIENCE_LOOKS: u32 = 256;

/// Wake-ups in vain after which a sleeping head has itself promised the word: it has paid for each.
pub const PATIENCE_WAKES: u32 = 4;

/// Looks of a server for its next client before it sleeps, a pause each: some 60 to 200 us. A
/// server that sleeps costs that client a wake-up, one that looks costs a core.
pub const SERVER_LOOKS: u32 = 4096;

/// A constructor that is `const` here and cannot be in a model.
macro_rules! const_fn {
    ($(#[$doc:meta])* pub fn new($($arg:ident : $type:ty),*) -> Self $body:block) => {
        $(#[$doc])*
        pub const fn new($($arg: $type),*) -> Self $body
    };
}
pub(crate) use const_fn;
