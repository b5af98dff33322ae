// SPDX-License-Identifier: MIT OR Apache-2.0
//! The kernel's futex, of loom's parts: a list of sleepers by address, under one lock.
//!
//! As in the kernel, the word is compared under the lock of the list, so that a wake-up after the
//! comparison finds the sleeper. There are no spurious wake-ups: a lock that needs one is found, as
//! a deadlock.

use loom::sync::{Arc, Mutex, Notify};

use crate::sync::{AtomicU32, Mutant, Ordering, has};

loom::lazy_static! {
    static ref SLEEPERS: Mutex<Vec<(usize, Arc<Notify>)>> = Mutex::new(Vec::new());
}

pub fn futex_wait(word: &AtomicU32, value: u32) {
    let mut sleepers = SLEEPERS.lock().unwrap();
    if word.load(Ordering::Relaxed) != value {
        return;
    }
    let me = Arc::new(Notify::new());
    sleepers.push((std::ptr::from_ref(word).addr(), me.clone()));
    // loom's parts wake for no reason, once each
    while sleepers.iter().any(|(_, sleeper)| Arc::ptr_eq(sleeper, &me)) {
        drop(sleepers);
        me.wait();
        sleepers = SLEEPERS.lock().unwrap();
    }
}

pub fn futex_wake(word: *const AtomicU32, count: u32) {
    if has(Mutant::LostWake) {
        return;
    }
    let mut sleepers = SLEEPERS.lock().unwrap();
    for _ in 0..count {
        let Some(first) = sleepers.iter().position(|(address, _)| *address == word.addr()) else {
            return;
        };
        sleepers.remove(first).1.notify();
    }
}
