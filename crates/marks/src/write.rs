// SPDX-License-Identifier: MIT OR Apache-2.0
//! Replaces an entry of a global offset table.
//!
//! The dynamic linker makes most tables read-only when they are complete (RELRO). The kernel writes
//! for us where the page can be written, and refuses where it cannot. Then the table is complete:
//! the page is made writable for one store and read-only again, and the linker has no store of its
//! own to do in between.

use core::sync::atomic::{AtomicUsize, Ordering};

use turbolane_hint::inside::KeepErrno;

use crate::PAGE_BYTES;

/// Whether the entry has the value now. False too where the kernel does neither.
pub(crate) fn entry(entry: &AtomicUsize, value: usize) -> bool {
    let _errno = KeepErrno::new();
    let place = core::ptr::from_ref(entry).cast_mut();
    let local = libc::iovec {
        iov_base: (&raw const value).cast_mut().cast(),
        iov_len: size_of_val(&value),
    };
    let remote = libc::iovec { iov_base: place.cast(), iov_len: local.iov_len };
    // SAFETY: the kernel reads `value` and writes the entry, or refuses to.
    let written = unsafe { libc::process_vm_writev(libc::getpid(), &local, 1, &remote, 1, 0) };
    if written == local.iov_len.cast_signed() {
        return true;
    }
    // SAFETY: errno's address is valid for the calling thread.
    if unsafe { *libc::__errno_location() } != libc::EFAULT {
        return false;
    }
    let page = place.map_addr(|address| address & !(PAGE_BYTES - 1)).cast();
    // SAFETY: a page of the linker's own data, complete.
    unsafe {
        if libc::mprotect(page, PAGE_BYTES, libc::PROT_READ | libc::PROT_WRITE) != 0 {
            return false;
        }
        entry.store(value, Ordering::Release);
        libc::mprotect(page, PAGE_BYTES, libc::PROT_READ);
    }
    true
}
