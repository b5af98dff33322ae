// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is known of a mutex, by its address: an open-addressing table without locks.
//!
//! A slot belongs to one address for good: two mutexes that shared a queue could wait for each
//! other (A, at the queue's head for one, waits for B, which queues for the other after A). An
//! address that is used for another mutex later finds its queue empty. When the table is full,
//! mutexes that have no slot stay glibc's.

use core::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use locks::{Block, Mcs, Spin};

use crate::patience::Patience;
use crate::rules::Strategy;

/// Mutexes that can have a strategy. Some 100 bytes to 400 bytes each, of memory that is touched
/// when used.
pub const SLOTS: usize = 4096;
/// Slots that are looked at for an address.
const PROBES: usize = 16;

/// Not decided yet.
const OPEN: u8 = u8::MAX;

/// A mutex.
pub(crate) struct Slot {
    address: AtomicUsize,
    /// A [`Strategy`], or OPEN.
    strategy: AtomicU8,
    /// Where `pthread_mutex_init` was called from; 0 if it was not.
    pub creator: AtomicUsize,
    /// Acquisitions that waited.
    pub contended: AtomicU32,
    /// The CPU that is boosted for it, plus one; 0: none (`boost`).
    pub boosted: AtomicU32,
    /// Since when, ns.
    pub boosted_ns: AtomicU64,
    pub patience: Patience,
    /// The queues in front of it; one of them is used.
    pub spinning: Mcs<Spin>,
    pub sleeping: Mcs<Block>,
}

impl Slot {
    const fn empty() -> Slot {
        Slot {
            address: AtomicUsize::new(0),
            strategy: AtomicU8::new(OPEN),
            creator: AtomicUsize::new(0),
            contended: AtomicU32::new(0),
            boosted: AtomicU32::new(0),
            boosted_ns: AtomicU64::new(0),
            patience: Patience::new(),
            spinning: Mcs::new(Spin),
            sleeping: Mcs::new(Block),
        }
    }

    /// What was decided; `None` if nothing was.
    pub fn strategy(&self) -> Option<Strategy> {
        let number = self.strategy.load(Ordering::Relaxed);
        Strategy::ALL.get(usize::from(number)).map(|(_, strategy)| *strategy)
    }

    /// Decides.
    pub fn decide(&self, strategy: Option<Strategy>) {
        self.strategy.store(strategy.map_or(OPEN, |strategy| strategy as u8), Ordering::Relaxed);
    }
}

static TABLE: [Slot; SLOTS] = [const { Slot::empty() }; SLOTS];

/// The slots where an address may have its own, in their order.
fn places(address: usize) -> impl Iterator<Item = &'static Slot> {
    // Fibonacci hashing: the golden ratio of 2^64 spreads addresses that differ in a few bits.
    let hash = (address >> 3).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let first = hash >> (usize::BITS - SLOTS.trailing_zeros());
    (0..PROBES).map(move |probe| &TABLE[(first + probe) % SLOTS])
}

/// The slot of an address, if it has one.
pub(crate) fn known(address: usize) -> Option<&'static Slot> {
    let of = |slot: &Slot| slot.address.load(Ordering::Relaxed);
    // Slots are never given back: a free one ends the search.
    places(address).find(|slot| of(slot) == address || of(slot) == 0).filter(|slot| of(slot) != 0)
}

/// The slot of an address, a new one if need be; `None` if there is no room.
pub(crate) fn slot(address: usize) -> Option<&'static Slot> {
    places(address).find(|slot| {
        let known = slot.address.load(Ordering::Relaxed);
        let claim =
            || slot.address.compare_exchange(0, address, Ordering::Relaxed, Ordering::Relaxed);
        known == address || (known == 0 && claim().map_or_else(|now| now == address, |_| true))
    })
}

/// Slots in use.
pub(crate) fn used() -> impl Iterator<Item = &'static Slot> {
    TABLE.iter().filter(|slot| slot.address.load(Ordering::Relaxed) != 0)
}

/// Empties all queues: a forked child has none of the threads that were in them.
///
/// # Safety
/// No other thread runs.
pub(crate) unsafe fn empty_queues() {
    for slot in used() {
        // SAFETY: alone, so no one reads or writes them; their parts are all atomics.
        unsafe {
            core::ptr::from_ref(&slot.spinning).cast_mut().write(Mcs::new(Spin));
            core::ptr::from_ref(&slot.sleeping).cast_mut().write(Mcs::new(Block));
        }
        slot.boosted.store(0, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An address has one slot, and another address another one; a full neighbourhood has no room.
    #[test]
    fn an_address_has_its_slot_for_good() {
        let (a, b) = (slot(0x1000).unwrap(), slot(0x1028).unwrap());
        assert!(!core::ptr::eq(a, b));
        assert!(core::ptr::eq(a, slot(0x1000).unwrap()));
        assert_eq!(a.strategy(), None);
        a.decide(Some(Strategy::QueueSpin));
        assert_eq!(slot(0x1000).unwrap().strategy(), Some(Strategy::QueueSpin));
        assert!(core::ptr::eq(a, known(0x1000).unwrap()) && known(0x1050).is_none());
        let got = (0..2 * SLOTS).filter(|n| slot(0x10_0000 + 40 * n).is_some()).count();
        assert!(got > SLOTS / 2 && got < SLOTS, "{got}");
    }
}
