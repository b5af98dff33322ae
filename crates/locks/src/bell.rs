// SPDX-License-Identifier: MIT OR Apache-2.0
//! A word that wakes a server thread: who has work for it rings, and pays for a wake-up only if it sleeps.
//!
//! ```text
//!   31                    1   0
//!   +--------------------+---+
//!   | number of rings    | S |    S: the server sleeps, or is about to
//!   +--------------------+---+
//! ```
//!
//! The server reads the bell, looks for work, and sleeps only if it can set S on the number it has read:
//! a ring after its look has changed that.

use core::sync::atomic::{AtomicU32, Ordering};

use crate::sys::{futex_wait, futex_wake};
use crate::wait::doubled;

const ASLEEP: u32 = 1;
const RING: u32 = 2;

/// Looks for work between two sleeps: 64 pauses each, so some 50 to 200 us. A server that sleeps costs its
/// next client a wake-up, one that looks costs a core.
const LOOKS: u32 = 64;

/// The bell.
#[derive(Debug, Default)]
pub(crate) struct Bell(AtomicU32);

impl Bell {
    /// There is work. What was written before is seen by the server.
    pub(crate) fn ring(&self) {
        if self.0.fetch_add(RING, Ordering::AcqRel) & ASLEEP != 0 {
            futex_wake(&self.0, 1);
        }
    }

    /// Calls `work` for as long as it returns true for "go on"; sleeps when nobody has rung for a while.
    pub(crate) fn serve(&self, mut work: impl FnMut() -> bool) {
        let mut idle = 0;
        loop {
            let seen = self.0.fetch_and(!ASLEEP, Ordering::AcqRel) & !ASLEEP;
            if !work() {
                return;
            }
            if self.0.load(Ordering::Relaxed) != seen {
                idle = 0;
                continue;
            }
            idle += 1;
            if idle < LOOKS {
                doubled(6);
                continue;
            }
            idle = 0;
            let (asleep, relaxed) = (seen | ASLEEP, Ordering::Relaxed);
            if self.0.compare_exchange(seen, asleep, Ordering::AcqRel, relaxed).is_ok() {
                futex_wait(&self.0, asleep);
            }
        }
    }
}
