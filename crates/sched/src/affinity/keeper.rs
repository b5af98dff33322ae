// SPDX-License-Identifier: MIT OR Apache-2.0
//! Gives threads their affinity masks back, even if the daemon is killed.
//!
//! Problem: what a daemon changed on other programs' threads outlives it. On `kill -9` it can
//! restore nothing, and threads would stay confined to a part of the machine for as long as they
//! live. (The library does restore, but only a thread that comes by; many never open a section
//! again.)
//!
//! Idea: a second process, the keeper, forked at the start, waits for the daemon's end, which it
//! sees as the end of a pipe: the kernel closes the daemon's side whatever the cause. Masks are
//! recorded, when a thread registers and before it can narrow its own, in memory that both
//! processes share. The daemon restores by the same function when it ends in an orderly way.
//!
//! Masks belong to the user: a thread is restored only if its mask is one that the library gave it,
//! known by the hashes that the library leaves in the thread's slot before it takes a mask. Threads
//! that a narrowed thread has created inherited its mask, and may not be registered: so all threads
//! of a process with registered ones are looked at, and compared to the masks of these.
//!
//! The keeper's own safety: it has all signals blocked from its first instant, and sits in a session
//! of its own, so that what ends the daemon does not end it; it holds no descriptor of the daemon's
//! but the pipe. Its child side runs ordinary code after a fork of a process that may have threads:
//! glibc makes its allocator usable there, and nothing else with a lock is used.
//!
//! Order: `active = 0` first, masks later, with a full barrier between; the library sets its mask
//! first and looks at `active` later. So of a thread that narrows itself at that very moment,
//! either we see the mask or it sees that it has to take it back.
//!
//! Limits: programs that a narrowed thread started by `posix_spawn` and that do not register keep
//! the mask. If the keeper itself is killed with signal 9, and then the daemon, masks stay.

use std::collections::{HashMap, HashSet};
use std::io::{self, Error};
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU32, AtomicU64};

use machine::CpuSet;
use turbolane::page::{self, Mask, mask_hash};

use crate::hints::{Page, Registration};

/// The mask of a registered thread, by its slot. All zero: nobody.
#[repr(C)]
struct Record {
    /// In the daemon's PID namespace; written last.
    tid: AtomicU32,
    tgid: AtomicU32,
    /// With `tid` names the thread for good, clock ticks since boot.
    start_ticks: AtomicU64,
    original: [AtomicU64; page::CPUS / 64],
}

type Table = [Record; page::SLOTS];

/// What daemon and keeper share.
struct Shared {
    page: Arc<Page>,
    records: NonNull<Table>,
}

// SAFETY: the table belongs to the process, not to a thread, and consists of atomics.
unsafe impl Send for Shared {}
// SAFETY: as above.
unsafe impl Sync for Shared {}

/// The keeper, seen from the daemon. Dropping it restores all masks and ends the process.
pub(super) struct Keeper {
    shared: Arc<Shared>,
    /// The daemon's end of the pipe.
    alive: Option<OwnedFd>,
    pid: libc::pid_t,
}

/// Records masks, for the hint server.
pub(super) struct Recorder(Arc<Shared>);

impl Keeper {
    /// Forks the keeper. Best before the daemon has threads.
    pub fn start(page: &Arc<Page>) -> io::Result<Keeper> {
        let shared = Arc::new(Shared { page: Arc::clone(page), records: new_table()? });
        let (ended, alive) = io::pipe()?;
        let ended = OwnedFd::from(ended);
        match fork_deaf()? {
            0 => keep(&shared, ended),
            pid => Ok(Keeper { shared, alive: Some(alive.into()), pid }),
        }
    }

    /// What the hint server calls.
    pub fn recorder(&self) -> Recorder {
        Recorder(Arc::clone(&self.shared))
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.shared.restore_all();
        drop(self.alive.take());
        // SAFETY: waits for our own child; no memory of ours.
        while unsafe { libc::waitpid(self.pid, ptr::null_mut(), 0) } < 0
            && Error::last_os_error().kind() == io::ErrorKind::Interrupted
        {}
    }
}

impl Recorder {
    /// Notes a thread's mask, before the thread learns that it may change it. A thread that comes
    /// again with a mask of ours (it has called `exec`, and knows nothing of its past) gets its own
    /// back instead.
    pub fn record(&self, registration: Registration) -> io::Result<()> {
        let Registration { tid, tgid, slot } = registration;
        let mask = hw::task::get_affinity(tid)?;
        let start_ticks = hw::task::start_ticks(tid)?;
        let record = &self.0.table()[slot as usize];
        let is_known =
            record.tid.load(Relaxed) == tid && record.start_ticks.load(Relaxed) == start_ticks;
        if is_known && self.0.narrowed(slot).contains(&hash_of(&mask)) {
            return hw::task::set_affinity(tid, &record.original());
        }
        record.tid.store(0, Release);
        record.tgid.store(tgid, Relaxed);
        record.start_ticks.store(start_ticks, Relaxed);
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
        let hashes = self.page.slot[slot as usize].narrowed.iter().map(|hash| hash.load(Relaxed));
        hashes.filter(|hash| *hash != 0).collect()
    }

    /// Ends affinity mode: nobody narrows a mask any more, and masks of ours are undone. Doing it
    /// twice, or in two processes, is harmless.
    fn restore_all(&self) {
        self.page.retire();
        let mut processes: HashMap<u32, Vec<(u32, &Record)>> = HashMap::new();
        for (slot, record) in self.table().iter().enumerate() {
            if record.tid.load(Acquire) != 0 {
                let tgid = record.tgid.load(Relaxed);
                processes.entry(tgid).or_default().push((slot as u32, record));
            }
        }
        for (tgid, records) in processes {
            self.restore_process(tgid, &records);
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

/// Shared with processes forked from now on; 2.3 MiB, of which only what is used takes memory.
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
        wait_for_end(&ended);
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

/// Returns when no process holds the other end of the pipe any more.
fn wait_for_end(ended: &OwnedFd) {
    let mut byte = 0u8;
    // SAFETY: writes at most one byte to the local variable.
    while unsafe { libc::read(ended.as_raw_fd(), (&raw mut byte).cast(), 1) } != 0 {
        let error = Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return;
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

    fn keeper() -> (Keeper, Arc<Page>) {
        let (page, _fd) = Page::memfd().unwrap();
        page.publish(page::MODE_AFFINITY, 1024);
        let page = Arc::new(page);
        (Keeper::start(&page).unwrap(), page)
    }

    fn one_of(cpus: &CpuSet) -> CpuSet {
        cpus.lowest().into_iter().collect()
    }

    /// What the library does before it takes a mask.
    fn announce(page: &Page, mask: &CpuSet) {
        page.slot[3].narrowed[0].store(hash_of(mask), Relaxed);
    }

    /// A mask that the library announced is undone; one that it did not is the user's.
    #[test]
    fn only_our_masks_are_undone() {
        for is_ours in [true, false] {
            let (keeper, page) = keeper();
            let victim = Victim::start();
            let original = victim.mask();
            keeper.recorder().record(victim.registration()).unwrap();
            if is_ours {
                announce(&page, &one_of(&original));
            }
            victim.set_mask(&one_of(&original));
            drop(keeper);
            assert!(!page.is_active());
            assert_eq!(victim.mask(), if is_ours { original } else { one_of(&original) });
        }
    }

    /// The next owner of a thread number is not the thread that registered.
    #[test]
    fn other_thread_of_the_same_number_is_left_alone() {
        let (keeper, page) = keeper();
        let victim = Victim::start();
        let narrow = one_of(&victim.mask());
        keeper.recorder().record(victim.registration()).unwrap();
        announce(&page, &narrow);
        victim.set_mask(&narrow);
        let record = &keeper.shared.table()[3];
        record.start_ticks.fetch_sub(1, Relaxed);
        record.tgid.store(u32::MAX, Relaxed); // no process that it could have inherited in
        drop(keeper);
        assert_eq!(victim.mask(), narrow);
    }

    /// A thread that registers again with a mask of ours gets its original one; with one of the
    /// user's, that is the original from now on.
    #[test]
    fn registering_again() {
        let (keeper, page) = keeper();
        let victim = Victim::start();
        let original = victim.mask();
        let record = |victim: &Victim| keeper.recorder().record(victim.registration()).unwrap();
        record(&victim);
        announce(&page, &one_of(&original));
        victim.set_mask(&one_of(&original));
        record(&victim);
        assert_eq!(victim.mask(), original);

        page.slot[3].narrowed[0].store(0, Relaxed);
        victim.set_mask(&one_of(&original));
        record(&victim);
        assert_eq!(keeper.shared.table()[3].original(), one_of(&original));
    }

    /// The keeper keeps nothing of the daemon's alive: its pipe and three times /dev/null are all it has open.
    #[test]
    fn keeper_holds_no_descriptors() {
        let (keeper, _page) = keeper();
        let open = || -> Vec<String> {
            let folder = std::fs::read_dir(format!("/proc/{}/fd", keeper.pid)).unwrap();
            let links = folder.filter_map(|fd| std::fs::read_link(fd.ok()?.path()).ok());
            links.map(|link| link.to_string_lossy().into_owned()).collect()
        };
        let is_expected = |name: &String| name == "/dev/null" || name.starts_with("pipe:");
        let start = std::time::Instant::now();
        while open().len() != 4 || !open().iter().all(is_expected) {
            assert!(start.elapsed().as_secs() < 20, "{:?}", open());
            std::thread::yield_now();
        }
    }

    /// The keeper survives what ends daemons, and ends with the daemon's side of the pipe.
    #[test]
    fn keeper_ignores_polite_signals() {
        let (mut keeper, page) = keeper();
        for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
            // SAFETY: no memory of ours; the process is our child and not waited for yet.
            assert_eq!(unsafe { libc::kill(keeper.pid, signal) }, 0);
        }
        assert!(page.is_active());
        drop(keeper.alive.take());
        let mut status = 0;
        // SAFETY: writes to the local variable only.
        assert_eq!(unsafe { libc::waitpid(keeper.pid, &mut status, 0) }, keeper.pid);
        assert_eq!(status, 0);
        assert!(!page.is_active(), "ended by the pipe, after its work");
    }
}
