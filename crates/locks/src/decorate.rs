// SPDX-License-Identifier: MIT OR Apache-2.0
//! What happens around a lock: boosting, slowing, moving, measuring (TURBO 5, "decorations on
//! acquire/release").
//!
//! ```text
//!   try_lock --no--> waiting() -> lock_contended -> acquired(Some(w)) -- section -- releasing() -> unlock
//!      |                 w                              |                              h            |
//!      +--yes------------------> acquired(None) --------+                              released(h) <+
//! ```
//!
//! A decoration is any type with these four (and `waited`, for barriers). [`Decorated`] puts it
//! around any raw lock and is one itself, so decorations nest. [`Plain`] does nothing:
//! `Decorated<L, Plain>` compiles to `L`.
//!
//! `acquired` and `releasing` run under the lock and so may keep state in the decoration (`Owner`
//! keeps the CPU that it boosted); they lengthen the section. `released` runs after the lock is
//! free. What `waiting` and `releasing` return goes to the later call of the same thread.
//!
//! A decoration that panics in `acquired` or `releasing` leaves the lock free, not held for ever.

use crate::barrier::Barrier;
use crate::raw::RawLock;
use crate::wait::Wait;

/// Called by the thread that waits, acquires, releases.
pub trait Decoration: Send + Sync {
    /// From `waiting` to `acquired`.
    type Waited;
    /// From `releasing` to `released`.
    type Held;

    /// The lock is taken: the thread will wait now.
    fn waiting(&self) -> Self::Waited;

    /// The lock is this thread's; `waited` if it waited.
    fn acquired(&self, waited: Option<Self::Waited>);

    /// A wait is over that was for no lock: a barrier's.
    fn waited(&self, waited: Self::Waited);

    /// The lock is this thread's still.
    fn releasing(&self) -> Self::Held;

    /// The lock is not this thread's any more.
    fn released(&self, held: Self::Held);
}

/// No decoration.
#[derive(Clone, Copy, Debug, Default)]
pub struct Plain;

impl Decoration for Plain {
    type Waited = ();
    type Held = ();

    #[inline]
    fn waiting(&self) {}
    #[inline]
    fn acquired(&self, _waited: Option<()>) {}
    #[inline]
    fn waited(&self, _waited: ()) {}
    #[inline]
    fn releasing(&self) {}
    #[inline]
    fn released(&self, _held: ()) {}
}

/// A reference to a decoration serves many locks, if it keeps no state under the lock.
impl<D: Decoration> Decoration for &D {
    type Waited = D::Waited;
    type Held = D::Held;

    #[inline]
    fn waiting(&self) -> D::Waited {
        (**self).waiting()
    }
    #[inline]
    fn acquired(&self, waited: Option<D::Waited>) {
        (**self).acquired(waited);
    }
    #[inline]
    fn waited(&self, waited: D::Waited) {
        (**self).waited(waited);
    }
    #[inline]
    fn releasing(&self) -> D::Held {
        (**self).releasing()
    }
    #[inline]
    fn released(&self, held: D::Held) {
        (**self).released(held);
    }
}

/// A lock with a decoration.
#[derive(Debug, Default)]
pub struct Decorated<L, D> {
    lock: L,
    decoration: D,
}

impl<L, D> Decorated<L, D> {
    /// The lock is free.
    pub const fn new(lock: L, decoration: D) -> Self {
        Decorated { lock, decoration }
    }

    /// What decorates it.
    pub fn decoration(&self) -> &D {
        &self.decoration
    }
}

/// Releases on the way out of a decoration that panics.
struct Release<'a, L: RawLock>(&'a L);

impl<L: RawLock> Drop for Release<'_, L> {
    fn drop(&mut self) {
        // SAFETY: made by `under`, whose caller holds the lock; forgotten where it is kept.
        unsafe { self.0.unlock() };
    }
}

impl<L: RawLock, D: Decoration> Decorated<L, D> {
    #[inline]
    fn acquired(&self, waited: Option<D::Waited>) {
        let release = Release(&self.lock);
        self.decoration.acquired(waited);
        core::mem::forget(release);
    }
}

// SAFETY: the lock itself is `L`'s; the decoration adds no method of holding it.
unsafe impl<L: RawLock, D: Decoration> RawLock for Decorated<L, D> {
    #[inline]
    fn try_lock(&self) -> bool {
        let taken = self.lock.try_lock();
        if taken {
            self.acquired(None);
        }
        taken
    }

    #[inline]
    fn lock_contended(&self) {
        let waited = self.decoration.waiting();
        self.lock.lock_contended();
        self.acquired(Some(waited));
    }

    #[inline]
    unsafe fn unlock(&self) {
        // releases in both cases: at its end, and if the decoration panics
        let release = Release(&self.lock);
        let held = self.decoration.releasing();
        drop(release);
        self.decoration.released(held);
    }
}

impl<W: Wait> Barrier<W> {
    /// Arrives and waits, decorated while it waits. True for the last one, which does not.
    pub fn wait_decorated<D: Decoration>(&self, decoration: &D) -> bool {
        let Some(meeting) = self.arrive() else { return true };
        let waited = decoration.waiting();
        self.wait_for(meeting);
        decoration.waited(waited);
        false
    }
}
