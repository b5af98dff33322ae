// SPDX-License-Identifier: MIT OR Apache-2.0
//! Gives threads their affinity masks back, even if the daemon is killed.
//!
//! Problem: what a daemon changed on other programs' threads outlives it. On `kill -9` it can
//! restore nothing, and threads would stay confined to a part of the machine for as long as they
//! live. (The library does restore, but only a thread that opens a section; many never open a
//! section again.)
//!
//! Idea: a second process, the keeper, forked at the start, waits for the daemon's end, which it
//! sees as the end of a socket: the kernel closes the daemon's side whatever the cause. Masks are
//! recorded, when a thread registers and before it can narrow its own, in memory that both
//! processes share. The daemon restores by the same function when it ends normally. Areas of slots
//! come later, one per process that registers: the daemon sends their descriptors over the socket,
//! and waits until the keeper has them.
//!
//! Masks belong to the user: a thread is restored only if its mask is one that the library gave it,
//! known by the hashes that the library leaves in the thread's slot before it takes a mask. Threads
//! that a narrowed thread has created inherited its mask, and may not be registered: so all threads
//! of a process with registered ones are looked at, and compared to the masks of these. What a slot
//! says is its process's word: so it counts for threads of that process alone, which is known by
//! its number and its start time.
//!
//! The keeper's own safety: it has all signals blocked from its first instant, and sits in a
//! session of its own, so that what ends the daemon does not end it; it holds no descriptor of the
//! daemon's but the socket. Its child side runs ordinary code after a fork of a process that may
//! have threads: glibc makes its allocator usable there, and nothing else with a lock is used.
//!
//! Order: `active = 0` first, masks later, with a full barrier between; the library sets its mask
//! first and looks at `active` later. So of a thread that narrows itself at that very moment,
//! either we see the mask or it sees that it has to take it back.
//!
//! Limits: programs that a narrowed thread started by `posix_spawn` and that do not register keep
//! the mask. If the keeper itself is killed with signal 9, and then the daemon, masks stay.

use std::collections::{HashMap, HashSet};
use std::io::{self, Error};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::ptr::{self, NonNull};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU32, AtomicU64};
use std::sync::{Arc, Mutex, MutexGuard};

use machine::CpuSet;
use turbolane_hint::page::{self, AREA_SLOTS, AREAS, Mask, mask_hash};

use crate::hints::{Area, AreaView, Board, Registration};

use super::handover;

/// The mask of a registered thread, by its slot. All zero: no one.
#[repr(C)]
struct Record {
    /// In the daemon's PID namespace; written last.
    tid: AtomicU32,
    tgid: AtomicU32,
    /// With `tid` names the thread for good, clock ticks since boot.
    start_ticks: AtomicU64,
    /// The same of `tgid`.
    process_start_ticks: AtomicU64,
    original: [AtomicU64; page::CPUS / 64],
}

type Table = [Record; AREAS * AREA_SLOTS];

/// What daemon and keeper share.
struct Shared {
    board: Arc<Board>,
    records: NonNull<Table>,
    /// The areas as this process has them, by number.
    areas: Mutex<HashMap<u32, AreaView>>,
}

// SAFETY: the table belongs to the process, not to a thread, and consists of atomics.
unsafe impl Send for Shared {}
// SAFETY: as above.
unsafe impl Sync for Shared {}

/// The keeper, seen from the daemon. Dropping it restores all masks and ends the process.
pub(super) struct Keeper {
    shared: Arc<Shared>,
    /// The daemon's end of the socket; closed by `None`.
    alive: Arc<Mutex<Option<OwnedFd>>>,
    pid: libc::pid_t,
}

/// Records masks and makes areas, for the hint server.
pub(super) struct Recorder {
    shared: Arc<Shared>,
    alive: Arc<Mutex<Option<OwnedFd>>>,
}

impl Keeper {
    /// Forks the keeper. Best before the daemon has threads.
    pub fn start(board: &Arc<Board>) -> io::Result<Keeper> {
        let (board, areas) = (Arc::clone(board), Mutex::default());
        let shared = Arc::new(Shared { board, records: new_table()?, areas });
        let (ended, alive) = handover::pair()?;
        match fork_deaf()? {
            0 => keep(&shared, ended),
            pid => Ok(Keeper { shared, alive: Arc::new(Mutex::new(Some(alive))), pid }),
        }
    }

    /// What the hint server calls.
    pub fn recorder(&self) -> Recorder {
        Recorder { shared: Arc::clone(&self.shared), alive: Arc::clone(&self.alive) }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.shared.restore_all();
        drop(lock(&self.alive).take());
        // SAFETY: waits for our own child; no memory of ours.
        while unsafe { libc::waitpid(self.pid, ptr::null_mut(), 0) } < 0
            && Error::last_os_error().kind() == io::ErrorKind::Interrupted
        {}
    }
}

impl Recorder {
    /// Makes an area that the keeper knows too.
    pub fn new_area(&self, number: u32) -> io::Result<Area> {
        let area = Area::memfd()?;
        let own = AreaView::map(area.fd())?;
        match &*lock(&self.alive) {
            Some(socket) => handover::send(socket, number, area.fd())?,
            None => return Err(io::ErrorKind::NotConnected.into()),
        }
        let first = number as usize * AREA_SLOTS;
        for record in &self.shared.table()[first..first + AREA_SLOTS] {
            record.tid.store(0, Relaxed); // of the process that had the number before
        }
        lock(&self.shared.areas).insert(number, own);
        Ok(area)
    }

    /// Notes a thread's mask, before the thread learns that it may change it. A thread that comes
    /// again with a mask of ours (it has called `exec`, and knows nothing of its past) gets its own
    /// back instead.
    pub fn record(&self, registration: Registration) -> io::Result<()> {
        let Registration { tid, tgid, slot } = registration;
        let mask = hw::task::get_affinity(tid)?;
        let start_ticks = hw::task::start_ticks(tid)?;
        let process_start_ticks = hw::task::start_ticks(tgid)?;
        let record = &self.shared.table()[slot as usize];
        let is_known =
            record.tid.load(Relaxed) == tid && record.start_ticks.load(Relaxed) == start_ticks;
        if is_known && self.shared.narrowed(slot).contains(&hash_of(&mask)) {
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
}

impl Record {
    fn original(&self) -> CpuSet {
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

impl Shared {
    fn table(&self) -> &Table {
        // SAFETY: mapped until dropped, zeroed by the kernel, and all of it atomics.
        unsafe { self.records.as_ref() }
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
    fn restore_all(&self) {
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

impl Drop for Shared {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and references to it end with this value.
        unsafe { libc::munmap(self.records.as_ptr().cast(), size_of::<Table>()) };
    }
}

/// Shared with processes forked from now on; 42 MiB of addresses, of which only what is used takes
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

fn hash_of(mask: &CpuSet) -> u64 {
    let mut words = Mask::default();
    words.copy_from_slice(mask.words());
    mask_hash(&words)
}

/// Forks; the child, whose answer is 0, has all signals blocked from its first instant.
fn fork_deaf() -> io::Result<libc::pid_t> {
    // SAFETY: sigset_t is plain data; the calls read and write the local sets only. See the head of
    // this file on what the child does.
    unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        let mut before: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &all, &mut before);
        let pid = libc::fork();
        let error = Error::last_os_error();
        if pid != 0 {
            libc::pthread_sigmask(libc::SIG_SETMASK, &before, ptr::null_mut());
        }
        if pid < 0 { Err(error) } else { Ok(pid) }
    }
}

/// The keeper's life. Never returns, and never unwinds into the daemon's frames, which it has
/// copies of.
fn keep(shared: &Shared, ended: OwnedFd) -> ! {
    let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        leave_daemon(&ended);
        while let Some((number, fd)) = handover::receive(&ended) {
            if let Ok(area) = AreaView::map(fd.as_fd()) {
                lock(&shared.areas).insert(number, area);
            }
            handover::confirm(&ended);
        }
        shared.restore_all();
    }));
    // SAFETY: ends the process, without running what the daemon wants to run at its exit.
    unsafe { libc::_exit(i32::from(result.is_err())) }
}

/// Cuts what ties the keeper to the daemon's fate, and what would keep the daemon's things alive:
/// its sockets, its pipes, its terminal.
fn leave_daemon(ended: &OwnedFd) {
    let keep = ended.as_raw_fd() as libc::c_uint;
    // SAFETY: system calls of a process with one thread. The descriptors that are closed belong to
    // values of the daemon that this process never drops; `ended` stays.
    unsafe {
        libc::setsid();
        libc::prctl(libc::PR_SET_NAME, c"turbolane-keep".as_ptr());
        libc::chdir(c"/".as_ptr());
        if keep > 3 {
            libc::syscall(libc::SYS_close_range, 3, keep - 1, 0);
        }
        libc::syscall(libc::SYS_close_range, keep + 1, libc::c_uint::MAX, 0);
        let null = libc::open(c"/dev/null".as_ptr(), libc::O_RDWR | libc::O_CLOEXEC);
        for standard in (0..3).filter(|fd| null >= 0 && *fd != ended.as_raw_fd()) {
            libc::dup2(null, standard);
        }
        if null > 2 {
            libc::close(null);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hw::task::{get_affinity, set_affinity};
    use std::process::{Child, Command};

    /// A process with one thread that does nothing, in slot 3.
    struct Victim(Child);

    impl Victim {
        fn start() -> Victim {
            Victim(Command::new("sleep").arg("1000").spawn().unwrap())
        }

        fn registration(&self) -> Registration {
            Registration { tid: self.0.id(), tgid: self.0.id(), slot: 3 }
        }

        fn mask(&self) -> CpuSet {
            get_affinity(self.0.id()).unwrap()
        }

        fn set_mask(&self, cpus: &CpuSet) {
            set_affinity(self.0.id(), cpus).unwrap();
        }
    }

    impl Drop for Victim {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    /// A keeper, and what an application would have: the board, and the area with slot 3 in it.
    fn keeper() -> (Keeper, Arc<Board>, Area) {
        let (board, _fd) = Board::memfd().unwrap();
        board.publish(page::MODE_AFFINITY, 1024);
        let board = Arc::new(board);
        let keeper = Keeper::start(&board).unwrap();
        let area = keeper.recorder().new_area(0).unwrap();
        (keeper, board, area)
    }

    fn one_of(cpus: &CpuSet) -> CpuSet {
        cpus.lowest().into_iter().collect()
    }

    /// What the library does before it takes a mask.
    fn announce(area: &Area, mask: &CpuSet) {
        area.slot[3].narrowed[0].store(hash_of(mask), Relaxed);
    }

    /// A mask that the library announced is undone; one that it did not is the user's.
    #[test]
    fn only_our_masks_are_undone() {
        for is_ours in [true, false] {
            let (keeper, board, area) = keeper();
            let victim = Victim::start();
            let original = victim.mask();
            keeper.recorder().record(victim.registration()).unwrap();
            if is_ours {
                announce(&area, &one_of(&original));
            }
            victim.set_mask(&one_of(&original));
            drop(keeper);
            assert!(!board.is_active());
            assert_eq!(victim.mask(), if is_ours { original } else { one_of(&original) });
        }
    }

    /// The next owner of a thread number is not the thread that registered.
    #[test]
    fn other_thread_of_the_same_number_is_left_alone() {
        let (keeper, _board, area) = keeper();
        let victim = Victim::start();
        let narrow = one_of(&victim.mask());
        keeper.recorder().record(victim.registration()).unwrap();
        announce(&area, &narrow);
        victim.set_mask(&narrow);
        let record = &keeper.shared.table()[3];
        record.start_ticks.fetch_sub(1, Relaxed);
        record.tgid.store(u32::MAX, Relaxed); // no process that it could have inherited in
        drop(keeper);
        assert_eq!(victim.mask(), narrow);
    }

    /// A process that has got the number of one that registered inherits nothing from it, whatever
    /// that one left in its slot.
    #[test]
    fn other_process_of_the_same_number_is_left_alone() {
        let (keeper, _board, area) = keeper();
        let victim = Victim::start();
        let narrow = one_of(&victim.mask());
        keeper.recorder().record(victim.registration()).unwrap();
        announce(&area, &narrow);
        victim.set_mask(&narrow);
        let record = &keeper.shared.table()[3];
        record.start_ticks.fetch_sub(1, Relaxed);
        record.process_start_ticks.fetch_sub(1, Relaxed);
        drop(keeper);
        assert_eq!(victim.mask(), narrow);
    }

    /// A daemon that is killed: the keeper restores masks by an area that was made long after it
    /// was forked.
    #[test]
    fn keeper_knows_areas_that_came_later() {
        let (keeper, board, area) = keeper();
        let victim = Victim::start();
        let original = victim.mask();
        keeper.recorder().record(victim.registration()).unwrap();
        announce(&area, &one_of(&original));
        victim.set_mask(&one_of(&original));
        lock(&keeper.shared.areas).clear(); // the daemon's own, so that the keeper alone can do it
        drop(keeper);
        assert!(!board.is_active());
        assert_eq!(victim.mask(), original);
    }

    /// A thread that registers again with a mask of ours gets its original one; with one of the
    /// user's, that is the original from now on.
    #[test]
    fn registering_again() {
        let (keeper, _board, area) = keeper();
        let victim = Victim::start();
        let original = victim.mask();
        let record = |victim: &Victim| keeper.recorder().record(victim.registration()).unwrap();
        record(&victim);
        announce(&area, &one_of(&original));
        victim.set_mask(&one_of(&original));
        record(&victim);
        assert_eq!(victim.mask(), original);

        area.slot[3].narrowed[0].store(0, Relaxed);
        victim.set_mask(&one_of(&original));
        record(&victim);
        assert_eq!(keeper.shared.table()[3].original(), one_of(&original));
    }

    /// The keeper keeps nothing of the daemon's alive: its socket and three times /dev/null are all
    /// it has open.
    #[test]
    fn keeper_holds_no_descriptors() {
        let (keeper, _board, _area) = keeper();
        let open = || -> Vec<String> {
            let folder = std::fs::read_dir(format!("/proc/{}/fd", keeper.pid)).unwrap();
            let links = folder.filter_map(|fd| std::fs::read_link(fd.ok()?.path()).ok());
            links.map(|link| link.to_string_lossy().into_owned()).collect()
        };
        let is_expected = |name: &String| name == "/dev/null" || name.starts_with("socket:");
        let start = std::time::Instant::now();
        while open().len() != 4 || !open().iter().all(is_expected) {
            assert!(start.elapsed().as_secs() < 20, "{:?}", open());
            std::thread::yield_now();
        }
    }

    /// The keeper survives what ends daemons, and ends with the daemon's side of the socket.
    #[test]
    fn keeper_ignores_polite_signals() {
        let (keeper, board, _area) = keeper();
        for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
            // SAFETY: no memory of ours; the process is our child and not waited for yet.
            assert_eq!(unsafe { libc::kill(keeper.pid, signal) }, 0);
        }
        assert!(board.is_active());
        drop(lock(&keeper.alive).take());
        let mut status = 0;
        // SAFETY: writes to the local variable only.
        assert_eq!(unsafe { libc::waitpid(keeper.pid, &mut status, 0) }, keeper.pid);
        assert_eq!(status, 0);
        assert!(!board.is_active(), "ended by the socket, after its work");
    }
}
