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
