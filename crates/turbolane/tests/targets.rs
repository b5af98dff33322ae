// SPDX-License-Identifier: MIT OR Apache-2.0
//! Requests that a scheduler takes: what is in a thread's slot, for which thread, and how long.

#[path = "../../hint/tests/common/mod.rs"]
mod common;

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::channel;

use common::{FakeDaemon, await_served, in_fork, in_process};
use locks::{Decorated, Futex, Mutex, Owner, Spin};
use pstate::{Options, Way, fake};
use turbolane::page::{MODE_AFFINITY, MODE_SCX, Slot};
use turbolane::threads::own_tid;
use turbolane::{Request, Session, ThreadError, wide_begin, wide_end};

/// 0.8 to 3.401 GHz, governor schedutil.
const MACHINE: &str = "acpi-cpufreq-i7-4770";

/// A daemon whose scheduler takes targets.
fn daemon(socket: &std::path::Path) -> FakeDaemon {
    let daemon = FakeDaemon::start(socket, MODE_SCX, 8).unwrap();
    daemon.make_all_fit();
    daemon.page.header.takes_targets.store(1, Relaxed);
    daemon
}

fn open(root: &tempfile::TempDir) -> Session {
    let options = Options { root: root.path().to_path_buf(), way: Some(Way::Scheduler) };
    Session::open(&options).unwrap()
}

/// A session on a machine of whose CPUs this process may use the first eight. On a slow machine the
/// daemon may answer too late once.
fn session() -> (tempfile::TempDir, Arc<Session>) {
    let root = tempfile::tempdir().unwrap();
    fake::build(MACHINE, root.path()).unwrap();
    let cpu = hw::task::get_affinity(own_tid()).unwrap().lowest().unwrap();
    assert!(cpu < 8, "the machine has eight CPUs");
    hw::task::set_affinity(own_tid(), &[cpu].into_iter().collect()).unwrap();
    let mut session = open(&root);
    while session.control().choice().why.contains("no lane serves") {
        session = open(&root);
    }
    assert_eq!(session.control().choice().way, Way::Scheduler, "{:?}", session.control().choice());
    (root, Arc::new(session))
}

fn target(slot: &Slot) -> u32 {
    slot.target_q10.load(Relaxed)
}

/// A thread's request stands in its slot until the thread takes it back. A session that ends takes
/// its threads' requests back.
#[test]
fn requests_stand_in_the_slot() {
    in_process("requests_stand_in_the_slot", |socket| {
        let daemon = daemon(socket);
        let (_root, session) = session();
        let slot = &daemon.page.slot[0];
        let unregistered = session.request(Request::Boost).unwrap_err();
        assert!(matches!(unregistered, ThreadError::NoThread(_)), "{unregistered}");
        session.threads().register("main", 0).unwrap();
        let requested_cpu = || session.threads().list(session.control())[0].requested_cpu;
        assert_eq!((target(slot), requested_cpu()), (0, None));
        let requests = [(Request::Boost, 1024), (Request::Slow, 1), (Request::Khz(2_100_000), 505)];
        for (request, expected) in requests {
            session.request(request).unwrap();
            assert_eq!(target(slot), expected, "{request:?}");
        }
        assert!(requested_cpu().is_some());
        let off = session.request(Request::Khz(2_000_000)).unwrap_err();
        assert_eq!((off.errno(), target(slot)), (libc::ERANGE, 505), "{off}");
        session.request(Request::Restore).unwrap();
        assert_eq!((target(slot), requested_cpu()), (0, None));
        // sections and targets do not know of each other
        wide_begin(2).unwrap();
        session.request(Request::Slow).unwrap();
        wide_end().unwrap();
        assert_eq!(target(slot), 1);
        drop(session);
        assert_eq!(target(slot), 0);
    });
}

/// A thread makes a request for another one, once that is registered; unregistering ends the
/// request.
#[test]
fn others_request_too() {
    in_process("others_request_too", |socket| {
        let daemon = daemon(socket);
        let (_root, session) = session();
        let (ready, is_ready) = channel();
        let (go, may_go) = channel::<()>();
        let theirs = Arc::clone(&session);
        let thread = std::thread::spawn(move || {
            await_served();
            theirs.threads().register("worker", 0).unwrap();
            ready.send(own_tid()).unwrap();
            may_go.recv().unwrap_err();
            theirs.threads().unregister(theirs.control(), own_tid()).unwrap();
        });
        let tid = is_ready.recv().unwrap();
        let slot = daemon.page.slot.iter().find(|slot| slot.tid.load(Relaxed) == tid).unwrap();
        session.threads().request(session.control(), tid, Request::Slow).unwrap();
        assert_eq!(target(slot), 1);
        assert_eq!(target(&daemon.page.slot[0]), 0, "not for the thread that requested it");
        drop(go);
        thread.join().unwrap();
        assert_eq!(target(slot), 0);
    });
}

/// A lock that boosts through a session asks for its owner, registered or not, and for nothing
/// afterwards.
#[test]
fn locks_ask_for_their_owners() {
    in_process("locks_ask_for_their_owners", |socket| {
        let daemon = daemon(socket);
        let (_root, session) = session();
        let slot = &daemon.page.slot[0];
        let lock = Decorated::new(Futex::new(Spin), Owner::new(Arc::clone(&session)));
        let lock = Mutex::new(lock, ());
        let held = lock.lock();
        assert_eq!(target(slot), 1024);
        drop(held);
        assert_eq!(target(slot), 0);
        // also if the session ends while the lock is held
        let held = lock.lock();
        session.control().restore_all();
        drop(held);
        assert_eq!(target(slot), 0);
    });
}

/// Requests are refused, not lost, while there is no lane, and taken by the next one.
#[test]
fn the_lane_ends_and_another_begins() {
    in_process("the_lane_ends_and_another_begins", |socket| {
        let first = daemon(socket);
        let (_root, session) = session();
        session.threads().register("main", 0).unwrap();
        session.request(Request::Slow).unwrap();
        first.stop();
        let error = session.request(Request::Boost).unwrap_err();
        assert!(matches!(error, ThreadError::NotServed(_)), "{error}");
        assert_eq!(error.errno(), libc::ENOTCONN);
        session.request(Request::Restore).unwrap();
        assert_eq!(session.threads().list(session.control())[0].requested_cpu, None);
        let second = daemon(socket);
        let start = std::time::Instant::now();
        while session.request(Request::Boost).is_err() {
            assert!(start.elapsed().as_secs() < 20, "the new lane is not found");
            std::thread::yield_now();
        }
        assert_eq!(target(&second.page.slot[0]), 1024);
    });
}

/// A forked child, whose session is its parent's, changes nothing of the parent's request, nor does
/// its end.
#[test]
fn children_leave_the_request_alone() {
    in_process("children_leave_the_request_alone", |socket| {
        let daemon = daemon(socket);
        let (_root, session) = session();
        session.threads().register("main", 0).unwrap();
        let tid = own_tid();
        session.request(Request::Slow).unwrap();
        let threads = session.threads();
        assert!(in_fork(|| {
            let control = session.control();
            let restored = threads.request(control, tid, Request::Restore).unwrap_err();
            let left = threads.unregister(control, tid);
            restored.errno() == libc::ECHILD && left.is_ok()
        }));
        assert_eq!(target(&daemon.page.slot[0]), 1);
    });
}

/// Why a lane does not take targets is said: none is there, it works by affinity, its scheduler
/// cannot.
#[test]
fn lanes_that_do_not_take_targets_fail() {
    in_process("lanes_that_do_not_take_targets_fail", |socket| {
        let root = tempfile::tempdir().unwrap();
        fake::build(MACHINE, root.path()).unwrap();
        let why = || open(&root).control().choice().why.clone();
        assert!(why().contains("no lane serves this program"), "{}", why());
        let daemon = FakeDaemon::start(socket, MODE_SCX, 8).unwrap();
        let start = std::time::Instant::now();
        while why().contains("no lane serves") {
            assert!(start.elapsed().as_secs() < 20, "a session looks at once");
        }
        assert!(why().contains("no scx_bpf_cpuperf_set"), "{}", why());
        daemon.page.header.mode.store(MODE_AFFINITY, Relaxed);
        assert!(why().contains("works by affinity"), "{}", why());
    });
}
