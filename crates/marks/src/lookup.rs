// SPDX-License-Identifier: MIT OR Apache-2.0
//! The end of a first call, in which the dynamic linker has found the function.

use core::sync::atomic::Ordering;

use crate::{objects, slots, write};

/// The entry's value is the function now: if it is the marked one, the stub takes its place again.
pub(crate) fn looked_up(stub: usize) {
    let Some(slot) = slots::of(stub) else { return };
    let (entry, mark) = slot.entry();
    let function = entry.load(Ordering::Relaxed);
    // The linker was told to keep nothing, or another thread was here first.
    if function == stub {
        return;
    }
    if let Some(rule) = objects::rule_at(mark, function) {
        slot.settle(function, rule);
        if write::entry(entry, stub) {
            objects::count(mark);
        }
    }
}
