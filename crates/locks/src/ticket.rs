// SPDX-License-Identifier: MIT OR Apache-2.0
//! A ticket lock: first come, first served, in two counters.
//!
//! ```text
//!   acquire   my = next, next += 2;  wait until serving == my
//!   release   serving += 2
//!
//!   serving   31                              1   0
//!             +------------------------------+---+
//!             | ticket that is served        | S |    S: a thread may sleep
//!             +------------------------------+---+
//! ```
//!
//! All waiters look at the same word, so each release moves its line to all of them; a waiter that
//! knows that n others come first waits n times as long between looks. That is good for a few
//! waiters; for many there is `mcs`.
//!
//! A thread that is to sleep sets S by compare-and-swap, and sleeps while the word is still that.
//! The releaser swaps in the next ticket without S, and if S was set wakes all: only one of them is
//! next, and the futex does not know which; the others set S again. So the lock sleeps well with
//! few waiters only, as it spins.

use crate::raw::RawLock;
use crate::sync::{AtomicU32, Ordering, const_fn, futex_wake};
use crate::wait::{Wait, sleep_marked};

const SLEEPERS: u32 = 1;
const STEP: u32 = 2;
/// As many as the kernel takes.
const ALL: u32 = u32::MAX >> 1;

/// The lock.
#[derive(Debug, Default)]
pub struct Ticket<W> {
    next: AtomicU32,
    serving: AtomicU32,
    wait: W,
}

impl<W> Ticket<W> {
    const_fn! {
        /// A free one.
        pub fn new(wait: W) -> Self {
            Ticket { next: AtomicU32::new(0), serving: AtomicU32::new(0), wait }
        }
    }
}

impl<W: Wait> Ticket<W> {
    /// Waits for the turn of a ticket.
    #[cold]
    fn wait_for(&self, ticket: u32) {
        let mut round = 0;
        loop {
            let serving = self.serving.load(Ordering::Acquire);
            if serving & !SLEEPERS == ticket {
                return;
            }
            // the pauses for those before this one; the last waits as its strategy says
            let before = ticket.wrapping_sub(serving & !SLEEPERS) / STEP;
            if before > 1 && round < crate::sync::SPIN_ROUNDS {
                crate::sync::pause(before.min(64));
            }
            if self.wait.step(round) {
                sleep_marked(&self.serving, serving, serving | SLEEPERS);
            }
            round = round.saturating_add(1);
        }
    }
}

// SAFETY: `serving` names one ticket, tickets are given out once (2^31 waiters at a time aside),
// and only the holder moves it on.
unsafe impl<W: Wait> RawLock for Ticket<W> {
    #[inline]
    fn try_lock(&self) -> bool {
        // With S it is held, and no ticket is odd.
        let serving = self.serving.load(Ordering::Acquire);
        let (after, relaxed) = (serving.wrapping_add(STEP), Ordering::Relaxed);
        // that no one has taken this ticket means that no one holds the lock
        self.next.compare_exchange(serving, after, Ordering::Acquire, relaxed).is_ok()
    }

    #[inline]
    fn lock_contended(&self) {
        self.lock();
    }

    #[inline]
    fn lock(&self) {
        let ticket = self.next.fetch_add(STEP, Ordering::Relaxed);
        if self.serving.load(Ordering::Acquire) != ticket {
            self.wait_for(ticket);
        }
    }

    #[inline]
    unsafe fn unlock(&self) {
        // only the holder moves the ticket; S may be set meanwhile
        let next = (self.serving.load(Ordering::Relaxed) & !SLEEPERS).wrapping_add(STEP);
        if !W::SLEEPS {
            self.serving.store(next, Ordering::Release);
        } else if self.serving.swap(next, Ordering::Release) & SLEEPERS != 0 {
            futex_wake(&self.serving, ALL);
        }
    }
}
