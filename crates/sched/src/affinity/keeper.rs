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
//! processes share (`masks.rs`). The daemon restores by the same function when it ends normally.
//! Areas of slots come later, one per process that registers: the daemon sends their descriptors
//! over the socket, and waits until the keeper has them.
//!
//! The keeper's own safety: it has all signals blocked from its first instant, and sits in a
//! session of its own, so that what ends the daemon does not end it; it holds no descriptor of the
//! daemon's but the socket. Its child side runs ordinary code after a fork of a process that may
//! have threads: glibc makes its allocator usable there, and nothing else with a lock is used.
//!
//! Limits: programs that a narrowed thread started by `posix_spawn` and that do not register keep
//! the mask. If the keeper itself is killed with signal 9, and then the daemon, masks stay.

use std::io::{self, Error};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::ptr;
use std::sync::{Arc, Mutex};

use crate::hints::{Area, AreaView, Board, Registration};

use super::handover;
use super::masks::{Masks, lock};

/// The keeper, seen from the daemon. Dropping it restores all masks and ends the process.
pub(super) struct Keeper {
    masks: Arc<Masks>,
    /// The daemon's end of the socket; closed by `None`.
    alive: Arc<Mutex<Option<OwnedFd>>>,
    pid: libc::pid_t,
}

/// Records masks and makes areas, for the hint server.
pub(super) struct Recorder {
    masks: Arc<Masks>,
    alive: Arc<Mutex<Option<OwnedFd>>>,
}

impl Keeper {
    /// Forks the keeper. Best before the daemon has threads.
    pub fn start(board: &Arc<Board>) -> io::Result<Keeper> {
        let masks = Arc::new(Masks::new(Arc::clone(board))?);
        let (ended, alive) = handover::pair()?;
        match fork_deaf()? {
            0 => keep(&masks, ended),
            pid => Ok(Keeper { masks, alive: Arc::new(Mutex::new(Some(alive))), pid }),
        }
    }

    /// What the hint server calls.
    pub fn recorder(&self) -> Recorder {
        Recorder { masks: Arc::clone(&self.masks), alive: Arc::clone(&self.alive) }
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.masks.restore_all();
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
        self.masks.forget(number);
        self.masks.add(number, own);
        Ok(area)
    }

    /// Notes a thread's mask, before the thread learns that it may change it.
    pub fn record(&self, registration: Registration) -> io::Result<()> {
        self.masks.record(registration)
    }
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
fn keep(masks: &Masks, ended: OwnedFd) -> ! {
    let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        leave_daemon(&ended);
        while let Some((number, fd)) = handover::receive(&ended) {
            if let Ok(area) = AreaView::map(fd.as_fd()) {
                masks.add(number, area);
            }
            handover::confirm(&ended);
        }
        masks.restore_all();
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
    use std::process::{Child, Command};
    use std::sync::atomic::Ordering::Relaxed;

    use cpumodel::CpuSet;
    use hw::task::{get_affinity, set_affinity};
    use turbolane_hint::page;

    use super::super::masks::hash_of;
    use super::*;

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
        let record = &keeper.masks.table()[3];
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
        let record = &keeper.masks.table()[3];
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
        lock(&keeper.masks.areas).clear(); // the daemon's own, so that the keeper alone can do it
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
        assert_eq!(keeper.masks.table()[3].original(), one_of(&original));
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
