// SPDX-License-Identifier: MIT OR Apache-2.0
//! A queue lock that a running thread may pass: as quick as `futex`, and as kind to its waiters as
//! `mcs`.
//!
//! Problem: first come, first served moves the lock to another core at every contended acquisition,
//! with all that the section touches; two threads with short sections get a quarter to a half of
//! what they get through a mutex. `futex` leaves the lock where it is, but all its waiters look at
//! one word, and one may starve.
//!
//! Idea (as the kernel's mutex with its queue of spinners): the lock is a word that every running
//! thread may take. Waiters wait for each other in an MCS queue, and only its head looks at the
//! word.
//!
//! ```text
//!   running thread ---- takes the word if it is free and not promised -----+
//!                                                                          v
//!   waiters  C -> B -> [ A, the head ] -- looks at the word ------------> word   0 free  1 held
//!            in the queue's own lines      and leaves the queue with it          2 held, the head sleeps
//! ```
//!
//! The head is patient for so many looks, or so many wake-ups in vain; then it has the next release
//! *promised*: only the head takes the word from then on. A thread that has looked at the promise
//! just before it was given may pass once more; so each thread passes a head at most once after its
//! patience has ended, and after the head the order is that of arrival.
//!
//! The promise is a hint to threads that would pass, the exchange of the word alone excludes:
//! whatever is seen of the promise, and however late, one thread holds the lock.

use crate::mcs::Mcs;
use crate::raw::RawLock;
use crate::sync::{self, AtomicU32, Ordering, const_fn, futex_wait, futex_wake};
use crate::wait::Wait;

const FREE: u32 = 0;
const HELD: u32 = 1;
const HEAD_SLEEPS: u32 = 2;

const NOBODY: u32 = 0;
const THE_HEAD: u32 = 1;

/// The lock.
#[derive(Debug, Default)]
pub struct Barging<W> {
    word: AtomicU32,
    promised: AtomicU32,
    queue: Mcs<W>,
    wait: W,
}

impl<W: Copy> Barging<W> {
    const_fn! {
        /// A free one.
        pub fn new(wait: W) -> Self {
            Barging {
                word: AtomicU32::new(FREE),
                promised: AtomicU32::new(NOBODY),
                queue: Mcs::new(wait),
                wait,
            }
        }
    }
}

impl<W: Wait> Barging<W> {
    #[inline]
    fn take(&self) -> bool {
        self.word.compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// The head of the queue takes the word, asleep or not.
    fn take_as_head(&self) {
        let mut round = 0;
        loop {
            if self.word.load(Ordering::Relaxed) == FREE && self.take() {
                return;
            }
            if self.wait.step(round) {
                return self.take_after_sleep();
            }
            round = round.saturating_add(1);
            if round == sync::PATIENCE_LOOKS {
                self.promised.store(THE_HEAD, Ordering::Relaxed);
            }
        }
    }

    fn take_after_sleep(&self) {
        let mut woken = 0;
        while self.word.swap(HEAD_SLEEPS, Ordering::Acquire) != FREE {
            if woken == sync::PATIENCE_WAKES {
                self.promised.store(THE_HEAD, Ordering::Relaxed);
            }
            futex_wait(&self.word, HEAD_SLEEPS);
            woken += 1;
        }
        // no one sleeps for the word any more: the next head comes when this one leaves the queue
        self.word.store(HELD, Ordering::Relaxed);
    }
}

// SAFETY: only who moves the word away from FREE holds the lock, and that is one thread; the
// exchanges acquire what the release in `unlock` published.
unsafe impl<W: Wait> RawLock for Barging<W> {
    #[inline]
    fn try_lock(&self) -> bool {
        self.promised.load(Ordering::Relaxed) == NOBODY && self.take()
    }

    #[cold]
    fn lock_contended(&self) {
        self.queue.lock();
        self.take_as_head();
        if self.promised.load(Ordering::Relaxed) != NOBODY {
            self.promised.store(NOBODY, Ordering::Relaxed);
        }
        // SAFETY: acquired above.
        unsafe { self.queue.unlock() };
    }

    #[inline]
    unsafe fn unlock(&self) {
        if !W::SLEEPS {
            self.word.store(FREE, Ordering::Release);
        } else if self.word.swap(FREE, Ordering::Release) == HEAD_SLEEPS {
            futex_wake(&self.word, 1);
        }
    }
}
