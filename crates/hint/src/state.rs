// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the library keeps of a thread. `thread_local` says where it lies.
//!
//! The first cache line is what a section needs; masks, which only the affinity fallback uses, come
//! after it.

use core::cell::Cell;

use crate::nesting::Nesting;
use crate::page::Mask;
use crate::scheduler::{Link, Pace};

/// Of one thread. Neither `Send` nor `Sync`.
#[repr(C)]
pub(crate) struct State {
    pub thread: Thread,
    pub masks: Masks,
}

/// What a section needs; `thread` uses it.
pub(crate) struct Thread {
    pub nesting: Cell<Nesting>,
    pub link: Cell<Option<Link>>,
    pub pace: Pace,
    /// Sections left that do not try to move.
    pub resigned: Cell<u32>,
}

/// What the affinity fallback needs; `affinity` uses it.
pub(crate) struct Masks {
    /// The mask as the user wants it.
    pub original: Cell<Mask>,
    /// The mask we set, while it is in force.
    pub ours: Cell<Option<Mask>>,
}

// A new thread's state is zero bytes. They are a value of the numbers anyway; for the options it
// depends on how the compiler lays `None` out, so it is asked. Nothing is dropped when a thread
// ends.
const _: () = {
    assert!(State::new().thread.link.into_inner().is_none());
    assert!(State::new().masks.ours.into_inner().is_none());
    assert!(size_of::<Thread>() <= 64, "one cache line");
    assert!(!core::mem::needs_drop::<State>());
};

impl State {
    /// The state of a new thread.
    pub const fn new() -> Self {
        // SAFETY: the compiler evaluates this above, and refuses bytes that are no value of the
        // type.
        unsafe { core::mem::zeroed() }
    }
}
