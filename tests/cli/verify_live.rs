// SPDX-License-Identifier: MIT OR Apache-2.0
//! `verify --live` against a lane that is played here: it is paused for the runs without it, and
//! never else.

use std::fs;
use std::io::BufReader;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::Output;
use std::thread::{self, JoinHandle};

use report::ctl::{Reply, Request, receive, send};
use report::lane::LaneStatus;
use report::problem::Problem;
use report::verify::VerifyReport;

use crate::turbolane;

/// What the lane does.
#[derive(Clone, Copy, PartialEq)]
enum Lane {
    /// As it is asked.
    Obeys,
    /// It comes back by itself at once.
    ComesBack,
    /// Separates nothing.
    StandsBy,
}

fn status(paused: bool, lane: Lane) -> LaneStatus {
    LaneStatus {
        pid: 42,
        mode: "scx".into(),
        uptime_ns: 1,
        wide_cpus: if paused || lane == Lane::StandsBy { "" } else { "3" }.into(),
        scalar_cpus: "0-2".into(),
        standby: (lane == Lane::StandsBy).then(|| "not separated: no wide code".into()),
        pause_left_ns: (paused && lane != Lane::ComesBack).then_some(1),
        marks: vec![],
        lost_marks: Vec::new(),
        scope: Vec::new(),
        cpus: vec![],
    }
}

/// Plays it for one connection; `flag` is there while it is paused. What it was asked.
fn play(socket: &Path, flag: PathBuf, lane: Lane) -> JoinHandle<Vec<Request>> {
    let listener = UnixListener::bind(socket).unwrap();
    thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut requests = BufReader::new(stream.try_clone().unwrap());
        let mut asked = Vec::new();
        while let Ok(Some(request)) = receive::<Request>(&mut requests) {
            match request {
                Request::Pause { .. } => fs::write(&flag, "").unwrap(),
                Request::Resume => fs::remove_file(&flag).unwrap(),
                Request::Status => {}
                _ => _ = send(&mut stream, &Reply::Error(Problem::new("no", "no", "no"))),
            }
            _ = send(&mut stream, &Reply::Status(status(flag.exists(), lane)));
            asked.push(request);
        }
        asked
    })
}

/// Four runs of each kind of a command that is twice as fast with the lane.
fn compare(lane: Lane) -> (Output, Vec<Request>, bool) {
    let dir = tempfile::tempdir().unwrap();
    let (socket, flag) = (dir.path().join("ctl.sock"), dir.path().join("paused"));
    let asked = play(&socket, flag.clone(), lane);
    let command = format!("test -e {} && echo rate 1 || echo rate 2", flag.display());
    let mut verify = turbolane();
    verify.args(["verify", "--live", "--runs", "4", "--warmup", "0", "--metric", "rate {}"]);
    verify.args(["--json", "--socket"]).arg(&socket).args(["--", "sh", "-c", &command]);
    let output = verify.output().unwrap();
    (output, asked.join().unwrap(), flag.exists())
}

/// Each run has the lane as its kind is to have it, and the end leaves it at work.
#[test]
fn half_of_the_runs_are_without_the_lane() {
    let (output, asked, is_paused) = compare(Lane::Obeys);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{stderr}");
    let report: VerifyReport = serde_json::from_slice(&output.stdout).unwrap();
    let rates = |side: &report::verify::Side| -> Vec<f64> {
        side.samples.iter().filter_map(|sample| sample.metric).collect()
    };
    assert_eq!((rates(&report.a), rates(&report.b)), (vec![1.0; 4], vec![2.0; 4]));
    assert!(report.verdict.starts_with("better: +100"), "{}", report.verdict);
    let ends = asked.iter().filter(|request| **request == Request::Resume).count();
    assert_eq!(ends, 4, "{asked:?}");
    // Short ones: a client that is killed cannot end them.
    let short = |request: &&Request| matches!(request, Request::Pause { for_ns: 30_000_000_000 });
    assert!(asked.iter().filter(short).count() >= 4, "{asked:?}");
    assert!(!is_paused);
}

/// A lane that separates nothing is the same with and without.
#[test]
fn a_lane_that_stands_by_is_not_compared() {
    let (output, asked, _) = compare(Lane::StandsBy);
    assert_eq!(output.status.code(), Some(2));
    let why = String::from_utf8_lossy(&output.stderr);
    assert!(why.contains("did not separate wide code: not separated: no wide code"), "{why}");
    assert_eq!(asked.last(), Some(&Request::Status), "no pause is left");
}

/// A run that should have been without the lane, and was not, voids the comparison.
#[test]
fn a_lane_that_comes_back_voids_it() {
    let (output, asked, is_paused) = compare(Lane::ComesBack);
    assert_eq!(output.status.code(), Some(2));
    let why = String::from_utf8_lossy(&output.stderr);
    assert!(why.contains("has come back"), "{why}");
    assert_eq!(asked.last(), Some(&Request::Resume));
    assert!(!is_paused);
}

/// The lane is the one that runs: another command or other options make no sense.
#[test]
fn live_goes_alone() {
    for others in [["--run", "--tiers"], ["--scenario", "sfma-nginx"]] {
        let mut verify = turbolane();
        let output = verify.args(["verify", "--live"]).args(others).args(["--", "true"]).output();
        assert_eq!(output.unwrap().status.code(), Some(2), "{others:?}");
    }
}
