// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which process a journal belongs to: a forked child has its parent's in its memory, and must not
//! write by it.
//!
//! Every boost asks. A page of memory answers without a system call: the kernel wipes it in the
//! child of each fork (madvise(2), MADV_WIPEONFORK). Where there is no such page, process numbers
//! are compared, which is a system call since the C library keeps them no longer.

use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

/// The kernel gives a page, whatever is asked for below its size.
const SIZE: usize = size_of::<AtomicU8>();

/// The process that made it.
pub(crate) enum Owner {
    /// 1 in that process, 0 in its children.
    Page(NonNull<AtomicU8>),
    /// Its number.
    Process(i32),
}

// SAFETY: the page is this value's, and an atomic.
unsafe impl Send for Owner {}
// SAFETY: as above.
unsafe impl Sync for Owner {}

impl Owner {
    /// This process.
    pub(crate) fn this() -> Owner {
        wiped_page().map_or_else(|| Owner::Process(process()), Owner::Page)
    }

    /// Whether this process made it.
    pub(crate) fn is_this(&self) -> bool {
        match self {
            // SAFETY: mapped until this is dropped.
            Owner::Page(page) => unsafe { page.as_ref() }.load(Relaxed) == 1,
            Owner::Process(number) => *number == process(),
        }
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        if let Owner::Page(page) = self {
            // SAFETY: mapped by `wiped_page`, and not used after this.
            unsafe { libc::munmap(page.as_ptr().cast(), SIZE) };
        }
    }
}

/// A page that begins with 1, and with 0 in children.
fn wiped_page() -> Option<NonNull<AtomicU8>> {
    let (access, flags) =
        (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: a new mapping of no file, anywhere.
    let page = unsafe { libc::mmap(null_mut(), SIZE, access, flags, -1, 0) };
    if page == libc::MAP_FAILED {
        return None;
    }
    // SAFETY: the mapping is ours.
    if unsafe { libc::madvise(page, SIZE, libc::MADV_WIPEONFORK) } != 0 {
        // SAFETY: ours, and no one else knows it.
        unsafe { libc::munmap(page, SIZE) };
        return None;
    }
    let page = NonNull::new(page.cast::<AtomicU8>())?;
    // SAFETY: just mapped, zeros.
    unsafe { page.as_ref() }.store(1, Relaxed);
    Some(page)
}

fn process() -> i32 {
    // SAFETY: no arguments, cannot fail.
    unsafe { libc::getpid() }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether a child of this process takes itself for the owner.
    fn child_is(owner: &Owner) -> bool {
        // SAFETY: the child does what a signal handler may do, and ends.
        match unsafe { libc::fork() } {
            // SAFETY: ends the child at once.
            0 => unsafe { libc::_exit(i32::from(owner.is_this())) },
            child => {
                let mut status = 0;
                // SAFETY: a child of ours, and a number of ours.
                assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
                assert!(libc::WIFEXITED(status));
                libc::WEXITSTATUS(status) == 1
            }
        }
    }

    #[test]
    fn a_forked_child_is_another() {
        let owner = Owner::this();
        assert!(matches!(owner, Owner::Page(_)), "the kernel has MADV_WIPEONFORK since 4.14");
        for owner in [owner, Owner::Process(process())] {
            assert!(owner.is_this());
            assert!(!child_is(&owner));
            assert!(owner.is_this());
        }
    }
}
