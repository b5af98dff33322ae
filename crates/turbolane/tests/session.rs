// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sessions: threads and their cores, on a folder that serves as the machine.

use std::sync::Arc;
use std::sync::mpsc::channel;

use pstate::{Options, Way, fake};
use turbolane::{Request, Session, ThreadError};

fn session(machine: &str) -> (tempfile::TempDir, Arc<Session>) {
    let root = tempfile::tempdir().unwrap();
    fake::build(machine, root.path()).unwrap();
    let options = Options { root: root.path().to_path_buf(), way: None };
    let session = Arc::new(Session::open(&options).unwrap());
    (root, session)
}

fn own_cpus() -> cpumodel::CpuSet {
    hw::task::get_affinity(turbolane::threads::own_tid()).unwrap()
}

/// A spawned thread is in the registry with what it is doing, and out of it after its end; its
/// request and its mask do not outlive it.
#[test]
fn threads_come_and_go() {
    let (_root, session) = session("msr-i7-4770");
    let (ready, is_ready) = channel();
    let (go, may_go) = channel::<()>();
    let cpu = own_cpus().lowest().unwrap() as u32;
    let thread = session.spawn("resizer", 7, move |session, activity| {
        activity.set(42);
        let tid = turbolane::threads::own_tid();
        session.threads().migrate(session.control(), tid, cpu).unwrap();
        session.request(Request::Boost).unwrap();
        ready.send(tid).unwrap();
        may_go.recv().unwrap_err();
    });
    let tid = is_ready.recv().unwrap();
    let all = session.threads().list(session.control());
    assert_eq!(all.len(), 1);
    assert_eq!(
        (all[0].tid, all[0].name.as_str(), all[0].role, all[0].doing),
        (tid, "resizer", 7, 42)
    );
    assert_eq!((all[0].cpu, all[0].requested_cpu), (cpu, Some(cpu)));
    assert_eq!(session.control().requested_khz(cpu), Ok(Some(3_900_000)));
    // from outside
    session.threads().request(session.control(), tid, Request::Slow).unwrap();
    assert_eq!(session.control().requested_khz(cpu), Ok(Some(800_000)));
    drop(go);
    thread.unwrap().join().unwrap().unwrap();
    assert!(session.threads().list(session.control()).is_empty());
    assert_eq!(session.control().requested_khz(cpu), Ok(None));
    let error = session.threads().request(session.control(), tid, Request::Boost).unwrap_err();
    assert!(matches!(error, ThreadError::NoThread(_)), "{error}");
}

/// Unregistering gives back the mask that migration narrowed, unless somebody changed it since; so
/// does the session's end.
#[test]
fn masks_come_back() {
    let (_root, session) = session("msr-i7-4770");
    let before = own_cpus();
    let tid = turbolane::threads::own_tid();
    session.threads().register("main", 0).unwrap();
    let again = session.threads().register("main", 0).unwrap_err();
    assert!(matches!(again, ThreadError::Twice(_)), "{again}");
    let cpu = before.highest().unwrap() as u32;
    session.threads().migrate(session.control(), tid, cpu).unwrap();
    session.threads().migrate(session.control(), tid, cpu).unwrap();
    assert_eq!(own_cpus().len(), 1);
    session.threads().unregister(session.control(), tid).unwrap();
    assert_eq!(own_cpus(), before);

    session.threads().register("main", 0).unwrap();
    session.threads().migrate(session.control(), tid, cpu).unwrap();
    drop(session);
    assert_eq!(own_cpus(), before);
}

/// A thread that ends boosted, registered and without a word, by a return or a panic: its request
/// is withdrawn before anyone lists or requests.
#[test]
fn a_thread_that_ends_boosted_is_restored() {
    let (_root, session) = session("msr-i7-4770");
    for panics in [false, true] {
        let other = Arc::clone(&session);
        let ended = std::thread::spawn(move || {
            for _ in 0..2 {
                other.threads().register("short", 0).unwrap();
                other.request(Request::Boost).unwrap();
                let tid = turbolane::threads::own_tid();
                other.threads().unregister(other.control(), tid).unwrap();
            }
            other.threads().register("short", 0).unwrap();
            other.request(Request::Boost).unwrap();
            let asked = (0..4).filter_map(|cpu| other.control().requested_khz(cpu).unwrap());
            let is_boosted = asked.eq([3_900_000]);
            assert!(!panics, "on purpose");
            is_boosted
        });
        assert!(ended.join().is_ok_and(|is_boosted| is_boosted) != panics);
        let asked = (0..4).filter_map(|cpu| session.control().requested_khz(cpu).unwrap());
        assert_eq!(asked.count(), 0, "panics: {panics}");
    }
}

/// A thread may end after its session, and registers then in another one.
#[test]
fn a_session_ends_before_its_threads() {
    let (first, second) = (session("msr-i7-4770"), session("msr-i7-4770"));
    let (end, is_over) = channel::<()>();
    let (ready, is_ready) = channel();
    let both = (Arc::clone(&second.1), Arc::downgrade(&first.1));
    let own = Arc::clone(&first.1);
    let thread = std::thread::spawn(move || {
        own.threads().register("late", 0).unwrap();
        own.request(Request::Boost).unwrap();
        drop(own);
        ready.send(()).unwrap();
        is_over.recv().unwrap_err();
        assert!(both.1.upgrade().is_none());
        both.0.threads().register("late", 0).unwrap();
        both.0.request(Request::Slow).unwrap();
    });
    is_ready.recv().unwrap();
    drop(first);
    drop(end);
    thread.join().unwrap();
    assert!(second.1.threads().list(second.1.control()).is_empty());
    let asked = (0..4).filter_map(|cpu| second.1.control().requested_khz(cpu).unwrap());
    assert_eq!(asked.count(), 0);
}

/// Threads that ended without a word, CPUs that are not there, names that are none: refused.
#[test]
fn bad_threads_fail() {
    let (_root, session) = session("msr-i7-4770");
    let other = Arc::clone(&session);
    let ended = std::thread::spawn(move || {
        other.threads().register("short", 0).unwrap();
        other.request(Request::Slow).unwrap();
        turbolane::threads::own_tid()
    });
    let tid = ended.join().unwrap();
    // The kernel may need a moment to take a joined thread away.
    while hw::task::task_alive(tid) {
        std::thread::yield_now();
    }
    let control = session.control();
    assert!(matches!(
        session.threads().request(control, tid, Request::Boost),
        Err(ThreadError::NoThread(_))
    ));
    assert!(session.threads().list(control).is_empty());
    let requests = (0..4).filter_map(|cpu| control.requested_khz(cpu).unwrap());
    assert_eq!(requests.count(), 0, "the ended thread's request is taken back");
    assert!(matches!(session.threads().register("", 0), Err(ThreadError::BadName)));
    session.threads().register("me", 0).unwrap();
    let own = turbolane::threads::own_tid();
    let error = session.threads().migrate(control, own, 5000).unwrap_err();
    assert!(matches!(error, ThreadError::NoCpu(5000)), "{error}");
}

/// Without frequency control everything else works.
#[test]
fn measuring_needs_no_frequency_control() {
    let root = tempfile::tempdir().unwrap();
    fake::build("msr-i7-4770", root.path()).unwrap();
    let options = Options { root: root.path().to_path_buf(), way: Some(Way::None) };
    let session = Session::open(&options).unwrap();
    session.threads().register("main", 0).unwrap();
    let error = session.request(Request::Boost).unwrap_err();
    assert_eq!(error.errno(), libc::ENODEV);
    let region = session.monitor().region("work").unwrap();
    session.monitor().begin(region);
    session.monitor().end(region).unwrap();
    assert_eq!(session.monitor().stats(region).count, 1);
}
