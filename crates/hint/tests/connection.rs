// SPDX-License-Identifier: MIT OR Apache-2.0
//! The library and a daemon: finding it, speaking, losing it, forking, and daemons that misbehave.

mod common;

use common::{
    FakeDaemon, PAGE_NAME, await_served, in_fork, in_process, sections_until, times_mapped,
};
use std::mem::offset_of;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Barrier};
use turbolane_hint::page::{self, Area, Board, Header, MODE_SCX, SILENT, Slot};
use turbolane_hint::protocol::{MAGIC, MESSAGE_BYTES, Reply};
use turbolane_hint::{Error, Status, WideSection, wide_begin, wide_end, wide_status};

/// A daemon whose CPUs are all fit, so that nothing moves.
fn daemon(socket: &Path, slots: u32) -> FakeDaemon {
    let daemon = FakeDaemon::start(socket, MODE_SCX, slots).unwrap();
    daemon.make_all_fit();
    daemon
}

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

fn want(slot: &Slot) -> u32 {
    slot.want.load(Relaxed)
}

/// Without a scheduler sections work, are counted, and leave errno alone.
#[test]
fn no_scheduler() {
    in_process("no_scheduler", |_| {
        // SAFETY: errno belongs to this thread.
        let errno = || unsafe { *libc::__errno_location() };
        // SAFETY: as above.
        unsafe { *libc::__errno_location() = 77 };
        assert_eq!(wide_end(), Err(Error::NotOpen));
        assert_eq!(wide_begin(0), Err(Error::InvalidLevel));
        assert_eq!(wide_begin(4), Err(Error::InvalidLevel));
        let begun = wide_begin(1);
        assert_eq!(errno(), 77, "connecting failed without a trace");
        begun.unwrap();
        for _ in 1..turbolane_hint::MAX_DEPTH {
            wide_begin(3).unwrap();
        }
        assert_eq!(wide_begin(3), Err(Error::TooDeep));
        for _ in 0..turbolane_hint::MAX_DEPTH {
            wide_end().unwrap();
        }
        assert_eq!(wide_end(), Err(Error::NotOpen));
        assert_eq!(wide_status(), Status::None);
        assert_eq!(errno(), 77);
    });
}

/// What a thread runs stands in its slot: the level of the innermost section, at least that of the
/// outer ones; `seq` counts outermost sections.
#[test]
fn sections_arrive_in_the_slot() {
    in_process("sections_arrive_in_the_slot", |socket| {
        let daemon = daemon(socket, 8);
        let slot = &daemon.page.slot[0];
        while wide_status() == Status::None {
            std::thread::yield_now();
        }
        assert_eq!(want(slot), SILENT);
        let outer = WideSection::enter(2).unwrap();
        assert_eq!((want(slot), slot.seq.load(Relaxed)), (2, 1));
        let inner = WideSection::enter(1).unwrap();
        assert_eq!(want(slot), 2, "the outer section asks for more");
        let innermost = WideSection::enter(3).unwrap();
        assert_eq!((want(slot), slot.seq.load(Relaxed)), (3, 1));
        drop(innermost);
        assert_eq!(want(slot), 2);
        drop(inner);
        drop(outer);
        assert_eq!(want(slot), 0);
        wide_begin(1).unwrap();
        assert_eq!((want(slot), slot.seq.load(Relaxed)), (1, 2));
        assert_eq!(daemon.requests.lock().unwrap().len(), 1, "registered once");
    });
}

/// Threads that start together have a slot each; the page is mapped once, and no descriptor stays.
#[test]
fn threads_share_one_mapping() {
    in_process("threads_share_one_mapping", |socket| {
        const THREADS: u32 = 16;
        let daemon = daemon(socket, THREADS);
        let before = descriptors();
        let begun = Arc::new(Barrier::new(THREADS as usize + 1));
        let threads: Vec<_> = (0..THREADS)
            .map(|i| {
                let begun = Arc::clone(&begun);
                std::thread::spawn(move || {
                    await_served();
                    wide_begin(1 + i % 3).unwrap();
                    begun.wait();
                    begun.wait();
                    wide_end().unwrap();
                })
            })
            .collect();
        begun.wait();
        let slots = &daemon.page.slot[..THREADS as usize];
        let sum: u32 = slots.iter().map(want).sum();
        assert_eq!(sum, (0..THREADS).map(|i| 1 + i % 3).sum());
        assert_eq!(times_mapped(PAGE_NAME), 2, "the daemon's and the library's");
        let has_no_more = || descriptors() == before; // the daemon may be closing its last one
        sections_until("the library closes its descriptors", has_no_more);
        begun.wait();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert!(slots.iter().all(|slot| want(slot) == 0));
    });
}

/// With all slots taken, a thread is not served, and its sections do nothing to anybody.
#[test]
fn full_table() {
    in_process("full_table", |socket| {
        let daemon = daemon(socket, 1);
        await_served();
        let before = want(&daemon.page.slot[0]);
        std::thread::spawn(|| {
            assert_eq!(wide_status(), Status::None);
            wide_begin(3).unwrap();
            wide_end().unwrap();
        })
        .join()
        .unwrap();
        assert_eq!(want(&daemon.page.slot[0]), before);
        wide_begin(2).unwrap();
        assert_eq!(want(&daemon.page.slot[0]), 2, "who has a slot is served on");
    });
}

/// A scheduler that starts later is found, also in the middle of sections.
#[test]
fn late_scheduler_is_found() {
    in_process("late_scheduler_is_found", |socket| {
        let outer = WideSection::enter(2).unwrap();
        let daemon = daemon(socket, 8);
        let slot = &daemon.page.slot[0];
        sections_until("the scheduler is found", || slot.tid.load(Relaxed) != 0);
        assert_eq!(want(slot), 2, "the open section counts");
        drop(outer);
        assert_eq!(want(slot), 0);
    });
}

/// A scheduler that ends is not spoken to any more; the next one is found, by each thread, and the
/// memory of the first one's page is given back.
#[test]
fn next_scheduler_is_found() {
    in_process("next_scheduler_is_found", |socket| {
        let first = daemon(socket, 8);
        let old_slot = &first.page.slot[0];
        await_served();
        wide_begin(2).unwrap();
        let (work, worked) = (Arc::new(Barrier::new(2)), Arc::new(Barrier::new(2)));
        let other = {
            let (work, worked) = (Arc::clone(&work), Arc::clone(&worked));
            std::thread::spawn(move || {
                await_served();
                worked.wait();
                work.wait();
                // Still points to the page of the first scheduler, whose memory is gone.
                await_served();
                wide_begin(3).unwrap();
                worked.wait();
                work.wait();
            })
        };
        worked.wait();
        first.stop();
        wide_end().unwrap();
        assert_eq!(want(old_slot), SILENT, "said good-bye");
        wide_begin(2).unwrap();
        assert_eq!(want(old_slot), SILENT);
        assert_eq!(wide_status(), Status::None);

        let second = daemon(socket, 8);
        await_served();
        assert_eq!(want(&second.page.slot[0]), 2);
        assert_eq!(times_mapped(PAGE_NAME), 3, "both daemons' own, and one of the library's");
        work.wait();
        worked.wait();
        assert_eq!(want(&second.page.slot[1]), 3);
        work.wait();
        other.join().unwrap();
    });
}

/// A page that is only switched off for a while (the same scheduler, loaded anew) is taken up again
/// as what it is, in the same slot.
#[test]
fn pause_of_the_same_scheduler() {
    in_process("pause_of_the_same_scheduler", |socket| {
        let daemon = daemon(socket, 8);
        await_served();
        wide_begin(1).unwrap();
        daemon.page.header.active.store(0, Relaxed);
        wide_end().unwrap();
        assert_eq!(wide_status(), Status::None, "registered with a page that nobody reads");
        daemon.page.header.active.store(1, Relaxed);
        await_served();
        wide_begin(3).unwrap();
        assert_eq!(want(&daemon.page.slot[0]), 3);
        assert_eq!(times_mapped(PAGE_NAME), 2);
    });
}

/// A forked child has a slot of its own, inherits open sections, and leaves its parent's slot
/// alone.
#[test]
fn fork_gives_the_child_its_own_slot() {
    in_process("fork_gives_the_child_its_own_slot", |socket| {
        let daemon = daemon(socket, 8);
        let page = daemon.page;
        await_served();
        wide_begin(2).unwrap();
        let is_fine = in_fork(|| {
            let before_first = page.slot[1].tid.load(Relaxed) == 0;
            await_served();
            let inner = wide_begin(1); // inside the section open since before the fork
            let inside = want(&page.slot[1]);
            let ends = [wide_end(), wide_end(), wide_end()];
            let after = want(&page.slot[1]);
            before_first
                && inner == Ok(())
                && inside == 2
                && ends == [Ok(()), Ok(()), Err(Error::NotOpen)]
                && after == 0
        });
        assert!(is_fine);
        assert_eq!(want(&page.slot[0]), 2, "the parent is still in its section");
        assert_ne!(page.slot[0].tid.load(Relaxed), page.slot[1].tid.load(Relaxed));
        wide_end().unwrap();
        assert_eq!(want(&page.slot[0]), 0);
        assert_eq!(times_mapped(PAGE_NAME), 2);
    });
}

/// Sections in a signal handler nest into what they interrupt.
#[test]
fn signal_handler_nests() {
    extern "C" fn handler(_: i32) {
        wide_begin(3).unwrap();
        wide_end().unwrap();
    }
    in_process("signal_handler_nests", |socket| {
        let daemon = daemon(socket, 8);
        await_served();
        wide_begin(1).unwrap();
        // SAFETY: the handler is valid for the life of the process; raise delivers to this thread.
        unsafe {
            let handler: extern "C" fn(i32) = handler;
            libc::signal(libc::SIGUSR1, handler as libc::sighandler_t);
            libc::raise(libc::SIGUSR1);
        }
        assert_eq!(want(&daemon.page.slot[0]), 1);
        wide_end().unwrap();
        assert_eq!(wide_end(), Err(Error::NotOpen));
    });
}

/// A daemon that answers one client with these bytes and descriptors.
fn answer_once(socket: &Path, bytes: Vec<u8>, fds: Vec<OwnedFd>) -> std::thread::JoinHandle<()> {
    let listener = common::listen(socket).unwrap();
    std::thread::spawn(move || {
        // SAFETY: no memory of ours; the result is checked and owned by nobody else.
        let peer = unsafe {
            let no_address = std::ptr::null_mut();
            let fd = libc::accept(listener.as_raw_fd(), no_address, std::ptr::null_mut());
            assert!(fd >= 0);
            OwnedFd::from_raw_fd(fd)
        };
        // An unread request would turn into an error at the client, before any answer.
        let mut request = [0u8; MESSAGE_BYTES];
        // SAFETY: writes at most the given number of bytes to the local buffer.
        let bytes_read =
            unsafe { libc::recv(peer.as_raw_fd(), request.as_mut_ptr().cast(), MESSAGE_BYTES, 0) };
        assert_eq!(bytes_read, MESSAGE_BYTES as isize);
        let fds: Vec<i32> = fds.iter().map(|fd| fd.as_raw_fd()).collect();
        common::send(&peer, &bytes, &fds);
    })
}

/// A file as long as given, with these words in it.
fn file_of(bytes: u64, words: &[(usize, u32)]) -> OwnedFd {
    let file = tempfile::tempfile().unwrap();
    for (at, value) in words {
        let bytes = value.to_ne_bytes();
        std::os::unix::fs::FileExt::write_all_at(&file, &bytes, *at as u64).unwrap();
    }
    file.set_len(bytes).unwrap();
    file.into()
}

/// A board of this magic.
fn board_file(bytes: u64, magic: u32) -> OwnedFd {
    let words = [
        (offset_of!(Header, magic), magic),
        (offset_of!(Header, abi), page::ABI),
        (offset_of!(Header, active), 1),
        (offset_of!(Header, mode), MODE_SCX),
        (offset_of!(Header, nr_slots), page::AREA_SLOTS as u32),
    ];
    file_of(bytes, &words)
}

/// An area in which slot 0 is ready.
fn area_file(bytes: u64) -> OwnedFd {
    file_of(bytes, &[(offset_of!(Slot, tid), 1), (offset_of!(Slot, want), SILENT)])
}

/// Whatever a daemon answers, except what is right: no slot, no crash, no descriptor left, and
/// sections work.
#[test]
fn misbehaving_daemons_fail_quietly() {
    in_process("misbehaving_daemons_fail_quietly", |socket| {
        let good = Reply { magic: MAGIC, status: 0, slot: 0, run_id: 1 };
        const WHOLE: u64 = size_of::<Board>() as u64;
        const { assert!(size_of::<Area>() as u64 == WHOLE) };
        let board = || board_file(WHOLE, page::MAGIC);
        let pages = || vec![board(), area_file(WHOLE)];
        let pipe = || -> OwnedFd { std::io::pipe().unwrap().0.into() };
        let message = |reply: Reply| reply.to_bytes().to_vec();
        let served = "what is right";
        let answers: Vec<(&str, Vec<u8>, Vec<OwnedFd>)> = vec![
            (served, message(good), pages()),
            (served, message(good), vec![board(), area_file(WHOLE), board(), board()]),
            (served, message(Reply { slot: 64, ..good }), pages()),
            ("nothing", vec![], vec![]),
            ("too short", message(good)[..15].to_vec(), pages()),
            ("another magic", message(Reply { magic: 1, ..good }), pages()),
            ("no run", message(Reply { run_id: 0, ..good }), pages()),
            ("a refusal", message(Reply { status: -libc::ENOSPC, ..good }), vec![]),
            ("a refusal with pages", message(Reply { status: -1, ..good }), pages()),
            ("no page", message(good), vec![]),
            ("a board alone", message(good), vec![board()]),
            (
                "a board too short",
                message(good),
                vec![board_file(4095, page::MAGIC), area_file(WHOLE)],
            ),
            ("a board cut off", message(good), vec![board_file(64, page::MAGIC), area_file(WHOLE)]),
            ("an area too short", message(good), vec![board(), area_file(4095)]),
            (
                "a board of another kind",
                message(good),
                vec![board_file(WHOLE, 1), area_file(WHOLE)],
            ),
            ("what cannot be mapped", message(good), vec![pipe(), area_file(WHOLE)]),
            ("another slot", message(Reply { slot: 1, ..good }), pages()),
            ("a slot too far", message(Reply { slot: u32::MAX, ..good }), pages()),
        ];
        for (what, bytes, fds) in answers {
            let daemon = answer_once(socket, bytes, fds);
            // A process that failed waits for a second; a child starts afresh.
            let is_fine = in_fork(|| {
                let before = descriptors();
                let is_served = wide_status() == Status::Scx;
                let left = descriptors() - before;
                let sections_work = wide_begin(2).is_ok() && wide_end().is_ok();
                sections_work && left == 0 && is_served == (what == served)
            });
            daemon.join().unwrap();
            std::fs::remove_file(socket).unwrap();
            assert!(is_fine, "{what}");
        }
    });
}

/// A daemon that listens and never answers costs one wait; later sections do not wait again.
#[test]
fn hanging_daemon_is_asked_once() {
    in_process("hanging_daemon_is_asked_once", |socket| {
        let listener = common::listen(socket).unwrap();
        assert_eq!(wide_status(), Status::None);
        for _ in 0..10 {
            assert_eq!(wide_status(), Status::None);
        }
        let mut pending = 0;
        loop {
            // SAFETY: no memory of ours; the descriptor stays open until the process ends.
            let fd = unsafe {
                let flags = libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
                let mut ready = libc::pollfd { fd: listener.as_raw_fd(), events: 1, revents: 0 };
                if libc::poll(&mut ready, 1, 0) == 0 {
                    break;
                }
                let no_address = std::ptr::null_mut();
                libc::accept4(listener.as_raw_fd(), no_address, std::ptr::null_mut(), flags)
            };
            assert!(fd >= 0);
            pending += 1;
        }
        assert!(pending <= 2, "asked {pending} times; a second time only after a second");
    });
}
