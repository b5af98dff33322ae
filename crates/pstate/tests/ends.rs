// SPDX-License-Identifier: MIT OR Apache-2.0
//! However a program ends, the machine is as it was before: return, panic, exit, abort, SIGKILL to
//! the process and to its group, another program in its place. Each end is that of a program of
//! its own: this test's, started again to play the part.

use std::collections::BTreeSet;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use pstate::{Control, Options, fake};

/// Says to a started copy of this program what it is to do.
const PART: &str = "TURBOLANE_TEST_END";
const ROOT: &str = "TURBOLANE_TEST_ROOT";

/// How a program can end, and by which signal, if any.
const ENDS: [(&str, Option<i32>); 8] = [
    ("return", None),
    ("panic", None),
    ("exit", None),
    ("_exit", None),
    ("exec", None),
    ("abort", Some(libc::SIGABRT)),
    ("kill", Some(libc::SIGKILL)),
    ("kill_group", Some(libc::SIGKILL)),
];

/// Not a test but the program that ends; without its part it does nothing.
#[test]
fn part() {
    let (Ok(end), Ok(root)) = (std::env::var(PART), std::env::var(ROOT)) else { return };
    let control = Control::open(&Options { root: root.into(), way: None }).unwrap();
    change_a_lot(&control);
    match end.as_str() {
        "return" => drop(control),
        "panic" => panic!("on purpose"),
        other => {
            std::mem::forget(control);
            end_by(other);
        }
    }
}

fn change_a_lot(control: &Control) {
    control.boost(0).unwrap();
    control.slow(1).unwrap();
    control.slow(2).unwrap();
    control.set_turbo(false).unwrap();
    control.boost(3).unwrap();
}

fn end_by(end: &str) {
    // SAFETY: all end the process, and nothing here needs what they skip.
    unsafe {
        match end {
            "exit" => libc::exit(0),
            "_exit" => libc::_exit(0),
            "abort" => libc::abort(),
            "kill" => libc::kill(libc::getpid(), libc::SIGKILL),
            "kill_group" => libc::kill(0, libc::SIGKILL),
            _ => {
                let error = Command::new("true").exec();
                panic!("exec: {error}")
            }
        };
    }
}

fn start(end: &str, root: &Path) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "part"]).env(PART, end).env(ROOT, root).process_group(0);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

/// The machine's files except those that end with the governor that was restored.
fn settings(root: &Path) -> BTreeSet<(std::path::PathBuf, Vec<u8>)> {
    let all = fake::contents(root).unwrap();
    all.into_iter().filter(|(path, _)| !path.ends_with("scaling_setspeed")).collect()
}

fn restores(machine: &str, end: &str, signal: Option<i32>) {
    let root = tempfile::tempdir().unwrap();
    fake::build(machine, root.path()).unwrap();
    let before = settings(root.path());
    let mut child = start(end, root.path());
    let status = child.wait().unwrap();
    assert_eq!(status.signal(), signal, "{end}: {status}");
    // The watchdog needs a moment, more on a busy machine; how long is not what is tested.
    let start = Instant::now();
    let mut now = settings(root.path());
    while now != before && start.elapsed() < Duration::from_secs(20) {
        std::thread::sleep(Duration::from_millis(5));
        now = settings(root.path());
    }
    let changed: Vec<_> = before.difference(&now).map(|(path, _)| path).collect();
    assert!(changed.is_empty(), "{machine} after {end}: {changed:?}");
}

/// All ends on all ways of setting P-states.
#[test]
fn every_end_restores() {
    for machine in ["acpi-cpufreq-fx-8120", "intel-pstate-gold-6130", "msr-hwp", "msr-fx-8120"] {
        for (end, signal) in ENDS {
            restores(machine, end, signal);
        }
    }
}

/// The part does change something: without it the test above could not fail.
#[test]
fn the_part_changes_settings() {
    let root = tempfile::tempdir().unwrap();
    fake::build("msr-fx-8120", root.path()).unwrap();
    let before = settings(root.path());
    let options = Options { root: root.path().to_path_buf(), way: None };
    let control = Control::open(&options).unwrap();
    change_a_lot(&control);
    assert!(before.difference(&settings(root.path())).count() >= 4);
    // A child that ends, or closes, changes nothing of its parent's.
    // SAFETY: the child only drops the control and ends.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let is_refused = control.boost(2) == Err(pstate::Error::NotOwner);
        drop(control);
        // SAFETY: ends the child without running the test harness's destructors.
        unsafe { libc::_exit(if is_refused { 0 } else { 1 }) };
    }
    let mut status = 0;
    // SAFETY: our own child.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    assert_eq!(status, 0, "a forked child is refused");
    assert!(before.difference(&settings(root.path())).count() >= 4, "the child restored");
    control.slow(3).unwrap();
    assert_eq!(control.close().failed, 0);
    assert_eq!(settings(root.path()), before);
}

/// The watchdog is out of the way: no `wait` of the program sees it, and it is gone after close.
#[test]
fn the_watchdog_is_out_of_the_way() {
    let root = tempfile::tempdir().unwrap();
    fake::build("msr-hwp", root.path()).unwrap();
    let options = Options { root: root.path().to_path_buf(), way: None };
    let control = Control::open(&options).unwrap();
    let pid = control.watchdog_pid().unwrap();
    let mut status = 0;
    // SAFETY: a wait for any one child, which must not find the watchdog.
    let found = unsafe { libc::waitpid(pid, &mut status, libc::WNOHANG) };
    assert_eq!(found, -1, "it is not a child that wait finds");
    // SAFETY: no memory involved.
    unsafe {
        assert_ne!(libc::getsid(pid), libc::getsid(0));
        drop(control);
        assert_eq!(libc::kill(pid, 0), -1, "it has ended");
    }
}

/// Where somebody has killed the watchdog, nothing is changed any more.
#[test]
fn a_killed_watchdog_fails() {
    let root = tempfile::tempdir().unwrap();
    fake::build("msr-hwp", root.path()).unwrap();
    let before = settings(root.path());
    let options = Options { root: root.path().to_path_buf(), way: None };
    let control = Control::open(&options).unwrap();
    let (watchdog, mut status) = (control.watchdog_pid().unwrap(), 0);
    // SAFETY: the watchdog of this test, and the end that it comes to.
    unsafe {
        assert_eq!(libc::kill(watchdog, libc::SIGKILL), 0);
        assert_eq!(libc::waitpid(watchdog, &mut status, libc::__WCLONE), watchdog);
    }
    let error = control.slow(1).unwrap_err();
    assert!(matches!(error, pstate::Error::Watchdog(_)), "{error}");
    assert_eq!(settings(root.path()), before);
}
