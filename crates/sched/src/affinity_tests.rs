// SPDX-License-Identifier: MIT OR Apache-2.0
//! Affinity mode with real processes on this machine: a daemon, which is killed or ends, and an
//! application that uses the library. Both are this test program, started again.

use super::*;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use crate::config::WideCpus;
use hw::task::{get_affinity, set_affinity};

const ROLE: &str = "TURBOLANE_TEST_ROLE";

/// Longer than anything here takes; a test that waits this long has failed.
const PATIENCE: Duration = Duration::from_secs(20);

/// Another process of this test program, which follows orders: a line in, a line out.
struct Process {
    child: Child,
    said: BufReader<ChildStdout>,
    /// Its first answer, once it is ready.
    greeting: String,
}

impl Process {
    fn start(role: &str, socket: &Path) -> Process {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "affinity::tests::other_process", "--nocapture"])
            .env(ROLE, role)
            .env(turbolane_hint::protocol::SOCKET_ENV, socket)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let said = BufReader::new(child.stdout.take().unwrap());
        let mut process = Process { child, said, greeting: String::new() };
        process.greeting = process.hear();
        process
    }

    /// The answer to an order.
    fn order(&mut self, order: &str) -> String {
        writeln!(self.child.stdin.as_mut().unwrap(), "{order}").unwrap();
        self.hear()
    }

    /// The next answer; what the test harness prints is skipped.
    fn hear(&mut self) -> String {
        loop {
            let mut line = String::new();
            assert_ne!(self.said.read_line(&mut line).unwrap(), 0, "the process has ended");
            if let Some((_, answer)) = line.split_once("answer: ") {
                return answer.trim().to_owned();
            }
        }
    }

    fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Closes stdin, at whose end the process ends in good order.
    fn finish(&mut self) {
        drop(self.child.stdin.take());
        assert!(self.child.wait().unwrap().success());
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn answer(text: &str) {
    println!("answer: {text}");
}

/// Not a test but the other process of all tests here.
#[test]
fn other_process() {
    match std::env::var(ROLE).as_deref() {
        Ok("daemon") => be_daemon(),
        Ok("application") => be_application(),
        _ => {}
    }
}

fn be_daemon() {
    let socket = std::env::var(turbolane_hint::protocol::SOCKET_ENV).unwrap();
    let config = Config { wide_cpus: WideCpus::Cores(1), ..Config::default() };
    let (lane, server) = AffinityLane::start_at(Path::new(&socket), config).unwrap();
    answer(&lane.cpus().0.to_string());
    std::io::read_to_string(std::io::stdin()).unwrap();
    drop(server);
    drop(lane);
}

/// Its first answer is the number of the thread that follows the orders.
fn be_application() {
    let tid = || {
        // SAFETY: no arguments.
        unsafe { libc::gettid() as u32 }
    };
    let mask = || get_affinity(tid()).unwrap().to_string();
    answer(&tid().to_string());
    for order in std::io::stdin().lines() {
        match order.unwrap().as_str() {
            "begin" => {
                turbolane_hint::wide_begin(2).unwrap();
                answer(&mask());
            }
            "end" => {
                turbolane_hint::wide_end().unwrap();
                answer(&mask());
            }
            "status" => answer(&format!("{:?}", turbolane_hint::wide_status())),
            "spawn" => answer(&spawn_idler(tid).to_string()),
            order => panic!("unknown order {order}"),
        }
    }
}

/// A thread that does nothing; its number.
fn spawn_idler(tid: fn() -> u32) -> u32 {
    let (tell, told) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        tell.send(tid()).unwrap();
        loop {
            std::thread::park();
        }
    });
    told.recv().unwrap()
}

struct Setup {
    _folder: tempfile::TempDir,
    daemon: Process,
    application: Process,
    /// The application's thread that opens sections.
    tid: u32,
    original: CpuSet,
    wide: CpuSet,
    scalar: CpuSet,
}

impl Setup {
    /// A daemon and an application whose thread has narrowed its mask to the scalar CPUs. `None` on
    /// a machine where nothing can be kept apart.
    fn new() -> Option<Setup> {
        let here = get_affinity(std::process::id()).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("hint.sock");
        let daemon = Process::start("daemon", &socket);
        let application = Process::start("application", &socket);
        let wide: CpuSet = daemon.greeting.parse().unwrap();
        let scalar = here - wide;
        if scalar.is_empty() || !here.intersects(&wide) {
            eprintln!("skipped: CPUs {here} are all of one kind");
            return None;
        }
        let tid = application.greeting.parse().unwrap();
        let original = get_affinity(tid).unwrap();
        let mut setup = Setup {
            _folder: folder,
            daemon,
            application,
            tid,
            original,
            wide: here & wide,
            scalar,
        };
        setup.narrow();
        Some(setup)
    }

    /// Opens sections until the thread has been on a wide CPU at the end of one: as long as its
    /// mask is the original, the kernel may carry it over to a scalar CPU by itself.
    fn narrow(&mut self) {
        let start = Instant::now();
        loop {
            self.application.order("begin");
            if self.application.order("end").parse() == Ok(self.scalar) {
                return;
            }
            assert!(start.elapsed() < PATIENCE, "never narrowed");
        }
    }

    fn is_restored(&self, tid: u32) -> bool {
        get_affinity(tid).unwrap() == self.original
    }

    fn await_restored(&self, tid: u32) {
        let start = Instant::now();
        while !self.is_restored(tid) {
            assert!(start.elapsed() < PATIENCE, "thread {tid} is not restored");
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

/// A section runs on wide CPUs, what follows on scalar ones.
#[test]
fn sections_move_between_the_kinds() {
    let Some(mut setup) = Setup::new() else { return };
    assert_eq!(setup.application.order("status"), "Affinity");
    for _ in 0..3 {
        assert_eq!(setup.application.order("begin").parse(), Ok(setup.wide));
        assert_eq!(setup.application.order("end").parse(), Ok(setup.scalar));
    }
}

/// `kill -9` of the daemon gives a thread its mask back, and those that it created since; the
/// library notices and serves no one.
#[test]
fn killed_daemon_restores_masks() {
    let Some(mut setup) = Setup::new() else { return };
    let child = setup.application.order("spawn").parse().unwrap();
    assert_eq!(get_affinity(child).unwrap(), setup.scalar, "inherited");
    setup.daemon.kill();
    setup.await_restored(setup.tid);
    setup.await_restored(child);
    assert_eq!(setup.application.order("status"), "None");
    assert_eq!(setup.application.order("begin").parse(), Ok(setup.original));
    assert_eq!(setup.application.order("end").parse(), Ok(setup.original));
}

/// Killed in the middle of a section, it restores the mask, which then stays as it is.
#[test]
fn killed_daemon_restores_inside_a_section() {
    let Some(mut setup) = Setup::new() else { return };
    assert_eq!(setup.application.order("begin").parse(), Ok(setup.wide));
    setup.daemon.kill();
    setup.await_restored(setup.tid);
    assert_eq!(setup.application.order("end").parse(), Ok(setup.original));
}

/// An orderly end has restored all masks when it is over.
#[test]
fn orderly_end_restores_masks() {
    let Some(mut setup) = Setup::new() else { return };
    setup.daemon.finish();
    assert!(setup.is_restored(setup.tid));
}

/// When the user changes a narrowed thread's mask, that is its mask: the next sections keep to it,
/// and so does the end of the daemon.
#[test]
fn changed_mask_is_the_new_original() {
    let Some(mut setup) = Setup::new() else { return };
    set_affinity(setup.tid, &setup.wide).unwrap();
    assert_eq!(setup.application.order("begin").parse(), Ok(setup.wide));
    assert_eq!(
        setup.application.order("end").parse(),
        Ok(setup.wide),
        "has no scalar CPU to go to"
    );
    setup.daemon.finish();
    assert_eq!(get_affinity(setup.tid).unwrap(), setup.wide);
}

/// Marks need the scheduler, wide CPUs must be there: both are refused, and no one listens
/// afterwards.
#[test]
fn impossible_settings_fail() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("hint.sock");
    let mark = "/bin/true:main".parse().unwrap();
    let with_mark = Config { marks: vec![mark], ..Config::default() };
    let cores = topology().unwrap().cores().len();
    let too_wide = Config { wide_cpus: WideCpus::Cores(cores + 1), ..Config::default() };
    for (config, exit_code) in [(with_mark, 77), (too_wide, 2)] {
        let refusal = AffinityLane::start_at(&socket, config).err().unwrap();
        assert_eq!(refusal.exit_code(), exit_code);
        assert!(!socket.exists());
    }
}
