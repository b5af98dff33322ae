// SPDX-License-Identifier: MIT OR Apache-2.0
//! Board and areas in this process: each area mapped once, for all threads that have slots in it.
//!
//! Problem: threads use the memory without a lock, so it can never be unmapped: another thread may
//! be about to store to it. Yet a scheduler that ended must not leave its pages pinned in every
//! application, and the next scheduler brings new ones.
//!
//! Idea: a mapping, once made, stays valid memory for the life of the process. When the next
//! scheduler's first area arrives, those of the last one are *retired*: private zero memory is
//! mapped over them, in one atomic step. Threads that still point there read `active == 0`, store
//! into the void, and look for the new scheduler. `NEWEST` begins a list that only grows, without a
//! lock: of several threads that register at once and map the same area, one puts it into the list;
//! the others unmap theirs, which no other thread has seen.
//!
//! ```text
//! NEWEST --> +-------------+----------------+---------------+     +----
//!            | head        | Board (shared, | Area (shared) |  +->| head ...
//!            | next -------|- read only) ---|---------------|--+  |
//!            +-------------+----------------+---------------+     +----
//!            0             4096             8192            12288
//! ```
//!
//! A forked child inherits the mappings, and with them a hand in its parent's slots, even if it
//! then gives up its rights: so it retires them all, before it runs anything else.
//!
//! Limits: each area, and each change of scheduler, costs the process 12 KiB of address space for
//! good, and memory only for retired pages that are still written. Memory is mapped by 4 KiB pages;
//! elsewhere mapping fails, and the library does nothing. A child of `vfork` or raw `clone` keeps
//! the mappings until its `exec`.

use crate::fd::Fd;
use crate::page::{Area, Board};
use core::ptr;
use core::sync::atomic::{
    AtomicPtr, AtomicU32, AtomicU64,
    Ordering::{AcqRel, Acquire, Relaxed},
};

const PAGE_BYTES: usize = 4096;
const MAPPING_BYTES: usize = size_of::<Mapping>();

/// Which area of which scheduler a mapping is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Id {
    /// `Reply::run_id`: not 0.
    pub run: u32,
    /// Number of the area.
    pub area: u32,
}

#[repr(C)]
struct Mapping {
    /// `Id`, run in the upper half; 0 once it is retired.
    id: AtomicU64,
    next: AtomicPtr<Mapping>,
    _rest_of_head: [AtomicU32; PAGE_BYTES / 4 - 4],
    board: Board,
    area: Area,
}

const BOARD_AT: usize = core::mem::offset_of!(Mapping, board);
const AREA_AT: usize = core::mem::offset_of!(Mapping, area);
const _: () = assert!(BOARD_AT == PAGE_BYTES && AREA_AT == 2 * PAGE_BYTES);

static NEWEST: AtomicPtr<Mapping> = AtomicPtr::new(ptr::null_mut());

impl Id {
    fn to_word(self) -> u64 {
        u64::from(self.run) << 32 | u64::from(self.area)
    }
}

/// Board and area called `id`, whose files these are: as this process has them already, or newly
/// mapped. `None` if they cannot be mapped, or are not what they should be.
pub(crate) fn adopt(board: &Fd, area: &Fd, id: Id) -> Option<(&'static Board, &'static Area)> {
    let both = |mapping: &'static Mapping| (&mapping.board, &mapping.area);
    if let Some(known) = find(NEWEST.load(Acquire), id) {
        return Some(both(known));
    }
    let new = map(board, area)?;
    // SAFETY: `map` returned a whole mapping, which no one else knows yet.
    let mapping: &'static Mapping = unsafe { &*new };
    if !mapping.board.is_ours() {
        unmap(new);
        return None;
    }
    mapping.id.store(id.to_word(), Relaxed);
    loop {
        let newest = NEWEST.load(Acquire);
        if let Some(known) = find(newest, id) {
            unmap(new);
            return Some(both(known));
        }
        mapping.next.store(newest, Relaxed);
        if NEWEST.compare_exchange(newest, new, AcqRel, Acquire).is_ok() {
            break;
        }
    }
    retire(|run| run != id.run);
    Some(both(mapping))
}

/// In the child of a fork: nothing that it does reaches its parent's slots.
pub(crate) fn in_child() {
    retire(|_| true);
}

/// The mappings from this one on.
fn list(from: *const Mapping) -> impl Iterator<Item = &'static Mapping> {
    // SAFETY: what NEWEST or a `next` ever held is null or a mapping that stays mapped for good.
    let get = |mapping: *const Mapping| unsafe { mapping.as_ref() };
    core::iter::successors(get(from), move |mapping| get(mapping.next.load(Acquire)))
}

fn find(from: *const Mapping, id: Id) -> Option<&'static Mapping> {
    list(from).find(|mapping| mapping.id.load(Relaxed) == id.to_word())
}

/// Maps a private page, and after it the board and the area. The address is aligned and the memory
/// zeroed or shared: all that `Mapping` asks of its bytes.
fn map(board: &Fd, area: &Fd) -> Option<*mut Mapping> {
    if !is_large_enough(board) || !is_large_enough(area) {
        return None;
    }
    let private = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: a new mapping at an address of the kernel's choice touches no existing memory.
    let base = unsafe { libc::mmap(ptr::null_mut(), MAPPING_BYTES, READ_WRITE, private, -1, 0) };
    if base == libc::MAP_FAILED {
        return None;
    }
    let shared = libc::MAP_SHARED | libc::MAP_FIXED;
    let put = |fd: &Fd, at: usize, rights| {
        // SAFETY: replaces a part of the mapping just made, which no one uses yet.
        unsafe {
            libc::mmap(base.byte_add(at), PAGE_BYTES, rights, shared, fd.raw(), 0)
                != libc::MAP_FAILED
        }
    };
    if !put(board, BOARD_AT, libc::PROT_READ) || !put(area, AREA_AT, READ_WRITE) {
        unmap(base.cast());
        return None;
    }
    Some(base.cast())
}

const READ_WRITE: libc::c_int = libc::PROT_READ | libc::PROT_WRITE;

/// False for a file shorter than a page: touching what lies beyond its end would be a SIGBUS.
/// A BPF map has no size to look at; there mmap itself refuses.
fn is_large_enough(fd: &Fd) -> bool {
    // SAFETY: stat is plain data, all zeroes is a value of it.
    let mut stat: libc::stat = unsafe { core::mem::zeroed() };
    // SAFETY: writes to the local structure only.
    if unsafe { libc::fstat(fd.raw(), &mut stat) } != 0 {
        return false;
    }
    let is_file = stat.st_mode & libc::S_IFMT == libc::S_IFREG;
    !is_file || usize::try_from(stat.st_size).is_ok_and(|bytes| bytes >= PAGE_BYTES)
}

/// Undoes `map` for a mapping that was never in the list.
fn unmap(mapping: *mut Mapping) {
    // SAFETY: the whole mapping is ours, and no one else knows of it.
    unsafe { libc::munmap(mapping.cast(), MAPPING_BYTES) };
}

/// Puts zero memory in place of what threads may still use, of the runs for which `is_over` holds.
/// If that fails the old pages stay, inactive all the same.
fn retire(is_over: impl Fn(u32) -> bool) {
    for mapping in list(NEWEST.load(Acquire)) {
        let id = mapping.id.load(Relaxed);
        if id == 0 || !is_over((id >> 32) as u32) {
            continue;
        }
        mapping.id.store(0, Relaxed);
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED;
        // SAFETY: replaces pages of ours by some of the same size and no fewer rights; their users
        // see other values, which atomics may have at any time.
        unsafe {
            let base = ptr::from_ref(mapping).cast_mut().byte_add(BOARD_AT);
            libc::mmap(base.cast(), 2 * PAGE_BYTES, READ_WRITE, flags, -1, 0);
        }
    }
}
