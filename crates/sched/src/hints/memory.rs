// SPDX-License-Identifier: MIT OR Apache-2.0
//! Board and areas (`bpf/hint_page.h`) as their owner, the daemon, sees them.
//!
//! With the scheduler the board is a frozen BPF map, which the daemon itself can only hand out, and
//! areas are BPF maps that the scheduler finds in a map of maps. In affinity mode both are memfds.
//! Sealed, in either case: an application that could cut one short would kill the others, and us,
//! by SIGBUS, and one that could write the board would lead all others astray. (A map cannot be
//! cut.)
//!
//! The daemon keeps a descriptor for each area, for the threads of its process that come later.

use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::ops::Deref;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr::{self, NonNull};
use std::sync::atomic::Ordering::{Relaxed, Release, SeqCst};
use std::sync::atomic::fence;

use turbolane_hint::page;

/// A page of memory that others share, mapped for writing. Dropping it unmaps it here, and changes
/// nothing for others.
#[derive(Debug)]
struct Shared<T>(NonNull<T>);

// SAFETY: the mapping belongs to the process, not to a thread, and consists of atomics.
unsafe impl<T: Sync> Send for Shared<T> {}
// SAFETY: as above.
unsafe impl<T: Sync> Sync for Shared<T> {}

impl<T> Shared<T> {
    fn map(fd: BorrowedFd<'_>) -> io::Result<Self> {
        let rights = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice touches no existing memory.
        let map = unsafe {
            let shared = libc::MAP_SHARED;
            libc::mmap(ptr::null_mut(), size_of::<T>(), rights, shared, fd.as_raw_fd(), 0)
        };
        match NonNull::new(map.cast::<T>()) {
            Some(memory) if map != libc::MAP_FAILED => Ok(Shared(memory)),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

impl<T> Deref for Shared<T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: mapped until dropped, large enough (a map's mmap and the seals see to that), page
        // aligned, and all of it atomics: `T` is a board or an area.
        unsafe { self.0.as_ref() }
    }
}

impl<T> Drop for Shared<T> {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and references to it end with this value.
        unsafe { libc::munmap(self.0.as_ptr().cast(), size_of::<T>()) };
    }
}

/// A memfd of one page, mapped, with these seals.
fn memfd<T>(name: &CStr, seals: i32) -> io::Result<(Shared<T>, OwnedFd)> {
    let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
    // SAFETY: reads the name.
    let fd = unsafe { libc::memfd_create(name.as_ptr(), flags) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a new descriptor that no one else owns.
    let file = unsafe { File::from_raw_fd(fd) };
    file.set_len(size_of::<T>() as u64)?;
    let shared = Shared::map(file.as_fd())?;
    let seals = seals | libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;
    // SAFETY: no memory of ours.
    if unsafe { libc::fcntl(fd, libc::F_ADD_SEALS, seals) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok((shared, file.into()))
}

/// The board of affinity mode.
#[derive(Debug)]
pub struct Board(Shared<page::Board>);

impl Board {
    /// A new board, and the descriptor to hand out: no one can map it for writing any more.
    pub fn memfd() -> io::Result<(Board, OwnedFd)> {
        let (shared, fd) = memfd(c"turbolane-hints", libc::F_SEAL_FUTURE_WRITE)?;
        Ok((Board(shared), fd))
    }

    /// Makes the board valid and active: `mode` is `turbolane_hint::page::MODE_*`, and `nr_cpus`
    /// entries of `cpu[]` are in use.
    pub fn publish(&self, mode: u32, nr_cpus: u32) {
        let header = &self.header;
        header.abi.store(page::ABI, Relaxed);
        header.mode.store(mode, Relaxed);
        header.nr_cpus.store(nr_cpus.min(page::CPUS as u32), Relaxed);
        header.nr_slots.store(page::AREA_SLOTS as u32, Relaxed);
        header.active.store(1, Relaxed);
        header.magic.store(page::MAGIC, Release);
    }

    /// Sets what CPUs may run and whether scalar tasks should leave them, from CPU 0 on
    /// (`policy::cpu_flags` makes the entries). Changes the board's generation.
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

    /// Sets what levels cost a core (`clocks::published`).
    pub fn set_lacks(&self, lacks_q10: [u16; 4]) {
        for (entry, lacks) in self.header.lacks_q10.iter().zip(lacks_q10) {
            entry.store(lacks, Relaxed);
        }
    }

    /// Says that no one acts on the slots any more. Whatever the caller reads afterwards, of masks
    /// for instance, an application that still thought the board active has changed before, or will
    /// see this and undo it.
    pub fn retire(&self) {
        self.header.active.store(0, Relaxed);
        fence(SeqCst);
    }
}

impl Deref for Board {
    type Target = page::Board;

    fn deref(&self) -> &page::Board {
        &self.0
    }
}

/// An area.
#[derive(Debug)]
pub struct Area {
    shared: Shared<page::Area>,
    fd: OwnedFd,
}

impl Area {
    /// In memory of its own.
    pub fn memfd() -> io::Result<Area> {
        let (shared, fd) = memfd(c"turbolane-slots", 0)?;
        Ok(Area { shared, fd })
    }

    /// The area that a descriptor is of.
    pub fn from_fd(fd: OwnedFd) -> io::Result<Area> {
        Ok(Area { shared: Shared::map(fd.as_fd())?, fd })
    }

    /// To hand out to the process that it belongs to.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Deref for Area {
    type Target = page::Area;

    fn deref(&self) -> &page::Area {
        &self.shared
    }
}

/// An area that others hand out: mapped, without a descriptor.
#[derive(Debug)]
pub struct AreaView(Shared<page::Area>);

impl AreaView {
    /// The area that a descriptor is of, which is not needed further.
    pub fn map(fd: BorrowedFd<'_>) -> io::Result<AreaView> {
        Shared::map(fd).map(AreaView)
    }
}

impl Deref for AreaView {
    type Target = page::Area;

    fn deref(&self) -> &page::Area {
        &self.0
    }
}

/// Makes areas with these numbers, zeroed, in place of those that had the numbers before: who acts
/// on slots sees them from then on. All or none. Many at a time take as long as one (tens of
/// milliseconds with the scheduler, whose programs must be done with the old ones).
pub type NewAreas = Box<dyn FnMut(&[u32]) -> io::Result<Vec<Area>> + Send>;

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::FileExt;

    fn map(fd: &OwnedFd, rights: i32) -> io::Result<*mut libc::c_void> {
        // SAFETY: a new mapping at an address of the kernel's choice, never unmapped.
        let map = unsafe {
            libc::mmap(ptr::null_mut(), 4096, rights, libc::MAP_SHARED, fd.as_raw_fd(), 0)
        };
        if map == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(map) }
    }

    /// Whoever has the board's descriptor reads what we write, and neither writes, nor cuts, nor
    /// unlocks it.
    #[test]
    fn board_is_read_only_for_others() {
        let (board, fd) = Board::memfd().unwrap();
        board.publish(page::MODE_AFFINITY, 3);
        let read_write = libc::PROT_READ | libc::PROT_WRITE;
        map(&fd, read_write).unwrap_err();
        let read_only = map(&fd, libc::PROT_READ).unwrap();
        // SAFETY: our own mapping, never unmapped; a board's bytes.
        let (seen, is_opened) = unsafe {
            let seen = &*read_only.cast::<page::Board>();
            (seen, libc::mprotect(read_only, 4096, read_write) == 0)
        };
        assert!(!is_opened);
        let file = File::from(fd.try_clone().unwrap());
        file.set_len(0).unwrap_err();
        file.write_at(&[1], 0).unwrap_err();
        let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
        if let Ok(file) = File::options().read(true).write(true).open(path) {
            file.write_at(&[1], 0).unwrap_err();
            map(&file.into(), read_write).unwrap_err();
        }
        assert!(seen.is_ours() && seen.is_active());
        board.retire();
        assert!(!seen.is_active());
    }

    /// What one mapping of an area writes, another one reads; and no one can cut the file.
    #[test]
    fn area_is_shared_and_cannot_be_cut() {
        let area = Area::memfd().unwrap();
        let fd = area.fd().try_clone_to_owned().unwrap();
        File::from(fd.try_clone().unwrap()).set_len(64).unwrap_err();
        let other = Area::from_fd(fd).unwrap();
        area.slot[63].want.store(2, Relaxed);
        assert_eq!(other.slot[63].want.load(Relaxed), 2);
    }

    /// Each change of the flags is a new generation; a list longer than the board is cut.
    #[test]
    fn flags_have_generations() {
        let (board, _fd) = Board::memfd().unwrap();
        let generation = || board.header.generation.load(Relaxed);
        let before = generation();
        board.set_flags(&[0, 0x83]);
        assert_eq!(board.cpu_flags(1), Some(0x83));
        assert_ne!(generation(), before);
        board.set_flags(&[1; page::CPUS + 1]);
        assert_eq!(board.cpu_flags(page::CPUS as u32 - 1), Some(1));
    }
}
