// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a lock is, without what it protects.

/// A lock without data.
///
/// Acquiring is split in two, so that a decoration can act in between: most acquisitions find the
/// lock free and are over with [`RawLock::try_lock`], the others wait in
/// [`RawLock::lock_contended`].
///
/// # Safety
/// While a thread holds the lock no other one acquires it, and what a holder did before it released
/// is seen by the next one.
pub unsafe trait RawLock: Send + Sync {
    /// Acquires the lock if it is free.
    fn try_lock(&self) -> bool;

    /// Acquires the lock after `try_lock` found it taken. It may be free by now.
    fn lock_contended(&self);

    /// Acquires the lock.
    #[inline]
    fn lock(&self) {
        if !self.try_lock() {
            self.lock_contended();
        }
    }

    /// Gives the lock back.
    ///
    /// # Safety
    /// The caller holds it, and the lock outlives the call.
    unsafe fn unlock(&self);
}
