// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the raw locks are made of, for the model checker: same names as in
//! `crates/locks/src/sync.rs`.
//!
//! The atomics are loom's in a wrapper that can weaken an ordering, for `mutants`.

use std::cell::Cell;

use loom::sync::atomic;
pub use loom::sync::atomic::Ordering;

pub use crate::futex_model::{futex_wait, futex_wake};

/// A fault in what the locks rely on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutant {
    /// Stores and exchanges publish nothing.
    WeakRelease,
    /// Loads and exchanges see nothing that was published.
    WeakAcquire,
    /// Sleepers are not woken.
    LostWake,
}

thread_local! {
    // loom runs all threads of a model on the thread of the test
    static MUTANT: Cell<Option<Mutant>> = const { Cell::new(None) };
}

/// Plants a fault, for this test.
pub fn plant(mutant: Option<Mutant>) {
    MUTANT.set(mutant);
}

/// Whether that fault is planted.
pub fn has(mutant: Mutant) -> bool {
    MUTANT.get() == Some(mutant)
}

fn weakened(ordering: Ordering) -> Ordering {
    match ordering {
        Ordering::Release if has(Mutant::WeakRelease) => Ordering::Relaxed,
        Ordering::Acquire if has(Mutant::WeakAcquire) => Ordering::Relaxed,
        Ordering::AcqRel if has(Mutant::WeakRelease) => Ordering::Acquire,
        Ordering::AcqRel if has(Mutant::WeakAcquire) => Ordering::Release,
        other => other,
    }
}

/// One step of a spinning thread: the others go first.
pub fn pause(_times: u32) {
    loom::thread::yield_now();
}

/// As `pause`.
pub fn give_way() {
    loom::thread::yield_now();
}

/// Sleep at once: what comes before only adds orders that the spinning models have.
pub const SPIN_ROUNDS: u32 = 0;

/// The head of a queue has the word promised after its first look, or its first wake-up in vain.
pub const PATIENCE_LOOKS: u32 = 1;
pub const PATIENCE_WAKES: u32 = 1;

/// One look covers both answers: rung meanwhile, or not.
pub const SERVER_LOOKS: u32 = 1;

/// loom's atomics are not made at compile time.
macro_rules! const_fn {
    ($(#[$doc:meta])* pub fn new($($arg:ident : $type:ty),*) -> Self $body:block) => {
        $(#[$doc])*
        pub fn new($($arg: $type),*) -> Self $body
    };
}
pub(crate) use const_fn;

#[derive(Debug, Default)]
pub struct AtomicU32(atomic::AtomicU32);

impl AtomicU32 {
    pub fn new(value: u32) -> Self {
        AtomicU32(atomic::AtomicU32::new(value))
    }
    pub fn load(&self, order: Ordering) -> u32 {
        self.0.load(weakened(order))
    }
    pub fn store(&self, value: u32, order: Ordering) {
        self.0.store(value, weakened(order));
    }
    pub fn swap(&self, value: u32, order: Ordering) -> u32 {
        self.0.swap(value, weakened(order))
    }
    pub fn fetch_add(&self, value: u32, order: Ordering) -> u32 {
        self.0.fetch_add(value, weakened(order))
    }
    pub fn fetch_sub(&self, value: u32, order: Ordering) -> u32 {
        self.0.fetch_sub(value, weakened(order))
    }
    pub fn fetch_and(&self, value: u32, order: Ordering) -> u32 {
        self.0.fetch_and(value, weakened(order))
    }
    pub fn fetch_or(&self, value: u32, order: Ordering) -> u32 {
        self.0.fetch_or(value, weakened(order))
    }
    pub fn compare_exchange(
        &self,
        old: u32,
        new: u32,
        order: Ordering,
        failed: Ordering,
    ) -> Result<u32, u32> {
        self.0.compare_exchange(old, new, weakened(order), failed)
    }
    pub fn compare_exchange_weak(
        &self,
        old: u32,
        new: u32,
        order: Ordering,
        failed: Ordering,
    ) -> Result<u32, u32> {
        self.0.compare_exchange_weak(old, new, weakened(order), failed)
    }
}

#[derive(Debug)]
pub struct AtomicPtr<T>(atomic::AtomicPtr<T>);

impl<T> AtomicPtr<T> {
    pub fn new(pointer: *mut T) -> Self {
        AtomicPtr(atomic::AtomicPtr::new(pointer))
    }
    pub fn load(&self, order: Ordering) -> *mut T {
        self.0.load(weakened(order))
    }
    pub fn store(&self, pointer: *mut T, order: Ordering) {
        self.0.store(pointer, weakened(order));
    }
    pub fn compare_exchange(
        &self,
        old: *mut T,
        new: *mut T,
        order: Ordering,
        failed: Ordering,
    ) -> Result<*mut T, *mut T> {
        self.0.compare_exchange(old, new, weakened(order), failed)
    }
}
