// SPDX-License-Identifier: MIT OR Apache-2.0
//! The word by which a client hands a section to a server, and hears that it is done.
//!
//! ```text
//!   FREE -> CLAIMED -> POSTED [-> ASLEEP] -> DONE -> FREE
//!    client   client     client     server    client
//! ```
//!
//! What is handed over is next to the word and belongs to the client, except in the time from
//! POSTED (or ASLEEP) to DONE, when it is the server's. A client that has waited for as long as a
//! wake-up costs shows this by ASLEEP, and the server wakes it; otherwise neither makes a system
//! call.

use crate::sync::{AtomicU32, Ordering, futex_wake};
use crate::wait::{Block, Wait, sleep_marked};

const FREE: u32 = 0;
const CLAIMED: u32 = 1;
const POSTED: u32 = 2;
const ASLEEP: u32 = 3;
const DONE: u32 = 4;

/// The word.
pub struct Slot(AtomicU32);

impl Slot {
    /// A slot that is free.
    pub fn new() -> Slot {
        Slot(AtomicU32::new(FREE))
    }

    /// Client: takes the slot, if it is free.
    pub fn claim(&self) -> bool {
        let relaxed = Ordering::Relaxed;
        self.0.load(relaxed) == FREE
            && self.0.compare_exchange(FREE, CLAIMED, Ordering::Acquire, relaxed).is_ok()
    }

    /// Client: hands over what is next to the claimed slot.
    pub fn post(&self) {
        self.0.store(POSTED, Ordering::Release);
    }

    /// Server: whether something was handed over.
    pub fn is_posted(&self) -> bool {
        matches!(self.0.load(Ordering::Acquire), POSTED | ASLEEP)
    }

    /// Server: gives back what was handed over.
    pub fn done(&self) {
        if self.0.swap(DONE, Ordering::AcqRel) == ASLEEP {
            futex_wake(&raw const self.0, 1);
        }
    }

    /// Client: waits until what it handed over is its own again.
    pub fn await_done(&self) {
        let mut round = 0;
        loop {
            let state = self.0.load(Ordering::Acquire);
            if state == DONE {
                return;
            }
            if Block.step(round) {
                sleep_marked(&self.0, state, ASLEEP);
            }
            round = round.saturating_add(1);
        }
    }

    /// Client: gives the slot to others, after [`Slot::await_done`].
    pub fn free(&self) {
        self.0.store(FREE, Ordering::Release);
    }
}
