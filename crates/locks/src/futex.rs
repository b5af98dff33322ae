// SPDX-License-Identifier: MIT OR Apache-2.0
//! A mutex of one word (Drepper, "Futexes Are Tricky", mutex 3): not fair, and the quickest there
//! is.
//!
//! ```text
//!   0 free     1 held     2 held, and a thread may sleep
//!   acquire    0 -> 1 by compare-and-swap; else wait, and when it is time to sleep, swap in 2
//!   release    swap in 0; was it 2, wake one
//! ```
//!
//! A waiter that has slept swaps in 2, never 1: it cannot know whether it was the last one. Under a
//! strategy that never sleeps the 2 does not occur, and releasing is a plain store.
//!
//! Not fair: a running thread takes the lock before the one that was woken for it. That is what
//! makes it quick, because the line of the word stays where it is.

use crate::raw::RawLock;
use crate::sync::{AtomicU32, Ordering, const_fn, futex_wait, futex_wake};
use crate::wait::Wait;

const FREE: u32 = 0;
const HELD: u32 = 1;
const SLEEPERS: u32 = 2;

/// The mutex.
#[derive(Debug, Default)]
pub struct Futex<W> {
    word: AtomicU32,
    wait: W,
}

impl<W> Futex<W> {
    const_fn! {
        /// A free one.
        pub fn new(wait: W) -> Self {
            Futex { word: AtomicU32::new(FREE), wait }
        }
    }
}

impl<W: Wait> Futex<W> {
    #[inline]
    fn take(&self) -> bool {
        self.word.compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }
}

// SAFETY: only who moves the word away from FREE holds the lock, and that is one thread; the
// exchanges acquire what the release in `unlock` published.
unsafe impl<W: Wait> RawLock for Futex<W> {
    #[inline]
    fn try_lock(&self) -> bool {
        self.take()
    }

    #[cold]
    fn lock_contended(&self) {
        let mut round = 0;
        loop {
            // A look without the intent to write leaves the line with its owner.
            if self.word.load(Ordering::Relaxed) == FREE && self.take() {
                return;
            }
            if self.wait.step(round) {
                break;
            }
            round = round.saturating_add(1);
        }
        while self.word.swap(SLEEPERS, Ordering::Acquire) != FREE {
            futex_wait(&self.word, SLEEPERS);
        }
    }

    #[inline]
    unsafe fn unlock(&self) {
        if !W::SLEEPS {
            self.word.store(FREE, Ordering::Release);
        } else if self.word.swap(FREE, Ordering::Release) == SLEEPERS {
            futex_wake(&self.word, 1);
        }
    }
}
