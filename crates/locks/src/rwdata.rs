// SPDX-License-Identifier: MIT OR Apache-2.0
//! Data protected by a reader-writer lock, with guards.

use core::cell::UnsafeCell;
use core::fmt;
use core::marker::PhantomData;
use core::ops::{Deref, DerefMut};

use crate::raw::RawLock;
use crate::rwlock::RawRwLock;
use crate::wait::Wait;

/// Data that many threads may read or one may write.
pub struct RwLock<T: ?Sized, L, W> {
    lock: RawRwLock<L, W>,
    data: UnsafeCell<T>,
}

// SAFETY: the lock hands the data from writer to writer, and shares it among readers.
unsafe impl<T: ?Sized + Send + Sync, L: RawLock, W: Wait> Sync for RwLock<T, L, W> {}

/// The right to read, until it is dropped.
#[must_use = "the lock is released when the guard is dropped"]
pub struct ReadGuard<'a, T: ?Sized, L: RawLock, W: Wait> {
    lock: &'a RwLock<T, L, W>,
    not_send: PhantomData<*const ()>,
}

/// The right to write, until it is dropped.
#[must_use = "the lock is released when the guard is dropped"]
pub struct WriteGuard<'a, T: ?Sized, L: RawLock, W: Wait> {
    lock: &'a RwLock<T, L, W>,
    not_send: PhantomData<*const ()>,
}

impl<T, L, W> RwLock<T, L, W> {
    /// Data of a free lock; writers queue at `gate`.
    pub const fn new(gate: L, wait: W, data: T) -> Self {
        RwLock { lock: RawRwLock::new(gate, wait), data: UnsafeCell::new(data) }
    }

    /// The data, when no one else can have the lock.
    pub fn into_inner(self) -> T {
        self.data.into_inner()
    }
}

impl<T: ?Sized, L: RawLock, W: Wait> RwLock<T, L, W> {
    /// Waits until no one writes.
    pub fn read(&self) -> ReadGuard<'_, T, L, W> {
        self.lock.read();
        ReadGuard { lock: self, not_send: PhantomData }
    }

    /// Reads, if no one writes.
    pub fn try_read(&self) -> Option<ReadGuard<'_, T, L, W>> {
        self.lock.try_read().then(|| ReadGuard { lock: self, not_send: PhantomData })
    }

    /// Waits until no one reads or writes.
    pub fn write(&self) -> WriteGuard<'_, T, L, W> {
        self.lock.write();
        WriteGuard { lock: self, not_send: PhantomData }
    }

    /// Writes, if no one reads or writes.
    pub fn try_write(&self) -> Option<WriteGuard<'_, T, L, W>> {
        self.lock.try_write().then(|| WriteGuard { lock: self, not_send: PhantomData })
    }
}

impl<T: ?Sized, L: RawLock, W: Wait> Deref for ReadGuard<'_, T, L, W> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: this thread reads, so no one writes.
        unsafe { &*self.lock.data.get() }
    }
}

impl<T: ?Sized, L: RawLock, W: Wait> Drop for ReadGuard<'_, T, L, W> {
    fn drop(&mut self) {
        // SAFETY: a guard exists while this thread reads, and borrows the lock.
        unsafe { self.lock.lock.done_reading() };
    }
}

impl<T: ?Sized, L: RawLock, W: Wait> Deref for WriteGuard<'_, T, L, W> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: this thread writes, alone.
        unsafe { &*self.lock.data.get() }
    }
}

impl<T: ?Sized, L: RawLock, W: Wait> DerefMut for WriteGuard<'_, T, L, W> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: this thread writes, alone, and the guard is borrowed alone.
        unsafe { &mut *self.lock.data.get() }
    }
}

impl<T: ?Sized, L: RawLock, W: Wait> Drop for WriteGuard<'_, T, L, W> {
    fn drop(&mut self) {
        // SAFETY: a guard exists while this thread writes, and borrows the lock.
        unsafe { self.lock.lock.done_writing() };
    }
}

impl<T: ?Sized, L, W> fmt::Debug for RwLock<T, L, W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RwLock").finish_non_exhaustive()
    }
}
