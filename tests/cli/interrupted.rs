// SPDX-License-Identifier: MIT OR Apache-2.0
//! Ctrl-C of commands that make many runs: what the finished runs gave is printed as partial.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::thread::sleep;
use std::time::Duration;

use serde_json::Value;

use crate::schemas::follows;
use crate::turbolane;

fn started(command: &mut Command) -> Child {
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// Waits for what will come; false if the command ends before.
fn comes(child: &mut Child, is_there: impl Fn(&Child) -> bool) -> bool {
    while child.try_wait().unwrap().is_none() {
        if is_there(child) {
            return true;
        }
        sleep(Duration::from_millis(5));
    }
    false
}

/// Whether a process has a handler for SIGINT: without one, the signal would end it.
fn handles_interrupts(child: &Child) -> bool {
    let status = fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap();
    u64::from_str_radix(caught.trim(), 16).unwrap() & (1 << (libc::SIGINT - 1)) != 0
}

fn interrupted(child: Child) -> Output {
    // SAFETY: kill takes any number; this process has not been waited for.
    assert_eq!(unsafe { libc::kill(child.id() as i32, libc::SIGINT) }, 0);
    child.wait_with_output().unwrap()
}

/// `verify` of a command that notes its runs, interrupted after so many of them.
fn verified(runs: usize, folder: &Path, format: &[&str]) -> Output {
    let note = folder.join("runs");
    let run = format!("echo >> {}; sleep 0.02", note.display());
    let mut verify = turbolane();
    verify.arg("verify").args(format).args(["--runs", "500", "--warmup", "0"]);
    verify.args(["--a", &run, "--b", &run]);
    let mut child = started(&mut verify);
    let has_run = |_: &Child| fs::read(&note).is_ok_and(|lines| lines.len() > runs);
    assert!(comes(&mut child, has_run), "it ended too early");
    interrupted(child)
}

/// The runs that were made are compared; the document says how many of them there are.
#[test]
fn verify_compares_the_runs_that_were_made() {
    let folder = tempfile::tempdir().unwrap();
    let output = verified(12, folder.path(), &["--json"]);
    let shown = String::from_utf8_lossy(&output.stdout);
    assert!(!shown.is_empty(), "{output:?}");
    follows("verify", &output.stdout);
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let made: usize =
        ["a", "b"].iter().map(|side| report[side]["samples"].as_array().unwrap().len()).sum();
    assert_eq!(report["partial"], format!("interrupted after {made} of 1000 runs"));
    assert!((12..500).contains(&made), "{shown}");
}

/// A table without a place for a sentence says it in each line.
#[test]
fn verify_says_in_each_line_that_runs_are_missing() {
    let folder = tempfile::tempdir().unwrap();
    let output = verified(12, folder.path(), &["--format", "csv"]);
    let table = String::from_utf8(output.stdout).unwrap();
    let mut lines = table.lines();
    let head = lines.next().unwrap();
    assert!(head.ends_with(",partial"), "{head}");
    let lines: Vec<&str> = lines.collect();
    assert!(lines.len() >= 12, "{table}");
    let is_told =
        |line: &str| line.contains("interrupted after ") && line.ends_with(" of 1000 runs");
    assert!(lines.into_iter().all(is_told), "{table}");
}

/// Too few runs for a comparison are none.
#[test]
fn verify_without_enough_runs_fails() {
    let folder = tempfile::tempdir().unwrap();
    let output = verified(1, folder.path(), &["--json"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.starts_with("error: there are not enough runs for a verdict"), "{said}");
    assert!(said.contains("interrupted after"), "{said}");
    assert_eq!(output.status.code(), Some(77));
    assert!(output.stdout.is_empty());
}

/// A sweep shows the policies that were simulated, or says that there is none; in both cases it
/// says after how many runs it was interrupted.
#[test]
fn sim_shows_the_runs_that_were_made() {
    let mut sim = turbolane();
    sim.args(["sim", "--json", "--jobs", "1", "thesis-nginx"]);
    for cores in 1..=8 {
        sim.args(["-p".to_string(), format!("lane:wide={cores}")]);
        sim.args(["-p".to_string(), format!("affinity:{cores}")]);
    }
    let mut child = started(&mut sim);
    assert!(comes(&mut child, handles_interrupts), "it ended too early");
    let output = interrupted(child);
    let said = String::from_utf8_lossy(&output.stderr);
    if output.status.success() {
        follows("sim", &output.stdout);
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        let partial = report["partial"].as_str().unwrap();
        let made = report["runs"].as_array().unwrap().len();
        assert_eq!(partial, format!("interrupted after {made} of 16 runs"));
    } else {
        assert!(said.contains("interrupted after 0 of 16 runs"), "{said}");
        assert_eq!(output.status.code(), Some(2));
    }
}

/// What was sampled until then is shown, with how long that was.
#[test]
fn sample_shows_what_was_sampled() {
    let mut sample = turbolane();
    let mut child = started(sample.args(["sample", "--format", "json", "--for", "60s"]));
    // Where samples cannot be taken, the command ends.
    let begins = comes(&mut child, handles_interrupts);
    let output = if begins { interrupted(child) } else { child.wait_with_output().unwrap() };
    if output.status.code() == Some(77) {
        return eprintln!("skipped (77): {}", String::from_utf8_lossy(&output.stderr));
    }
    follows("sample", &output.stdout);
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let partial = report["partial"].as_str().unwrap();
    assert!(partial.starts_with("interrupted after ") && partial.ends_with(" of 60.0s"));
}
