// SPDX-License-Identifier: MIT OR Apache-2.0
//! Data protected by a raw lock, like `std::sync::Mutex` without poison.
//!
//! A guard releases when it is dropped, by return or by panic; a panic inside does not lock the
//! data away, so whoever keeps invariants over several writes must expect half of them.

use core::cell::UnsafeCell;
use core::fmt;
use core::marker::PhantomData;
use core::ops::{Deref, DerefMut};

use crate::raw::RawLock;

/// Data that one thread at a time may touch.
#[derive(Default)]
pub struct Mutex<T: ?Sized, L> {
    lock: L,
    data: UnsafeCell<T>,
}

// SAFETY: the lock hands the data from thread to thread.
unsafe impl<T: ?Sized + Send, L: RawLock> Sync for Mutex<T, L> {}

/// The right to touch the data, until it is dropped.
#[must_use = "the lock is released when the guard is dropped"]
pub struct Guard<'a, T: ?Sized, L: RawLock> {
    mutex: &'a Mutex<T, L>,
    /// Who acquired releases: decorations know the thread and its CPU.
    not_send: PhantomData<*const ()>,
}

// SAFETY: a shared guard gives shared access to the data.
unsafe impl<T: ?Sized + Sync, L: RawLock> Sync for Guard<'_, T, L> {}

impl<T, L> Mutex<T, L> {
    /// Data of a free lock.
    pub const fn new(lock: L, data: T) -> Self {
        Mutex { lock, data: UnsafeCell::new(data) }
    }

    /// The data, when no one else can have the mutex.
    pub fn into_inner(self) -> T {
        self.data.into_inner()
    }
}

impl<T: ?Sized, L> Mutex<T, L> {
    /// The data, when no one else can have the mutex.
    pub fn get_mut(&mut self) -> &mut T {
        self.data.get_mut()
    }

    /// The lock, to look at its decoration.
    pub fn raw(&self) -> &L {
        &self.lock
    }
}

impl<T: ?Sized, L: RawLock> Mutex<T, L> {
    /// Waits for the lock.
    #[inline]
    pub fn lock(&self) -> Guard<'_, T, L> {
        self.lock.lock();
        Guard { mutex: self, not_send: PhantomData }
    }

    /// The lock, if it is free.
    #[inline]
    pub fn try_lock(&self) -> Option<Guard<'_, T, L>> {
        self.lock.try_lock().then(|| Guard { mutex: self, not_send: PhantomData })
    }
}

impl<T: ?Sized, L: RawLock> Deref for Guard<'_, T, L> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: this thread holds the lock.
        unsafe { &*self.mutex.data.get() }
    }
}

impl<T: ?Sized, L: RawLock> DerefMut for Guard<'_, T, L> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: this thread holds the lock, and the guard is borrowed alone.
        unsafe { &mut *self.mutex.data.get() }
    }
}

impl<T: ?Sized, L: RawLock> Drop for Guard<'_, T, L> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: a guard exists while the lock is held, and borrows it.
        unsafe { self.mutex.lock.unlock() };
    }
}

impl<T: ?Sized, L> fmt::Debug for Mutex<T, L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mutex").finish_non_exhaustive()
    }
}
