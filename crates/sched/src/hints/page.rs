// SPDX-License-Identifier: MIT OR Apache-2.0
//! The hint page as its owner, the daemon, sees it.
//!
//! In scx mode the page is the memory of a BPF array map, which the scheduler reads and the
//! applications write. In affinity mode nobody but applications and daemon look at it, and it is a
//! memfd. Applications get the file descriptor, and with it the right to write all of the page: see
//! `turbolane::page` on what that means. A memfd is sealed, or else one of them could cut it short,
//! and kill the others and us by SIGBUS; a map cannot be cut.

use std::fs::File;
use std::io;
use std::ops::Deref;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr::{self, NonNull};
use std::sync::atomic::Ordering::{Relaxed, Release, SeqCst};
use std::sync::atomic::fence;

use turbolane::page::{self, HintPage};

/// The page, mapped for writing. Dropping it unmaps it here, and changes nothing for others.
#[derive(Debug)]
pub struct Page {
    map: NonNull<HintPage>,
}

// SAFETY: the mapping belongs to the process, not to a thread, and consists of atomics.
unsafe impl Send for Page {}
// SAFETY: as above.
unsafe impl Sync for Page {}

impl Page {
    /// A new page in memory of its own, and the descriptor to hand out.
    pub fn memfd() -> io::Result<(Page, OwnedFd)> {
        let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
        // SAFETY: reads the constant name.
        let fd = unsafe { libc::memfd_create(c"turbolane-hints".as_ptr(), flags) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: a new descriptor that nobody else owns.
        let file = unsafe { File::from_raw_fd(fd) };
        file.set_len(size_of::<HintPage>() as u64)?;
        let seals = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;
        // SAFETY: no memory of ours.
        if unsafe { libc::fcntl(fd, libc::F_ADD_SEALS, seals) } != 0 {
            return Err(io::Error::last_os_error());
        }
        let page = Page::map(fd)?;
        Ok((page, file.into()))
    }

    /// The page behind a descriptor, of a BPF array map or a file. It is mapped; the descriptor is
    /// not needed further.
    pub fn from_fd(fd: OwnedFd) -> io::Result<Page> {
        Page::map(fd.as_raw_fd())
    }

    fn map(fd: i32) -> io::Result<Page> {
        let rights = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice touches no existing memory.
        let map = unsafe {
            libc::mmap(ptr::null_mut(), size_of::<HintPage>(), rights, libc::MAP_SHARED, fd, 0)
        };
        match NonNull::new(map.cast::<HintPage>()) {
            Some(page) if map != libc::MAP_FAILED => Ok(Page { map: page }),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Makes the page valid and active: `mode` is `turbolane::page::MODE_*`, and `nr_cpus` entries
    /// of `cpu[]` are in use. What was in the header before does not matter.
    pub fn publish(&self, mode: u32, nr_cpus: u32) {
        let header = &self.header;
        header.abi.store(page::ABI, Relaxed);
        header.mode.store(mode, Relaxed);
        header.nr_cpus.store(nr_cpus.min(page::CPUS as u32), Relaxed);
        header.nr_slots.store(page::SLOTS as u32, Relaxed);
        header.active.store(1, Relaxed);
        header.magic.store(page::MAGIC, Release);
    }

    /// Sets what CPUs may run and whether scalar tasks should leave them, from CPU 0 on
    /// (`policy::cpu_flags` makes the entries). Changes the page's generation.
    pub fn set_flags(&self, flags: &[u8]) {
        for (entry, flags) in self.cpu.iter().zip(flags) {
            entry.store(*flags, Relaxed);
        }
        self.header.generation.fetch_add(1, Release);
    }

    /// Sets which announced scalar phases are rests (policy/rest.h).
    pub fn set_rest_below(&self, rest_below_ns: u64) {
        self.header.rest_below_ns.store(rest_below_ns, Relaxed);
    }

    /// Says that nobody acts on the slots any more. Whatever the caller reads afterwards, of masks
    /// for instance, an application that still thought the page active has changed before, or will
    /// see this and undo it.
    pub fn retire(&self) {
        self.header.active.store(0, Relaxed);
        fence(SeqCst);
    }
}

impl Deref for Page {
    type Target = HintPage;

    fn deref(&self) -> &HintPage {
        // SAFETY: mapped until dropped, large enough (a map's mmap and the seals see to that), page
        // aligned, and all of it atomics.
        unsafe { self.map.as_ref() }
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and references to it end with this value.
        unsafe { libc::munmap(self.map.as_ptr().cast(), size_of::<HintPage>()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What one mapping of the descriptor writes, another one reads; and nobody can cut the file.
    #[test]
    fn memfd_is_shared_and_sealed() {
        let (page, fd) = Page::memfd().unwrap();
        page.publish(page::MODE_AFFINITY, 3);
        let cut = File::from(fd.try_clone().unwrap());
        cut.set_len(4096).unwrap_err();
        let other = Page::from_fd(fd).unwrap();
        assert!(other.is_ours() && other.is_active());
        assert_eq!(other.header.nr_cpus.load(Relaxed), 3);
        page.retire();
        assert!(!other.is_active());
    }

    /// Each change of the flags is a new generation; a list longer than the page is cut.
    #[test]
    fn flags_have_generations() {
        let (page, _fd) = Page::memfd().unwrap();
        let generation = || page.header.generation.load(Relaxed);
        let before = generation();
        page.set_flags(&[0, 0x83]);
        assert_eq!(page.cpu_flags(1), Some(0x83));
        assert_ne!(generation(), before);
        page.set_flags(&[1; page::CPUS + 1]);
        assert_eq!(page.cpu_flags(page::CPUS as u32 - 1), Some(1));
    }
}
