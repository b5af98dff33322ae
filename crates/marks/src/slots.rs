// SPDX-License-Identifier: MIT OR Apache-2.0
//! What each stub is for: a function of a mark, or an entry that the dynamic linker has not
//! filled yet.
//!
//! ```text
//!   entry -> stub -> function                 the entry's value was a marked function
//!   entry -> stub -> the object's own look-up   first call: the linker finds the function, and
//!                                               writes it to the entry
//!   entry -> stub -> function                 after it, if the function is the marked one
//! ```
//!
//! So it is the dynamic linker that decides which function a caller reaches: an object's version of
//! a symbol, and its place in the order of search, never matter here.

use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crate::config::Rule;

/// Stubs at most. Marked functions take one each, and so does each caller's first call.
pub(crate) const SLOTS: usize = 512;

/// Bytes of a stub.
const STUB_BYTES: usize = 16;

unsafe extern "C" {
    /// The first stub.
    safe static turbolane_marks_stubs: [[u8; STUB_BYTES]; SLOTS];
}

/// The address of a slot's stub.
fn address(slot: usize) -> usize {
    first_stub() + slot * STUB_BYTES
}

/// Whose stub is at this address; `None` if there is none.
pub(crate) fn number(address: usize) -> Option<usize> {
    let number = address.checked_sub(first_stub())? / STUB_BYTES;
    (number < SLOTS).then_some(number)
}

fn first_stub() -> usize {
    (&raw const turbolane_marks_stubs).addr()
}

/// What a stub stands for.
pub(crate) struct Slot {
    /// The function, or what looks it up; 0: the slot is free.
    function: AtomicUsize,
    /// Level, argument and least value, as [`pack`] has them; 0: the function is to be looked up.
    rule: AtomicU64,
    /// The mark's number.
    mark: AtomicUsize,
    /// The entry that is to be looked up.
    entry: AtomicUsize,
}

static TABLE: [Slot; SLOTS] = [const { Slot::free() }; SLOTS];

impl Slot {
    const fn free() -> Slot {
        let [function, mark, entry] = [const { AtomicUsize::new(0) }; 3];
        Slot { function, rule: AtomicU64::new(0), mark, entry }
    }

    /// The entry whose function is looked up, and the mark's number.
    pub(crate) fn entry(&self) -> (&'static AtomicUsize, usize) {
        let place = self.entry.load(Ordering::Relaxed);
        // SAFETY: asked for by a call from the entry's object, which is loaded therefore.
        let entry = unsafe { &*core::ptr::with_exposed_provenance(place) };
        (entry, self.mark.load(Ordering::Relaxed))
    }

    /// The function was looked up.
    pub(crate) fn settle(&self, function: usize, rule: Rule) {
        self.function.store(function, Ordering::Relaxed);
        self.rule.store(pack(rule), Ordering::Release);
    }

    /// What is to be called.
    pub(crate) fn function(&self) -> usize {
        self.function.load(Ordering::Acquire)
    }

    /// What its calls do; `None`: the function is looked up.
    pub(crate) fn rule(&self) -> Option<Rule> {
        unpack(self.rule.load(Ordering::Acquire))
    }
}

fn pack(rule: Rule) -> u64 {
    u64::from(rule.least) << 32 | u64::from(rule.argument) << 8 | u64::from(rule.level)
}

fn unpack(word: u64) -> Option<Rule> {
    let byte = |shift: u32| (word >> shift) as u32 & 255;
    (word != 0).then_some(Rule { level: byte(0), argument: byte(8), least: (word >> 32) as u32 })
}

/// The slot of the stub at this address.
pub(crate) fn of(stub: usize) -> Option<&'static Slot> {
    number(stub).and_then(|number| TABLE.get(number))
}

/// The stub for a function of a mark, one for all callers; `None` if there is no room. Under the
/// loader's lock.
pub(crate) fn for_function(function: usize, mark: usize, rule: Rule) -> Option<usize> {
    let is_it = |slot: &Slot| {
        slot.function() == function
            && slot.rule().is_some()
            && slot.mark.load(Ordering::Relaxed) == mark
    };
    let known = TABLE.iter().position(is_it);
    known.or_else(|| take(function, mark, 0, pack(rule))).map(address)
}

/// A stub for an entry whose function is not known yet. Under the loader's lock.
pub(crate) fn for_entry(entry: &AtomicUsize, looks_up: usize, mark: usize) -> Option<usize> {
    let place = core::ptr::from_ref(entry).expose_provenance();
    take(looks_up, mark, place, 0).map(address)
}

fn take(function: usize, mark: usize, entry: usize, rule: u64) -> Option<usize> {
    let (number, slot) =
        TABLE.iter().enumerate().find(|(_, slot)| slot.function.load(Ordering::Relaxed) == 0)?;
    slot.mark.store(mark, Ordering::Relaxed);
    slot.entry.store(entry, Ordering::Relaxed);
    slot.rule.store(rule, Ordering::Relaxed);
    slot.function.store(function, Ordering::Release);
    Some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_function_has_one_stub() {
        let rule = Rule { level: 2, argument: 5, least: u32::MAX };
        let first = for_function(0x1000, 0, rule).unwrap();
        assert_eq!(for_function(0x1000, 0, rule), Some(first));
        assert_ne!(for_function(0x1000, 1, rule), Some(first));
        assert_ne!(for_function(0x1010, 0, rule), Some(first));
        let slot = of(first).unwrap();
        assert_eq!((slot.function(), slot.rule()), (0x1000, Some(rule)));
        assert!(of(first - 16 * SLOTS).is_none() && of(first + 16 * SLOTS).is_none());
        let entry = AtomicUsize::new(0x2000);
        let looked_up = for_entry(&entry, 0x2000, 0).unwrap();
        assert_eq!(of(looked_up).unwrap().rule(), None);
        let room = (0..2 * SLOTS).filter(|n| for_function(0x9000 + n, 0, rule).is_some()).count();
        assert_eq!(room, SLOTS - 4);
    }
}
