// SPDX-License-Identifier: MIT OR Apache-2.0
//! Replaces an entry of a global offset table.
//!
//! Other threads call through it meanwhile, so it has to be one store. (The kernel's
//! process_vm_writev(2) copies byte by byte on some CPUs: a call would go to a mixture of two
//! addresses.)
//!
//! The dynamic linker makes most tables read-only when they are complete (RELRO). The kernel says
//! whether this is one: then the page is made writable for the store and read-only again. The
//! linker has no store of its own to do there, and its protection is not in progress: the object is
//! loaded, or calls through the entry.

use core::ptr::null_mut;
use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use turbolane_hint::inside::Unnoticed;

use crate::PAGE_BYTES;

/// Whether the entry has the value now. False where the kernel does not say, or refuses.
pub(crate) fn entry(entry: &AtomicUsize, value: usize) -> bool {
    let _unnoticed = Unnoticed::new();
    match can_be_written(entry) {
        Some(true) => entry.store(value, Ordering::Release),
        Some(false) => {
            let place = core::ptr::from_ref(entry).cast_mut();
            let page = place.map_addr(|address| address & !(PAGE_BYTES - 1)).cast();
            // SAFETY: a page of the linker's own data, complete.
            unsafe {
                if libc::mprotect(page, PAGE_BYTES, libc::PROT_READ | libc::PROT_WRITE) != 0 {
                    return false;
                }
                entry.store(value, Ordering::Release);
                libc::mprotect(page, PAGE_BYTES, libc::PROT_READ);
            }
        }
        None => return false,
    }
    true
}

/// Asks the kernel to change nothing in it, which it does by an atomic OR with 0 if it may write:
/// FUTEX_WAKE_OP of futex(2). `None`: it does not say.
fn can_be_written(entry: &AtomicUsize) -> Option<bool> {
    /// Nothing waits here.
    static UNUSED: AtomicU32 = AtomicU32::new(0);
    const OR_0: libc::c_int = libc::FUTEX_OP_OR << 28;
    let none: *mut libc::timespec = null_mut();
    let operation = libc::FUTEX_WAKE_OP | libc::FUTEX_PRIVATE_FLAG;
    // SAFETY: the kernel changes nothing, wherever the entry is.
    let answer = unsafe {
        libc::syscall(libc::SYS_futex, UNUSED.as_ptr(), operation, 0, none, entry.as_ptr(), OR_0)
    };
    // SAFETY: errno's address is valid for the calling thread.
    match (answer, unsafe { *libc::__errno_location() }) {
        (0.., _) => Some(true),
        (_, libc::EFAULT) => Some(false),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_stay_as_they_were() {
        let bytes = 2 * PAGE_BYTES;
        let (private, flags) = (libc::PROT_READ, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: new memory of this test.
        unsafe {
            let pages = libc::mmap(null_mut(), bytes, private, flags, -1, 0);
            assert_ne!(pages, libc::MAP_FAILED);
            let [closed, open] = [0, PAGE_BYTES].map(|at| &*pages.byte_add(at).cast());
            assert_eq!(libc::mprotect(pages.byte_add(PAGE_BYTES), PAGE_BYTES, 3), 0);
            for (entry_of, is_open) in [(closed, false), (open, true)] {
                let entry_of: &AtomicUsize = entry_of;
                assert_eq!(can_be_written(entry_of), Some(is_open));
                assert!(entry(entry_of, usize::MAX));
                assert_eq!(entry_of.load(Ordering::Relaxed), usize::MAX);
                assert_eq!(can_be_written(entry_of), Some(is_open));
            }
            libc::munmap(pages, bytes);
            assert!(!entry(closed, 1));
        }
    }
}
