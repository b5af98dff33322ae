// SPDX-License-Identifier: MIT OR Apache-2.0
//! An allocator that counts, so that a test sees how much memory a parser held at most.
//!
//! It passes everything on to the system's. Beyond [`REFUSED`] it gives nothing more: the process
//! ends, and the machine goes on.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Bytes that are allocated at most, in all.
pub const REFUSED: usize = 6 << 30;

/// Counts what is allocated; a test program makes it its global allocator.
pub struct Counting;

static HELD: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);
/// Seed of the case that runs, for what is printed when memory is refused.
pub(crate) static CASE: AtomicU64 = AtomicU64::new(0);

/// Begins a measurement, and returns what is held now.
pub fn begin() -> usize {
    let held = HELD.load(Ordering::Relaxed);
    PEAK.store(held, Ordering::Relaxed);
    held
}

/// The most that was held at any moment since [`begin`].
#[must_use]
pub fn peak() -> usize {
    PEAK.load(Ordering::Relaxed)
}

fn add(bytes: usize) -> bool {
    let held = HELD.fetch_add(bytes, Ordering::Relaxed) + bytes;
    if held > REFUSED {
        HELD.fetch_sub(bytes, Ordering::Relaxed);
        refuse();
        return false;
    }
    PEAK.fetch_max(held, Ordering::Relaxed);
    true
}

/// Names the case, without allocating.
fn refuse() {
    let mut text = *b"memory refused: TURBOLANE_FUZZ_SEED=00000000000000000000\n";
    let mut rest = CASE.load(Ordering::Relaxed);
    let end = text.len() - 1;
    for digit in text[end - 20..end].iter_mut().rev() {
        *digit = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    // SAFETY: the buffer is valid for its length; what is not written is not needed.
    unsafe { libc::write(2, text.as_ptr().cast(), text.len()) };
}

// SAFETY: everything is passed on to the system's allocator, with the same layouts.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if !add(layout.size()) {
            return std::ptr::null_mut();
        }
        // SAFETY: the caller's promises are those of the system's allocator.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if !add(layout.size()) {
            return std::ptr::null_mut();
        }
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        HELD.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: as above.
        unsafe { System.dealloc(place, layout) }
    }

    unsafe fn realloc(&self, place: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        let more = size.saturating_sub(layout.size());
        if !add(more) {
            return std::ptr::null_mut();
        }
        HELD.fetch_sub(layout.size().saturating_sub(size), Ordering::Relaxed);
        // SAFETY: as above.
        unsafe { System.realloc(place, layout, size) }
    }
}
