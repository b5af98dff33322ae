// SPDX-License-Identifier: MIT OR Apache-2.0
//! The masks that threads had, in memory that daemon and keeper share, and how they are restored.
//!
//! Masks belong to the user: a thread is restored only if its mask is one that the library gave it,
//! known by the hashes that the library leaves in the thread's slot before it takes a mask. Threads
//! that a narrowed thread has created inherited its mask, and may not be registered: so all threads
//! of a process with registered ones are looked at, and compared to the masks of these. What a slot
//! says is its process's word: so it counts for threads of that process alone, which is known by
//! its number and its start time.
//!
//! Order: `active = 0` first, masks later, with a full barrier between; the library sets its mask
//! first and looks at `active` later. So of a thread that narrows itself at that very moment,
//! either we see the mask or it sees that it has to take it back.

use std::collections::{HashMap, HashSet};
use std::io::{self, Error};
use std::ptr::{self, NonNull};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU32, AtomicU64};
use std::sync::{Arc, Mutex, MutexGuard};

use cpumodel::CpuSet;
use turbolane_hint::page::{self, AREA_SLOTS, AREAS, Mask, mask_hash};

use crate::hints::{AreaView, Board, Registration};

/// The mask of a registered thread, by its slot. All zero: no one.
#[repr(C)]
pub(super) struct Record {
    /// In the daemon's PID namespace; written last.
    tid: AtomicU32,
    pub(super) tgid: AtomicU32,
    /// With `tid` names the thread for good, clock ticks since boot.
    pub(super) start_ticks: AtomicU64,
    /// The same of `tgid`.
    pub(super) process_start_ticks: AtomicU64,
    original: [AtomicU64; page::CPUS / 64],
}

pub(super) type Table = [Record; AREAS * AREA_SLOTS];

/// What daemon and keeper share.
pub(super) struct Masks {
    board: Arc<Board>,
    records: NonNull<Table>,
    /// The areas as this process has them, by number.
    pub(super) areas: Mutex<HashMap<u32, AreaView>>,
}

// SAFETY: the table belongs to the process, not to a thread, and consists of atomics.
unsafe impl Send for Masks {}
// SAFETY: as above.
unsafe impl Sync for Masks {}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

impl Record {
    pub(super) fn original(&self) -> CpuSet {
        let words = self.original.iter().map(|word| word.load(Relaxed));
        let cpus_of = |(i, word): (usize, u64)| {
            (0..64).filter(move |bit| word >> bit & 1 == 1).map(move |bit| 64 * i + bit)
        };
        words.enumerate().flat_map(cpus_of).collect()
    }

    /// True if `tid` is still the thread that registered.
    fn is_thread(&self, tid: u32) -> bool {
        hw::task::start_ticks(tid).is_ok_and(|ticks| ticks == self.start_ticks.load(Relaxed))
    }
}

impl Masks {
    pub(super) fn new(board: Arc<Board>) -> io::Result<Masks> {
        Ok(Masks { board, records: new_table()?, areas: Mutex::default() })
    }

    /// This process has the area with that number now.
    pub(super) fn add(&self, number: u32, area: AreaView) {
        lock(&self.areas).insert(number, area);
    }

    /// Forgets the threads of the process that had the number of an area before.
    pub(super) fn forget(&self, number: u32) {
        let first = number as usize * AREA_SLOTS;
        for record in &self.table()[first..first + AREA_SLOTS] {
            record.tid.store(0, Relaxed);
        }
    }

    pub(super) fn table(&self) -> &Table {
        // SAFETY: mapped until dropped, zeroed by the kernel, and all of it atomics.
        unsafe { self.records.as_ref() }
    }

    /// Notes a thread's mask, before the thread learns that it may change it. A thread that comes
    /// again with a mask of ours (it has called `exec`, and knows nothing of its past) gets its own
    /// back instead.
    pub(super) fn record(&self, registration: Registration) -> io::Result<()> {
        let Registration { tid, tgid, slot } = registration;
        let mask = hw::task::get_affinity(tid)?;
        let start_ticks = hw::task::start_ticks(tid)?;
        let process_start_ticks = hw::task::start_ticks(tgid)?;
        let record = &self.table()[slot as usize];
        let is_known =
            record.tid.load(Relaxed) == tid && record.start_ticks.load(Relaxed) == start_ticks;
        if is_known && self.narrowed(slot).contains(&hash_of(&mask)) {
            return hw::task::set_affinity(tid, &record.original());
        }
        record.tid.store(0, Release);
        record.tgid.store(tgid, Relaxed);
        record.start_ticks.store(start_ticks, Relaxed);
        record.process_start_ticks.store(process_start_ticks, Relaxed);
        for (to, from) in record.original.iter().zip(mask.words()) {
            to.store(*from, Relaxed);
        }
        record.tid.store(tid, Release);
        Ok(())
    }

    /// Hashes of the masks that the owner of a slot has given itself.
    fn narrowed(&self, slot: u32) -> HashSet<u64> {
        let (number, index) = (slot / AREA_SLOTS as u32, slot as usize % AREA_SLOTS);
        let areas = lock(&self.areas);
        let hashes = areas.get(&number).into_iter().flat_map(|area| &area.slot[index].narrowed);
        hashes.map(|hash| hash.load(Relaxed)).filter(|hash| *hash != 0).collect()
    }

    /// Ends affinity mode: no one narrows a mask any more, and masks of ours are undone. Doing it
    /// twice, or in two processes, is harmless.
    pub(super) fn restore_all(&self) {
        self.board.retire();
        let mut processes: HashMap<(u32, u64), Vec<(u32, &Record)>> = HashMap::new();
        let areas: Vec<u32> = lock(&self.areas).keys().copied().collect();
        let slots = areas.into_iter().flat_map(|area| {
            let first = area * AREA_SLOTS as u32;
            first..first + AREA_SLOTS as u32
        });
        for slot in slots {
            let record = &self.table()[slot as usize];
            if record.tid.load(Acquire) != 0 {
                let tgid = record.tgid.load(Relaxed);
                let process = (tgid, record.process_start_ticks.load(Relaxed));
                processes.entry(process).or_default().push((slot, record));
            }
        }
        for ((tgid, start_ticks), records) in processes {
            if hw::task::exists_since(tgid, start_ticks) {
                self.restore_process(tgid, &records);
            }
        }
    }

    /// Restores a process's threads: those that registered by their own records, others by whoever
    /// they may have inherited from.
    fn restore_process(&self, tgid: u32, records: &[(u32, &Record)]) {
        let mut inherited: HashMap<u64, &Record> = HashMap::new();
        let mut registered: HashMap<u32, (u32, &Record)> = HashMap::new();
        for &(slot, record) in records {
            for hash in self.narrowed(slot) {
                inherited.insert(hash, record);
            }
            registered.insert(record.tid.load(Relaxed), (slot, record));
        }
        for tid in hw::task::threads(tgid).unwrap_or_default() {
            let Ok(mask) = hw::task::get_affinity(tid) else { continue };
            let hash = hash_of(&mask);
            let source = match registered.get(&tid) {
                Some((slot, record)) if record.is_thread(tid) => {
                    self.narrowed(*slot).contains(&hash).then_some(*record)
                }
                _ => inherited.get(&hash).copied(),
            };
            if let Some(record) = source {
                // Fails for a thread that has just ended, which needs nothing any more.
                let _ = hw::task::set_affinity(tid, &record.original());
            }
        }
    }
}

impl Drop for Masks {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and references to it end with this value.
        unsafe { libc::munmap(self.records.as_ptr().cast(), size_of::<Table>()) };
    }
}

/// Masks with processes forked from now on; 42 MiB of addresses, of which only what is used takes
/// memory.
fn new_table() -> io::Result<NonNull<Table>> {
    let rights = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_SHARED | libc::MAP_ANONYMOUS;
    // SAFETY: a new mapping at an address of the kernel's choice touches no existing memory.
    let map = unsafe { libc::mmap(ptr::null_mut(), size_of::<Table>(), rights, flags, -1, 0) };
    match NonNull::new(map.cast::<Table>()) {
        Some(table) if map != libc::MAP_FAILED => Ok(table),
        _ => Err(Error::last_os_error()),
    }
}

pub(super) fn hash_of(mask: &CpuSet) -> u64 {
    let mut words = Mask::default();
    words.copy_from_slice(mask.words());
    mask_hash(&words)
}
