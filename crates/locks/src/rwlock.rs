// SPDX-License-Identifier: MIT OR Apache-2.0
//! Many readers or one writer; writers queue at a lock of their own, decorations included.
//!
//! ```text
//!   31  30  29                       0
//!   +---+---+-------------------------+
//!   | W | S | readers                 |   W: a writer writes, or waits for readers to leave
//!   +---+---+-------------------------+   S: a thread sleeps; only with W
//!
//!   read      +1 if not W            write     gate.lock(); set W; wait until readers == 0
//!   done      -1; the last one       done      swap in 0, was S set: wake all; gate.unlock()
//!             with S: wake all
//! ```
//!
//! A writer keeps new readers out as soon as it is at the gate's head, so readers do not starve
//! writers; an unbroken row of writers starves readers. Sleepers of both kinds share the word: all
//! are woken, and those whose turn it is not sleep again.

use crate::raw::RawLock;
use crate::sync::{AtomicU32, Ordering, const_fn, futex_wake};
use crate::wait::{Wait, sleep_marked};

const WRITER: u32 = 1 << 31;
const SLEEPERS: u32 = 1 << 30;
const READERS: u32 = SLEEPERS - 1;
const ALL: u32 = u32::MAX >> 1;

/// The lock, without data.
#[derive(Debug, Default)]
pub struct RawRwLock<L, W> {
    word: AtomicU32,
    gate: L,
    wait: W,
}

impl<L, W> RawRwLock<L, W> {
    const_fn! {
        /// A free one; writers queue at `gate`.
        pub fn new(gate: L, wait: W) -> Self {
            RawRwLock { word: AtomicU32::new(0), gate, wait }
        }
    }
}

impl<L: RawLock, W: Wait> RawRwLock<L, W> {
    /// Reads, if no one writes.
    #[inline]
    pub fn try_read(&self) -> bool {
        let mut word = self.word.load(Ordering::Relaxed);
        while word & WRITER == 0 {
            let one_more = self.word.compare_exchange_weak(
                word,
                word + 1,
                Ordering::Acquire,
                Ordering::Relaxed,
            );
            match one_more {
                Ok(_) => return true,
                Err(now) => word = now,
            }
        }
        false
    }

    /// Waits until no one writes, and reads.
    #[inline]
    pub fn read(&self) {
        while !self.try_read() {
            self.wait_while(|word| word & WRITER != 0);
        }
    }

    /// Reads no more.
    ///
    /// # Safety
    /// The caller reads, and the lock outlives the call.
    #[inline]
    pub unsafe fn done_reading(&self) {
        let before = self.word.fetch_sub(1, Ordering::Release);
        if W::SLEEPS && before & SLEEPERS != 0 && before & READERS == 1 {
            futex_wake(&self.word, ALL);
        }
    }

    /// Writes, if no one reads or writes.
    pub fn try_write(&self) -> bool {
        if !self.gate.try_lock() {
            return false;
        }
        let free =
            self.word.compare_exchange(0, WRITER, Ordering::Acquire, Ordering::Relaxed).is_ok();
        if !free {
            // SAFETY: acquired above.
            unsafe { self.gate.unlock() };
        }
        free
    }

    /// Waits until no one reads or writes, and writes.
    pub fn write(&self) {
        self.gate.lock();
        if self.word.fetch_or(WRITER, Ordering::Acquire) & READERS != 0 {
            self.wait_while(|word| word & READERS != 0);
        }
    }

    /// Writes no more.
    ///
    /// # Safety
    /// The caller writes, and the lock outlives the call.
    pub unsafe fn done_writing(&self) {
        if self.word.swap(0, Ordering::Release) & SLEEPERS != 0 {
            futex_wake(&self.word, ALL);
        }
        // SAFETY: the writer holds the gate.
        unsafe { self.gate.unlock() };
    }

    #[cold]
    fn wait_while(&self, closed: impl Fn(u32) -> bool) {
        let mut round = 0;
        loop {
            let word = self.word.load(Ordering::Acquire);
            if !closed(word) {
                return;
            }
            if self.wait.step(round) {
                sleep_marked(&self.word, word, word | SLEEPERS);
            }
            round = round.saturating_add(1);
        }
    }
}
