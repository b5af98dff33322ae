// SPDX-License-Identifier: MIT OR Apache-2.0
//! A word that wakes a server thread: a thread that has work for it rings, and pays for a wake-up
//! only if the server sleeps.
//!
//! ```text
//!   31                    1   0
//!   +--------------------+---+
//!   | number of rings    | S |    S: the server sleeps, or is about to
//!   +--------------------+---+
//! ```
//!
//! The server reads the bell, looks for work, watches the bell for a while, and sleeps only if it
//! can set S on the number it has read: a ring after its look has changed that. It watches with
//! single pauses, since the line stays in its cache until a client rings: what a client waits for
//! is two moves of that line, not the rest of a long pause.

use crate::sync::{self, AtomicU32, Ordering, futex_wait, futex_wake};

const ASLEEP: u32 = 1;
const RING: u32 = 2;

/// The bell.
#[derive(Debug)]
pub struct Bell(AtomicU32);

impl Default for Bell {
    fn default() -> Bell {
        Bell(AtomicU32::new(0))
    }
}

impl Bell {
    /// There is work. What was written before is seen by the server.
    pub fn ring(&self) {
        if self.0.fetch_add(RING, Ordering::AcqRel) & ASLEEP != 0 {
            futex_wake(&raw const self.0, 1);
        }
    }

    /// Calls `work` after each ring, and once before, for as long as it returns true for "go on";
    /// sleeps when no one has rung for a while.
    pub fn serve(&self, mut work: impl FnMut() -> bool) {
        loop {
            let seen = self.0.fetch_and(!ASLEEP, Ordering::AcqRel) & !ASLEEP;
            if !work() {
                return;
            }
            if self.rings_soon(seen) {
                continue;
            }
            let (asleep, relaxed) = (seen | ASLEEP, Ordering::Relaxed);
            if self.0.compare_exchange(seen, asleep, Ordering::AcqRel, relaxed).is_ok() {
                futex_wait(&self.0, asleep);
            }
        }
    }

    /// Whether someone rings while looking is cheaper than sleeping.
    fn rings_soon(&self, seen: u32) -> bool {
        (0..sync::SERVER_LOOKS).any(|_| {
            sync::pause(1);
            self.0.load(Ordering::Relaxed) != seen
        })
    }
}
