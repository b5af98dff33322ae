// SPDX-License-Identifier: MIT OR Apache-2.0
//! Bytes with nothing readable after them.

use std::io;

/// A page whose successor cannot be read.
pub struct Guarded {
    start: *mut u8,
    page: usize,
}

impl Guarded {
    /// Maps the two pages.
    ///
    /// # Panics
    /// When the kernel has no memory left.
    #[must_use]
    #[expect(clippy::new_without_default, reason = "it allocates: say so")]
    pub fn new() -> Self {
        // SAFETY: sysconf takes no pointers.
        let page = usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).expect("positive");
        // SAFETY: a fresh private mapping that nobody else knows.
        let start = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                2 * page,
                libc::PROT_NONE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        assert_ne!(start, libc::MAP_FAILED, "mmap: {}", io::Error::last_os_error());
        // SAFETY: the first of our two pages.
        let code = unsafe { libc::mprotect(start, page, libc::PROT_READ | libc::PROT_WRITE) };
        assert_eq!(code, 0, "mprotect: {}", io::Error::last_os_error());
        Self { start: start.cast(), page }
    }

    /// A copy of `bytes` that ends where the page ends.
    ///
    /// # Panics
    /// When `bytes` is longer than a page.
    pub fn place(&mut self, bytes: &[u8]) -> &[u8] {
        assert!(bytes.len() <= self.page);
        // SAFETY: the offset is within the page.
        let target = unsafe { self.start.add(self.page - bytes.len()) };
        // SAFETY: target has room for bytes before the end of the page, is
        // ours alone, and lives as long as the borrow of self.
        unsafe {
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), target, bytes.len());
            std::slice::from_raw_parts(target, bytes.len())
        }
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        // SAFETY: mapped by new(), and nobody borrows from it any more.
        unsafe { libc::munmap(self.start.cast(), 2 * self.page) };
    }
}
