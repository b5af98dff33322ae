// SPDX-License-Identifier: MIT OR Apache-2.0
//! A meeting point: no thread continues before all have arrived.
//!
//! ```text
//!   arrived       how many have come
//!   generation    31               1   0
//!                 +---------------+---+
//!                 | meetings held | S |    S: a thread may sleep
//!                 +---------------+---+
//! ```
//!
//! The last to arrive sets `arrived` back and then moves the generation on, which the others wait
//! for. It does not wait, so a decoration that slows waiters leaves the straggler at full speed
//! (TURBO 10).

use crate::sync::{AtomicU32, Ordering, const_fn, futex_wake};
use crate::wait::{Wait, sleep_marked};

const SLEEPERS: u32 = 1;
const MEETING: u32 = 2;
const ALL: u32 = u32::MAX >> 1;

/// The barrier.
#[derive(Debug)]
pub struct Barrier<W> {
    parties: u32,
    arrived: AtomicU32,
    generation: AtomicU32,
    wait: W,
}

impl<W> Barrier<W> {
    const_fn! {
        /// For so many threads; none and one wait for no one.
        pub fn new(parties: u32, wait: W) -> Self {
            Barrier {
                parties,
                arrived: AtomicU32::new(0),
                generation: AtomicU32::new(0),
                wait,
            }
        }
    }
}

impl<W: Wait> Barrier<W> {
    /// Arrives; `Some` meeting if others are missing, to be given to `wait_for`. The last one gets
    /// `None` and has let the others go.
    #[inline]
    pub fn arrive(&self) -> Option<u32> {
        let meeting = self.generation.load(Ordering::Acquire) & !SLEEPERS;
        if self.arrived.fetch_add(1, Ordering::AcqRel) + 1 < self.parties {
            return Some(meeting);
        }
        self.arrived.store(0, Ordering::Relaxed);
        let next = meeting.wrapping_add(MEETING);
        if self.generation.swap(next, Ordering::AcqRel) & SLEEPERS != 0 {
            futex_wake(&self.generation, ALL);
        }
        None
    }

    /// Waits until that meeting is over.
    #[cold]
    pub fn wait_for(&self, meeting: u32) {
        let mut round = 0;
        loop {
            let now = self.generation.load(Ordering::Acquire);
            if now & !SLEEPERS != meeting {
                return;
            }
            if self.wait.step(round) {
                sleep_marked(&self.generation, now, now | SLEEPERS);
            }
            round = round.saturating_add(1);
        }
    }

    /// Arrives and waits. True for the last one.
    pub fn wait(&self) -> bool {
        match self.arrive() {
            None => true,
            Some(meeting) => {
                self.wait_for(meeting);
                false
            }
        }
    }
}
