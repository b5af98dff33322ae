// SPDX-License-Identifier: MIT OR Apache-2.0
//! The sections of a thread that calls have opened, at a fixed distance from the thread pointer, as
//! the hint's state is (crates/hint/src/thread_local.rs): finding it calls nothing.
//!
//! Sections are kept with the addresses of their calls' frames. A call that longjmp(3) or an
//! exception has left has no return: the next call of the thread, or the return of an outer one,
//! finds frames below its own, and closes their sections.

use core::arch::{asm, global_asm};
use core::cell::Cell;

/// Sections of a thread that calls have opened, one for each level at most.
const OPEN_MAX: usize = turbolane_hint::MAX_LEVEL as usize;

/// A section, by the frame of the call that opened it; a level of 0: none.
#[derive(Clone, Copy)]
pub(crate) struct Open {
    pub frame: usize,
    pub level: u32,
}

/// What is known of a thread. Zero bytes are a new thread's.
pub(crate) struct Thread {
    open: [Cell<Open>; OPEN_MAX],
    /// The last page above its frames that was found to be readable.
    pub readable: Cell<usize>,
    /// The call's frame for which the library is at work, 0: none. What the library calls has
    /// frames below, and opens no section.
    pub works_for: Cell<usize>,
}

global_asm!(
    ".pushsection .tbss.turbolane_marks_thread, \"awT\", @nobits",
    ".hidden turbolane_marks_thread",
    ".globl turbolane_marks_thread",
    ".type turbolane_marks_thread, @object",
    ".size turbolane_marks_thread, {bytes}",
    ".balign 64",
    "turbolane_marks_thread:",
    ".zero {bytes}",
    ".popsection",
    bytes = const size_of::<Thread>(),
);

/// The calling thread's.
#[inline(always)]
pub(crate) fn this_thread() -> &'static Thread {
    let thread: *const Thread;
    // SAFETY: the first word of the thread control block is the block's address; adding the
    // variable's distance gives its address in the calling thread, whose memory lives as long as
    // the thread does. `Thread` is neither `Send` nor `Sync`, so the reference stays there.
    unsafe {
        asm!(
            "mov {thread}, qword ptr fs:[0]",
            "add {thread}, qword ptr [rip + turbolane_marks_thread@GOTTPOFF]",
            thread = out(reg) thread,
            options(pure, nomem, nostack),
        );
        &*thread
    }
}

impl Thread {
    /// The innermost section whose call's frame is below this address.
    pub(crate) fn abandoned_below(&self, frame: usize) -> Option<&Cell<Open>> {
        let innermost = self.open.iter().rev().find(|place| place.get().level > 0)?;
        (innermost.get().frame < frame).then_some(innermost)
    }

    /// The section of the call with this frame.
    pub(crate) fn of_frame(&self, frame: usize) -> Option<&Cell<Open>> {
        self.open.iter().rev().find(|place| place.get().level > 0 && place.get().frame == frame)
    }

    /// The level of the innermost section, and the place for another one inside.
    pub(crate) fn innermost(&self) -> (u32, Option<&Cell<Open>>) {
        let level = |place: &Cell<Open>| place.get().level;
        let free = self.open.iter().find(|place| level(place) == 0);
        (self.open.iter().map(level).max().unwrap_or(0), free)
    }
}
