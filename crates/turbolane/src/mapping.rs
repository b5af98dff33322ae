// SPDX-License-Identifier: MIT OR Apache-2.0
//! The hint page in this process: mapped once, for all threads.
//!
//! Problem: threads use the page without a lock, so it can never be unmapped: another thread may
//! be about to store to it. Yet a scheduler that ended must not leave its page pinned in every
//! application, and the next scheduler brings a new one.
//!
//! Idea: a mapping, once made, stays valid memory for the life of the process. When the next
//! scheduler's page arrives, the old one is *retired*: private zero memory is mapped over it, in
//! one atomic step. Threads that still point there read `active == 0`, store into the void, and
//! look for the new scheduler. The lock-free `CURRENT` decides which of several threads that
//! register at once has mapped the page; the others unmap theirs, which nobody has seen.
//!
//! ```text
//! CURRENT --> +------------------+---------------------------+
//!             | id (private page)| HintPage (shared)         |
//!             +------------------+---------------------------+
//!             0                  4096                  1057792
//! ```
//!
//! Limits: each change of scheduler costs the process 1 MiB of address space for good, and memory
//! only for retired pages that are still written: 4 KiB per 64 threads that never open a section
//! again, nothing else. Memory is mapped by 4 KiB pages; elsewhere mapping fails, and the library
//! does nothing.

use crate::page::HintPage;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr;
use std::sync::atomic::{
    AtomicPtr, AtomicU32,
    Ordering::{AcqRel, Acquire, Relaxed},
};

const HEAD_BYTES: usize = 4096;
const MAPPING_BYTES: usize = size_of::<Mapping>();

#[repr(C)]
struct Mapping {
    /// `Reply::page_id` of the page.
    id: AtomicU32,
    _rest_of_head: [AtomicU32; HEAD_BYTES / 4 - 1],
    page: HintPage,
}

const _: () = assert!(std::mem::offset_of!(Mapping, page) == HEAD_BYTES);

static CURRENT: AtomicPtr<Mapping> = AtomicPtr::new(ptr::null_mut());

/// The page called `id`, whose file is `fd`: as this process has it already, or newly mapped.
/// `None` if it cannot be mapped, is no hint page, or another page arrived at the same time.
pub(crate) fn adopt(fd: BorrowedFd<'_>, id: u32) -> Option<&'static HintPage> {
    let old = CURRENT.load(Acquire);
    if let Some(page) = page_of(old, id) {
        return Some(page);
    }
    let new = map(fd)?;
    // SAFETY: `map` returned a whole mapping, which nobody else knows yet.
    let mapping = unsafe { &*new };
    mapping.id.store(id, Relaxed);
    if mapping.page.is_ours() {
        match CURRENT.compare_exchange(old, new, AcqRel, Acquire) {
            Ok(_) => {
                retire(old);
                return Some(&mapping.page);
            }
            Err(other) => {
                unmap(new);
                return page_of(other, id);
            }
        }
    }
    unmap(new);
    None
}

/// The page of a mapping, if there is one and its page is the one called `id`.
fn page_of(mapping: *const Mapping, id: u32) -> Option<&'static HintPage> {
    // SAFETY: what CURRENT once held is null or a mapping that stays mapped for good.
    let mapping = unsafe { mapping.as_ref() }?;
    (mapping.id.load(Relaxed) == id).then_some(&mapping.page)
}

/// Maps a private page and behind it the file. The address is aligned and the memory zeroed or
/// shared: all that `Mapping` asks of its bytes.
fn map(fd: BorrowedFd<'_>) -> Option<*mut Mapping> {
    if !is_large_enough(fd) {
        return None;
    }
    // SAFETY: a new mapping at an address of the kernel's choice touches no existing memory.
    let base = unsafe {
        libc::mmap(
            ptr::null_mut(),
            MAPPING_BYTES,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
            -1,
            0,
        )
    };
    if base == libc::MAP_FAILED {
        return None;
    }
    // SAFETY: replaces the part behind the head of the mapping just made, which nobody uses yet.
    let page = unsafe {
        libc::mmap(
            base.byte_add(HEAD_BYTES),
            size_of::<HintPage>(),
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED | libc::MAP_FIXED,
            fd.as_raw_fd(),
            0,
        )
    };
    if page == libc::MAP_FAILED {
        unmap(base.cast());
        return None;
    }
    Some(base.cast())
}

/// False for a file too short for the page: touching what lies behind its end would be a SIGBUS.
/// A BPF map has no size to look at; there mmap itself refuses.
fn is_large_enough(fd: BorrowedFd<'_>) -> bool {
    // SAFETY: stat is plain data, all zeroes is a value of it.
    let mut stat: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: writes to the local structure only.
    if unsafe { libc::fstat(fd.as_raw_fd(), &mut stat) } != 0 {
        return false;
    }
    let is_file = stat.st_mode & libc::S_IFMT == libc::S_IFREG;
    !is_file || usize::try_from(stat.st_size).is_ok_and(|bytes| bytes >= size_of::<HintPage>())
}

/// Undoes `map` for a mapping that was never in `CURRENT`.
fn unmap(mapping: *mut Mapping) {
    // SAFETY: the whole mapping is ours, and nobody else knows of it.
    unsafe { libc::munmap(mapping.cast(), MAPPING_BYTES) };
}

/// Puts zero memory in place of a page that threads may still use. If that fails the old page
/// stays, inactive all the same.
fn retire(mapping: *mut Mapping) {
    if mapping.is_null() {
        return;
    }
    // SAFETY: replaces a mapping of ours by one of the same size and rights; its users see other
    // values, which atomics may have at any time.
    unsafe {
        libc::mmap(
            mapping.byte_add(HEAD_BYTES).cast(),
            size_of::<HintPage>(),
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED,
            -1,
            0,
        );
    }
}
