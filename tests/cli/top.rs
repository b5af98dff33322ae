// SPDX-License-Identifier: MIT OR Apache-2.0
//! `turbolane top`: reports against a scheduler that is played here, and the screen on a terminal
//! that is one of ours.

use std::fs::File;
use std::io::{BufReader, Read, Write};
use std::os::fd::{FromRawFd, OwnedFd};
use std::os::unix::net::UnixListener;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, ExitStatus, Output, Stdio};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use report::ctl::{Reply, Request, receive, send};
use report::lane::{LaneStats, LaneStatus, LaneTask, LaneTasks};

use crate::schemas::follows;
use crate::turbolane;

/// Long enough for a machine that builds something else meanwhile.
const PATIENCE: Duration = Duration::from_secs(30);

/// No turbolane listens there.
const NO_SOCKET: [&str; 2] = ["--socket", "/no/such/ctl.sock"];

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A scheduler whose wide task has run for another half of a second each time it is asked.
fn played(socket: &Path, mode: &'static str, connections: u64) -> JoinHandle<Vec<Request>> {
    let listener = UnixListener::bind(socket).unwrap();
    thread::spawn(move || {
        let mut asked = Vec::new();
        for number in 1..=connections {
            let (mut stream, _) = listener.accept().unwrap();
            let mut requests = BufReader::new(stream.try_clone().unwrap());
            while let Some(request) = receive(&mut requests).unwrap() {
                _ = send(&mut stream, &reply(&request, mode, number));
                asked.push(request);
            }
        }
        asked
    })
}

fn reply(request: &Request, mode: &str, number: u64) -> Reply {
    match request {
        Request::Status => Reply::Status(LaneStatus {
            pid: 42,
            mode: mode.into(),
            uptime_ns: number,
            wide_cpus: "1-1023".into(),
            scalar_cpus: "0".into(),
            standby: None,
            pause_left_ns: None,
            marks: vec![],
            lost_marks: Vec::new(),
            scope: Vec::new(),
            cpus: vec![],
        }),
        Request::Tasks { .. } if mode == "affinity" => Reply::Tasks(LaneTasks::default()),
        Request::Tasks { .. } => {
            let run_ns = number * 500_000_000;
            let task = LaneTask {
                tid: 4243,
                pid: 4242,
                name: "encoder\u{1b}[2J".into(),
                start_ns: 5,
                task_type: 2,
                license_level: 2,
                cpu: 3,
                run_ns,
                wide_run_ns: run_ns / 2,
                level_run_ns: run_ns,
                migrations: number * 10,
                ..LaneTask::default()
            };
            let now_ns = number * 1_000_000_000;
            Reply::Tasks(LaneTasks { now_ns, tasks: Some(vec![task]), left_out: 0 })
        }
        _ => Reply::Stats(Box::new(LaneStats {
            migrations: Some(10 * number),
            ..LaneStats::default()
        })),
    }
}

fn report(mode: &'static str, arguments: &[&str], connections: u64) -> (Output, Vec<Request>) {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("ctl.sock");
    let server = played(&socket, mode, connections);
    let mut command = turbolane();
    command.args(["top", "--interval", "100ms"]).args(arguments).arg("--socket").arg(&socket);
    (command.output().unwrap(), server.join().unwrap())
}

/// The document: the task is wide, half of its time, at a mean level of 1, and how often it moved;
/// each sample is a connection of its own, and the second list is of what ran since the first.
#[test]
fn a_report_for_programs() {
    let (output, asked) = report("scx", &["--once", "--json"], 2);
    let json = text(&output.stdout);
    follows("top", &output.stdout);
    assert!(
        json.starts_with(r#"{"schema":1,"interval_ns":"#) && json.lines().count() == 1,
        "{json}"
    );
    for part in [
        r#""lane":{"pid":42,"mode":"scx","#,
        r#""tasks_from":"lane""#,
        r#""tid":4243,"pid":4242,"name":"encoder\u001b[2J","type":"wide","license_level":2,"#,
        r#""mean_level":1.0,"power_score":null,"cpu":3,"cpu_pct":50.0,"wide_pct":50.0,"#,
        r#""migrations_per_s":10.0,"#,
        r#"{"cpu":0,"role":"scalar","#,
    ] {
        assert!(json.contains(part), "{part} is not in {json}");
    }
    let since: Vec<u64> = asked
        .iter()
        .filter_map(|request| match request {
            Request::Tasks { since_ns } => Some(*since_ns),
            _ => None,
        })
        .collect();
    assert_eq!(since, [0, 1_000_000_000]);
    assert!(output.status.success());
}

/// The table for people: names cannot harm it, dashes are explained.
#[test]
fn a_report_for_people() {
    let (output, _) = report("scx", &["--once"], 2);
    let shown = text(&output.stdout);
    assert!(shown.starts_with("turbolane top: "), "{shown}");
    assert!(shown.contains("lane scx, wide CPUs 1-1023, for 2ns"), "{shown}");
    assert!(shown.contains("encoder?[2J") && !shown.contains('\u{1b}'), "{shown}");
    assert!(shown.contains("note: SCORE is not visible: no counters"), "{shown}");
}

/// Several reports, and a filter that leaves nothing of the lane's tasks.
#[test]
fn reports_are_counted_and_filtered() {
    let me = std::process::id().to_string();
    let (output, _) = report("scx", &["--count", "2", "--json", "--pid", &me], 3);
    let json = text(&output.stdout);
    assert_eq!(json.lines().count(), 2, "{json}");
    assert!(json.lines().all(|line| line.contains(r#""tasks":[],"#)), "{json}");
}

/// Affinity mode has roles and no account of tasks: these come from /proc.
#[test]
fn affinity_mode_has_roles() {
    let (output, _) = report("affinity", &["--once", "--json"], 2);
    follows("top", &output.stdout);
    let json = text(&output.stdout);
    assert!(json.contains(r#""mode":"affinity""#) && json.contains(r#""tasks_from":"proc""#));
    assert!(json.contains(r#"{"cpu":0,"role":"scalar","role_level":null,"#), "{json}");
}

/// Without a lane CPUs and threads are shown all the same, and it says that there is none.
#[test]
fn a_machine_without_a_lane_is_shown() {
    let arguments = ["top", "--once", "--json", "--interval", "300ms"];
    let output = turbolane().args(arguments).args(NO_SOCKET).output().unwrap();
    let json = text(&output.stdout);
    assert!(
        json.contains(r#""lane":null,"lane_why":"no turbolane runs on this machine""#),
        "{json}"
    );
    assert!(
        json.contains(r#""tasks_from":"proc""#) && json.contains(r#""cpus":[{"cpu":"#),
        "{json}"
    );
    assert!(output.status.success());
}

/// A terminal of 80 by 24 with the program on its other side.
struct Screen {
    ours: File,
    theirs: OwnedFd,
    before: libc::termios,
    child: Child,
    shown: String,
}

impl Screen {
    fn start(arguments: &[&str]) -> Self {
        let (mut ours, mut theirs) = (0, 0);
        let size = libc::winsize { ws_row: 24, ws_col: 80, ws_xpixel: 0, ws_ypixel: 0 };
        // SAFETY: writes two descriptors, which are nobody's yet; name and settings are not given.
        let (ours, theirs) = unsafe {
            let (none, default) = (std::ptr::null_mut(), std::ptr::null());
            assert_eq!(libc::openpty(&mut ours, &mut theirs, none, default, &size), 0);
            (File::from_raw_fd(ours), OwnedFd::from_raw_fd(theirs))
        };
        let copy = || Stdio::from(theirs.try_clone().unwrap());
        let mut command = turbolane();
        command.args(["top", "--interval", "100ms"]).args(NO_SOCKET).args(arguments);
        command.stdin(copy()).stdout(copy()).stderr(copy()).env_remove("COLUMNS");
        // SAFETY: system calls between fork and exec, without memory: the terminal becomes that of
        // a session of its own.
        unsafe {
            command.pre_exec(|| {
                libc::setsid();
                libc::ioctl(0, libc::TIOCSCTTY, 0);
                Ok(())
            });
        }
        let before = settings(&theirs);
        let child = command.spawn().unwrap();
        nonblocking(&ours);
        Screen { ours, theirs, before, child, shown: String::new() }
    }

    /// Waits until this has been written.
    fn wait_for(&mut self, words: &str) {
        let begun = Instant::now();
        while !self.shown.contains(words) {
            assert!(begun.elapsed() < PATIENCE, "{words:?} is not in {:?}", self.shown);
            self.read();
            thread::sleep(Duration::from_millis(10));
        }
    }

    fn read(&mut self) {
        let mut bytes = [0; 65536];
        while let Ok(count @ 1..) = self.ours.read(&mut bytes) {
            self.shown += &text(&bytes[..count]);
        }
    }

    fn press(&mut self, keys: &str) {
        self.ours.write_all(keys.as_bytes()).unwrap();
    }

    fn resize(&self, columns: u16, rows: u16) {
        let size = libc::winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        // SAFETY: reads the local size; the descriptor is ours.
        let result = unsafe { libc::ioctl(raw(&self.theirs), libc::TIOCSWINSZ, &size) };
        assert_eq!(result, 0);
    }

    fn signal(&self, signal: i32) {
        // SAFETY: our own child, not yet waited for.
        unsafe { libc::kill(self.child.id() as i32, signal) };
    }

    /// Its end, with the terminal as it was before.
    fn end(mut self) -> (ExitStatus, String) {
        let begun = Instant::now();
        let status = loop {
            self.read(); // or it could not write
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            assert!(begun.elapsed() < PATIENCE, "it does not end");
            thread::sleep(Duration::from_millis(10));
        };
        self.read();
        let after = settings(&self.theirs);
        let flags = |s: &libc::termios| (s.c_iflag, s.c_oflag, s.c_cflag, s.c_lflag, s.c_cc);
        assert_eq!(flags(&after), flags(&self.before), "the terminal's settings");
        let (_, behind) = self.shown.rsplit_once(LEAVE).expect("the screen was not left");
        assert!(behind.contains(SHOW_CURSOR), "the cursor is hidden: {behind:?}");
        let behind = behind.to_string();
        (status, behind)
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

/// xterm's control sequences: the alternate screen, and the cursor.
const ENTER: &str = "\u{1b}[?1049h";
const LEAVE: &str = "\u{1b}[?1049l";
const SHOW_CURSOR: &str = "\u{1b}[?25h";

fn raw(fd: &impl std::os::fd::AsRawFd) -> i32 {
    fd.as_raw_fd()
}

fn settings(terminal: &OwnedFd) -> libc::termios {
    // SAFETY: plain data, filled in by the call.
    unsafe {
        let mut settings: libc::termios = std::mem::zeroed();
        assert_eq!(libc::tcgetattr(raw(terminal), &mut settings), 0);
        settings
    }
}

fn nonblocking(file: &File) {
    // SAFETY: changes a flag of our own descriptor.
    assert_eq!(unsafe { libc::fcntl(raw(file), libc::F_SETFL, libc::O_NONBLOCK) }, 0);
}

/// It shows the machine until q is pressed, and leaves the terminal as it was.
#[test]
fn a_key_ends_the_screen() {
    for key in ["q", "\u{3}"] {
        let mut screen = Screen::start(&[]);
        screen.wait_for(ENTER);
        screen.wait_for("BUSY%");
        screen.press(key);
        assert_eq!(screen.end().0.code(), Some(0), "{key:?}");
    }
}

/// Keys act: help opens, a filter is typed.
#[test]
fn keys_act() {
    let mut screen = Screen::start(&[]);
    screen.wait_for("BUSY%");
    screen.press("?");
    screen.wait_for("reverse"); // blanks that are there already are not written
    screen.press("?/xyz");
    screen.wait_for("filter:");
    screen.press("\n\u{3}");
    assert!(screen.end().0.success());
}

/// Signals end it as a key does.
#[test]
fn signals_end_the_screen() {
    for signal in [libc::SIGTERM, libc::SIGHUP] {
        let mut screen = Screen::start(&[]);
        screen.wait_for("BUSY%");
        screen.signal(signal);
        let (status, _) = screen.end();
        assert_eq!((status.code(), status.signal()), (Some(0), None), "signal {signal}");
    }
}

/// A window may become small and large at any time.
#[test]
fn the_window_changes_its_size() {
    let mut screen = Screen::start(&[]);
    screen.wait_for("BUSY%");
    for (columns, rows) in [(20, 5), (1, 1), (200, 60)] {
        screen.resize(columns, rows);
        screen.signal(libc::SIGWINCH);
        thread::sleep(Duration::from_millis(250));
        screen.read();
    }
    screen.wait_for("TRAP/s"); // which only the last size has room for
    screen.press("q");
    assert!(screen.end().0.success());
}

/// A panic gives the terminal back before it tells what happened.
#[test]
fn a_panic_gives_the_terminal_back_fails() {
    let screen = Screen::start(&["--fault", "panic"]);
    let (status, behind) = screen.end();
    assert_eq!(status.code(), Some(101));
    assert!(behind.contains("provoked on purpose"), "{behind:?}");
}
