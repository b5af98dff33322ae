// SPDX-License-Identifier: MIT OR Apache-2.0
//! `ctl` and `stats` against a scheduler that is played here, over a real socket.

use std::io::BufReader;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::Output;
use std::thread;

use report::ctl::{Change, Reply, Request, receive, send};
use report::lane::{LaneStats, LaneStatus};
use report::problem::Problem;
use report::settings::Setting;

use crate::schemas::follows;
use crate::turbolane;

/// Runs a command against a scheduler that gives `replies`; returns what it was asked, too.
fn played(arguments: &[&str], replies: Vec<Reply>) -> (Output, Vec<Request>) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("ctl.sock");
    let listener = UnixListener::bind(&path).unwrap();
    let server = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut requests = BufReader::new(stream.try_clone().unwrap());
        let mut asked = Vec::new();
        for reply in replies {
            asked.extend(receive(&mut requests).unwrap());
            // The program may have left after an error.
            _ = send(&mut stream, &reply);
        }
        asked
    });
    let output = run_at(&path, arguments);
    (output, server.join().unwrap())
}

fn run_at(socket: &Path, arguments: &[&str]) -> Output {
    turbolane().args(arguments).arg("--socket").arg(socket).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn slice(value: &str) -> Reply {
    Reply::Settings(vec![Setting {
        key: "slice".into(),
        value: value.into(),
        meaning: "time that a task may run".into(),
        live: true,
    }])
}

fn status() -> LaneStatus {
    LaneStatus {
        pid: 42,
        mode: "scx".into(),
        uptime_ns: 61_000_000_000,
        wide_cpus: "2-3".into(),
        scalar_cpus: "0-1".into(),
        standby: None,
        pause_left_ns: None,
        marks: vec!["/lib/a.so:f@2".into()],
        lost_marks: Vec::new(),
        scope: Vec::new(),
        cpus: vec![],
    }
}

/// `get` shows value and meaning, `set` sends all changes in one request.
#[test]
fn settings_are_read_and_changed() {
    let (output, asked) = played(&["ctl", "get", "slice"], vec![slice("5ms")]);
    assert_eq!(asked, [Request::Get { keys: vec!["slice".into()] }]);
    assert_eq!(
        text(&output.stdout),
        "SETTING  VALUE  MEANING\nslice    5ms    time that a task may run\n"
    );

    let (output, asked) = played(&["ctl", "set", "slice=3ms", "tiers=true"], vec![slice("3ms")]);
    let change = |key: &str, value: &str| Change { key: key.into(), value: value.into() };
    assert_eq!(
        asked,
        [Request::Set { changes: vec![change("slice", "3ms"), change("tiers", "true")] }]
    );
    assert!(output.status.success());
}

/// The status as text and as JSON.
#[test]
fn status_is_shown() {
    let (output, asked) = played(&["ctl", "status"], vec![Reply::Status(status())]);
    assert_eq!(asked, [Request::Status]);
    let shown = text(&output.stdout);
    for line in ["process      42", "wide CPUs    2-3", "running for  61.0s"] {
        assert!(shown.contains(line), "{shown}");
    }
    let (output, _) = played(&["ctl", "status", "--json"], vec![Reply::Status(status())]);
    assert!(text(&output.stdout).starts_with(r#"{"schema":1,"pid":42,"mode":"scx","#));
    follows("ctl-status", &output.stdout);
    let (output, _) = played(&["ctl", "get", "--json"], vec![slice("5ms")]);
    follows("ctl-settings", &output.stdout);
}

/// A pause is asked for by its time, a minute if none is given; the status says that it is on.
#[test]
fn pauses_are_asked_for() {
    let paused = LaneStatus { pause_left_ns: Some(4_000_000_000), ..status() };
    for (time, ns) in [(None, 60_000_000_000), (Some("4s"), 4_000_000_000)] {
        let arguments: Vec<&str> = ["ctl", "pause"].into_iter().chain(time).collect();
        let (output, asked) = played(&arguments, vec![Reply::Status(paused.clone())]);
        assert_eq!(asked, [Request::Pause { for_ns: ns }]);
        let shown = text(&output.stdout);
        assert!(shown.contains("paused for 4.00s more; turbolane ctl resume"), "{shown}");
    }
    let (output, asked) = played(&["ctl", "resume"], vec![Reply::Status(status())]);
    assert_eq!(asked, [Request::Resume]);
    assert!(text(&output.stdout).contains("separated, as requested"));
}

/// A pause that is too long, and one without a unit, are refused before the scheduler is asked.
#[test]
fn pauses_of_other_times_fail() {
    for (time, says) in [("11min", "longer than 10min"), ("30", "has no unit"), ("0s", "longer")] {
        let output = run_at(Path::new("/no/socket"), &["ctl", "pause", time]);
        assert_eq!(output.status.code(), Some(2));
        let why = text(&output.stderr);
        assert!(why.contains(says), "{why}");
    }
}

/// A refusal of the scheduler is told in full, with exit code 2.
#[test]
fn refusals_are_told_fail() {
    let problem = Problem::new("cannot mark it", "it is not there", "mark something else");
    let (output, _) = played(&["ctl", "mark", "add", "/a:f"], vec![Reply::Error(problem)]);
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(
        text(&output.stderr),
        "error: cannot mark it\n  why:  it is not there\n  next: mark something else\n"
    );
}

/// An answer to another question is an error, not a panic.
#[test]
fn wrong_answers_fail() {
    let (output, _) = played(&["stats"], vec![slice("5ms")]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("it sent settings, which was not requested"));
}

/// A scheduler that ends in between is an error that says so.
#[test]
fn a_lost_scheduler_fails() {
    let (output, _) = played(&["ctl", "status"], vec![]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).starts_with("error: the scheduler gave no answer"));
}

/// The whole table, and the same as JSON.
#[test]
fn statistics_are_shown() {
    let stats = || {
        let stats = LaneStats { migrations: Some(7), ..LaneStats::default() };
        vec![Reply::Stats(Box::new(stats))]
    };
    let (output, asked) = played(&["stats"], stats());
    assert_eq!(asked, [Request::Stats]);
    assert!(text(&output.stdout).lines().any(|line| line.starts_with("migrations ")));
    let (output, _) = played(&["stats", "--json"], stats());
    assert!(text(&output.stdout).contains(r#""migrations":7,"#));
    follows("stats", &output.stdout);
}

/// The monitor prints what happened in each interval, until the scheduler is gone.
#[test]
fn the_monitor_shows_differences() {
    let at = |migrations| {
        let stats = LaneStats { migrations: Some(migrations), ..LaneStats::default() };
        Reply::Stats(Box::new(stats))
    };
    let (output, _) =
        played(&["stats", "--monitor", "100ms", "--json"], vec![at(10), at(13), at(20)]);
    let lines: Vec<String> = text(&output.stdout).lines().map(str::to_string).collect();
    assert_eq!(lines.len(), 2);
    assert!(lines[0].contains(r#""migrations":3,"#) && lines[1].contains(r#""migrations":7,"#));
    assert_eq!(output.status.code(), Some(2));
}

/// CSV has a column for each statistic, and nothing where it is not known.
#[test]
fn statistics_are_exported() {
    let stats = || {
        let stats = LaneStats { migrations: Some(7), ..LaneStats::default() };
        vec![Reply::Stats(Box::new(stats))]
    };
    let (output, _) = played(&["stats", "--format", "csv"], stats());
    let shown = text(&output.stdout);
    let [names, values] = shown.split_terminator("\r\n").collect::<Vec<_>>()[..] else {
        panic!("{shown}");
    };
    let at = names.split(',').position(|name| name == "migrations").unwrap();
    assert_eq!(values.split(',').nth(at), Some("7"));
    assert_eq!(values.split(',').filter(|value| !value.is_empty()).count(), 1);
    let (output, _) = played(&["stats", "--format", "markdown"], stats());
    assert!(text(&output.stdout).starts_with("| STATISTIC | VALUE | MEANING |\n| --- | ---: |"));
}
