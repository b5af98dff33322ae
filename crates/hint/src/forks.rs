// SPDX-License-Identifier: MIT OR Apache-2.0
//! Functions that run in the child of each fork, where another thread goes by what was its
//! parent's.
//!
//! A handler costs the sections nothing, while comparing process numbers would cost each of them a
//! load of a variable that the fork has to change; and it covers `fork`, `forkpty`, `daemon`, and
//! so on. `vfork`, `posix_spawn` and raw `clone` run no handlers; their children must not open
//! sections before `exec` (lib.rs says so).

use core::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// Whether a function has been registered: once, for good.
pub struct Watch(AtomicBool);

impl Watch {
    /// Not yet.
    #[expect(clippy::new_without_default, reason = "a static cannot call Default")]
    pub const fn new() -> Watch {
        Watch(AtomicBool::new(false))
    }

    /// Has `in_child` called in the child of each fork from now on; false if the system has no
    /// memory for that. Always the same function.
    pub fn start(&self, in_child: extern "C" fn()) -> bool {
        if self.0.swap(true, Relaxed) {
            return true;
        }
        // SAFETY: registers a function that lives as long as this object is loaded; the C library
        // drops the handlers of an object that is unloaded.
        let is_registered = unsafe { libc::pthread_atfork(None, None, Some(in_child)) } == 0;
        if !is_registered {
            self.0.store(false, Relaxed);
        }
        is_registered
    }
}
