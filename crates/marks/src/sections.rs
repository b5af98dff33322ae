// SPDX-License-Identifier: MIT OR Apache-2.0
//! What happens before and after a call of a marked function.
//!
//! A marked function that is called inside of another one's section opens one only for a higher
//! level: nothing else would change.

use core::cell::Cell;

use turbolane_hint::inside::{self, Progress, Unnoticed};

use crate::config::Rule;
use crate::frame::{Frame, Work};
use crate::lookup::looked_up;
use crate::thread::{Open, Thread, this_thread};
use crate::{PAGE_BYTES, slots};

/// Stack arguments of a marked function, bytes: more than any function of BLAS, LAPACK, OpenSSL or
/// x265 takes.
pub const STACK_BYTES: usize = 256;

/// In [`Next::stack`]: the function is called, and [`left`] after it. Otherwise it is jumped to.
pub(crate) const CALL: usize = 1;
/// With [`CALL`]: no section was opened, but the dynamic linker finds the function meanwhile.
const LOOKS_UP: usize = 2;
/// With [`CALL`]: [`finish`] comes first.
pub(crate) const REST: usize = 4;

/// How a call goes on.
#[repr(C)]
pub(crate) struct Next {
    /// The function.
    function: usize,
    /// Flags, and how many bytes of stack arguments are copied, a multiple of 16.
    stack: usize,
}

/// No section.
const NONE: Open = Open { frame: 0, level: 0 };

/// Before a call. The stub calls it.
pub(crate) extern "C" fn entered(frame: &Frame) -> Next {
    let Some(slot) = slots::of(frame.stub) else {
        // No stub but those of slots leads here.
        // SAFETY: ends the process.
        unsafe { libc::abort() }
    };
    let function = slot.function();
    let thread = this_thread();
    let calls = |flags: usize| Next {
        function,
        stack: readable_bytes(thread, frame.address() + size_of::<Frame>()) | CALL | flags,
    };
    let Some(rule) = slot.rule() else { return calls(LOOKS_UP) };
    // The end of its section would call it again, and so on.
    if frame.address() < thread.works_for.get() {
        return Next { function, stack: 0 };
    }
    // What had a frame here is gone too, since this one is new.
    if thread.abandoned_below(frame.address() + 1).is_some() {
        frame.leave(Work::TidyAndBegin);
        return calls(REST);
    }
    let Some(place) = place(thread, rule, frame) else { return Next { function, stack: 0 } };
    place.set(Open { frame: frame.address(), level: rule.level });
    match inside::start_begin(rule.level) {
        Progress::Done(_) => calls(0),
        Progress::Rest(rest) => {
            frame.leave(Work::Hint(rest));
            calls(REST)
        }
    }
}

/// Where the section of a call is kept; `None` if it opens none.
fn place<'a>(thread: &'a Thread, rule: Rule, frame: &Frame) -> Option<&'a Cell<Open>> {
    let (level, place) = thread.innermost();
    place.filter(|_| rule.level > level && counts(rule, frame))
}

/// After a call. The stub calls it; true: [`finish`] comes next.
pub(crate) extern "C" fn left(frame: &Frame) -> bool {
    let thread = this_thread();
    let work = if frame.flags & LOOKS_UP != 0 {
        Work::LookUp
    } else if thread.abandoned_below(frame.address()).is_some() {
        Work::TidyAndEnd
    } else {
        // None, if it was taken for abandoned: by a call on another stack.
        let Some(place) = thread.of_frame(frame.address()) else { return false };
        place.set(NONE);
        match inside::start_end() {
            Progress::Done(_) => return false,
            Progress::Rest(rest) => Work::Hint(rest),
        }
    };
    frame.leave(work);
    true
}

/// What takes system calls, before or after a call. The stub calls it, and saves vector registers.
pub(crate) extern "C" fn finish(frame: &Frame) {
    let (thread, at) = (this_thread(), frame.address());
    let rule = slots::of(frame.stub).and_then(slots::Slot::rule);
    let outer = thread.works_for.replace(at);
    // SAFETY: set by `entered` or `left`, which said that there is work.
    match unsafe { frame.work.get().assume_init() } {
        Work::LookUp => looked_up(frame.stub),
        Work::Hint(rest) => {
            let level = rule.map_or(0, |rule| rule.level);
            if inside::finish(rest, level) != 0 {
                forget(thread, at);
            }
        }
        Work::TidyAndBegin => {
            end_abandoned(thread, at + 1);
            if let Some((rule, place)) =
                rule.and_then(|rule| Some((rule, place(thread, rule, frame)?)))
                && turbolane_hint::wide_begin(rule.level).is_ok()
            {
                place.set(Open { frame: at, level: rule.level });
            }
        }
        Work::TidyAndEnd => {
            end_abandoned(thread, at);
            if forget(thread, at) {
                end();
            }
        }
    }
    thread.works_for.set(outer);
}

/// Closes sections whose calls were left without a return: those of frames below this address.
fn end_abandoned(thread: &Thread, frame: usize) {
    while let Some(place) = thread.abandoned_below(frame) {
        place.set(NONE);
        end();
    }
}

fn end() {
    // It was opened by us; a program that closed it by a hint of its own has nothing open.
    let _ = turbolane_hint::wide_end();
}

/// The section of this frame is not open, or no more; whether it was.
fn forget(thread: &Thread, frame: usize) -> bool {
    let place = thread.of_frame(frame);
    place.map(|place| place.set(NONE)).is_some()
}

/// How many bytes of stack arguments may be read from here.
fn readable_bytes(thread: &Thread, from: usize) -> usize {
    let next_page = (from | (PAGE_BYTES - 1)) + 1;
    let here = next_page - from;
    let all = here >= STACK_BYTES || thread.readable.get() == next_page || {
        let is_readable = can_read(next_page);
        if is_readable {
            thread.readable.set(next_page);
        }
        is_readable
    };
    if all { STACK_BYTES } else { here }
}

/// Asks the kernel, which reads the page's first byte if that can be read: a stack may end before
/// it.
#[cold]
#[inline(never)]
extern "C" fn can_read(page: usize) -> bool {
    let _unnoticed = Unnoticed::new();
    let mut byte = 0u8;
    let local = libc::iovec { iov_base: (&raw mut byte).cast(), iov_len: 1 };
    let remote = libc::iovec { iov_base: page as *mut _, iov_len: 1 };
    // SAFETY: writes one byte of ours.
    unsafe { libc::process_vm_readv(libc::getpid(), &local, 1, &remote, 1, 0) == 1 }
}

/// Whether a call is long enough: `tl_mark_counts` of `policy/mark.h`.
fn counts(rule: Rule, frame: &Frame) -> bool {
    let Some(before) = rule.argument.checked_sub(1) else { return true };
    let argument = frame.arguments.iter().rev().nth(before as usize);
    argument.is_some_and(|argument| *argument as u32 >= rule.least)
}
