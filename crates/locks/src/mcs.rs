// SPDX-License-Identifier: MIT OR Apache-2.0
//! A queue lock: first come, first served, and each waiter looks at a word of its own
//! (Mellor-Crummey and Scott 1991; TURBO 5 measures with one).
//!
//! Problem: MCS wants a queue node from the caller for as long as the lock is held, which neither a
//! guard that moves nor a decoration around a lock can give.
//!
//! Idea, as in IBM's K42 (Scott, "Shared-Memory Synchronization", 4.3.3): the lock has a node
//! itself, which represents the holder, and a caller needs one on its stack only while it waits.
//!
//! ```text
//!   free             tail = null
//!   held             tail = &lock.head                      head.next = null
//!   held, A, B wait  tail = &B;  head.next = &A, A.next = &B
//!
//!   acquire, free    tail: null -> &head                        one compare-and-swap
//!   acquire, held    tail: p -> &mine, p.next = &mine, wait for mine.grant; then
//!                      my successor into head.next; if there is none, tail: &mine -> &head,
//!                      and if that fails, one is just coming: wait for it
//!   release          head.next = null: tail: &head -> null       one compare-and-swap
//!                    else grant it
//! ```
//!
//! A waiter's node is read and written by others between its arrival in `tail` and its own
//! departure from it: by its successor (`next`, once) and its predecessor as holder (`grant`,
//! once). Both have happened when `lock_contended` returns, except the wake-up of a sleeper, which
//! needs only the address.
//!
//! Limits: first come first served means that a waiter which has lost its CPU delays all after it,
//! and that every contended acquisition moves the lock to another core. `futex` does neither.

use core::ptr;

use crate::raw::RawLock;
use crate::sync::{AtomicPtr, AtomicU32, Ordering, const_fn, futex_wait, futex_wake};
use crate::wait::Wait;

const GRANTED: u32 = 0;
const WAITING: u32 = 1;
const ASLEEP: u32 = 2;

/// A place in the queue; a line of its own, so that waiters do not disturb each other.
#[derive(Debug)]
#[repr(align(64))]
struct Node {
    next: AtomicPtr<Node>,
    grant: AtomicU32,
}

/// The lock.
#[derive(Debug)]
pub struct Mcs<W> {
    tail: AtomicPtr<Node>,
    /// The holder's node: only its `next` is used, and `tail` may point to it.
    head: Node,
    wait: W,
}

impl Node {
    const_fn! {
        pub fn new(grant: u32) -> Self {
            Node { next: AtomicPtr::new(ptr::null_mut()), grant: AtomicU32::new(grant) }
        }
    }
}

impl<W: Default> Default for Mcs<W> {
    fn default() -> Self {
        Mcs::new(W::default())
    }
}

impl<W> Mcs<W> {
    const_fn! {
        /// A free one.
        pub fn new(wait: W) -> Self {
            Mcs { tail: AtomicPtr::new(ptr::null_mut()), head: Node::new(GRANTED), wait }
        }
    }

    fn head(&self) -> *mut Node {
        ptr::from_ref(&self.head).cast_mut()
    }
}

impl<W: Wait> Mcs<W> {
    /// Waits in the queue after `before` for the grant, and takes its own node out again.
    fn queue(&self, mine: &Node, before: *mut Node) {
        let me = ptr::from_ref(mine).cast_mut();
        // SAFETY: `before` is the lock's own node, or one of a waiter that has not seen a successor
        // and waits for it (see `leave_queue`).
        unsafe { (*before).next.store(me, Ordering::Release) };
        let mut round = 0;
        loop {
            let grant = mine.grant.load(Ordering::Acquire);
            if grant == GRANTED {
                break;
            }
            if self.wait.step(round) {
                sleep(&mine.grant, grant);
            }
            round = round.saturating_add(1);
        }
        self.leave_queue(mine, me);
    }

    /// The holder puts the lock's node in the place of its own.
    fn leave_queue(&self, mine: &Node, me: *mut Node) {
        let mut successor = mine.next.load(Ordering::Acquire);
        if successor.is_null() {
            self.head.next.store(ptr::null_mut(), Ordering::Relaxed);
            let last =
                self.tail.compare_exchange(me, self.head(), Ordering::AcqRel, Ordering::Relaxed);
            if last.is_ok() {
                return;
            }
            successor = arriving(&mine.next);
        }
        self.head.next.store(successor, Ordering::Relaxed);
    }
}

/// The pointer that a thread between its two steps of arriving is about to write.
#[cold]
fn arriving(next: &AtomicPtr<Node>) -> *mut Node {
    let mut round = 0;
    loop {
        let node = next.load(Ordering::Acquire);
        if !node.is_null() {
            return node;
        }
        // it is two instructions away, unless it has lost its CPU
        crate::wait::Spin.step(round);
        round = round.saturating_add(1);
    }
}

#[cold]
fn sleep(grant: &AtomicU32, seen: u32) {
    let relaxed = Ordering::Relaxed;
    if seen == ASLEEP || grant.compare_exchange(WAITING, ASLEEP, relaxed, relaxed).is_ok() {
        futex_wait(grant, ASLEEP);
    }
}

// SAFETY: the lock is held from the moment that `tail` leaves null by the caller's own exchange, or
// from the grant, which only the holder gives, to the one node that `head.next` names; each
// hand-over is a release by the old holder that the new one acquires.
unsafe impl<W: Wait> RawLock for Mcs<W> {
    #[inline]
    fn try_lock(&self) -> bool {
        let (free, relaxed) = (ptr::null_mut(), Ordering::Relaxed);
        self.tail.compare_exchange(free, self.head(), Ordering::Acquire, relaxed).is_ok()
    }

    #[cold]
    fn lock_contended(&self) {
        let mine = Node::new(WAITING);
        let me = ptr::from_ref(&mine).cast_mut();
        loop {
            let before = self.tail.load(Ordering::Relaxed);
            if before.is_null() {
                if self.try_lock() {
                    return;
                }
            } else if self
                .tail
                .compare_exchange(before, me, Ordering::AcqRel, Ordering::Relaxed)
                .is_ok()
            {
                return self.queue(&mine, before);
            }
        }
    }

    #[inline]
    unsafe fn unlock(&self) {
        let mut successor = self.head.next.load(Ordering::Acquire);
        if successor.is_null() {
            let (free, relaxed) = (ptr::null_mut(), Ordering::Relaxed);
            let alone = self.tail.compare_exchange(self.head(), free, Ordering::Release, relaxed);
            if alone.is_ok() {
                return;
            }
            successor = arriving(&self.head.next);
        }
        // Whoever finds the lock held by itself alone must not see this pointer again.
        self.head.next.store(ptr::null_mut(), Ordering::Relaxed);
        // SAFETY: the waiter stays until it is granted the lock, so until the next statement.
        let grant = unsafe { ptr::addr_of!((*successor).grant) };
        let before = if W::SLEEPS {
            // SAFETY: as above; after this the node may be gone.
            unsafe { (*grant).swap(GRANTED, Ordering::Release) }
        } else {
            // SAFETY: as above; after this the node may be gone.
            unsafe { (*grant).store(GRANTED, Ordering::Release) };
            WAITING
        };
        if before == ASLEEP {
            futex_wake(grant, 1);
        }
    }
}
