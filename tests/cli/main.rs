// SPDX-License-Identifier: MIT OR Apache-2.0
//! The command line as users see it: each `*.trycmd` file holds commands with their output and
//! exit code. After a change on purpose, `TRYCMD=overwrite cargo test -p turbolane-cli` rewrites
//! them; review the difference.

mod advise;
mod bad_recordings;
mod color;
mod containers;
mod interrupted;
mod limits;
mod live;
mod metrics;
mod pages;
mod probe;
mod profile;
mod record;
mod recorded;
mod recorded_levels;
mod sample;
mod scan;
mod schemas;
mod service;
mod socket;
mod top;
mod verify_live;

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use report::doctor::{Doctor, Section};

/// The repository's root: the tests run in the package's folder, two below.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn turbolane() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_turbolane"));
    command.env("COLUMNS", "80");
    command
}

/// Help, reports on recorded machines, and every refusal that needs no scheduler.
#[test]
fn snapshots() {
    check_outputs_in("../../tests/cli/*.trycmd");
}

/// README's `console` blocks: each prints what it shows. Its commands are run in the root of the
/// repository, as a reader would: trycmd runs those of `NAME.md` in `NAME.in`.
#[test]
fn readme_shows_real_output() {
    let folder = tempfile::tempdir().unwrap();
    let root = root().canonicalize().unwrap();
    symlink(root.join("README.md"), folder.path().join("README.md")).unwrap();
    symlink(&root, folder.path().join("README.in")).unwrap();
    check_outputs_in(folder.path().join("README.md"));
}

fn check_outputs_in(cases: impl AsRef<Path>) {
    trycmd::TestCases::new()
        .env("COLUMNS", "80")
        .register_bin("turbolane", Path::new(env!("CARGO_BIN_EXE_turbolane")))
        .case(cases);
}

/// Every recorded machine has a snapshot of what doctor says about it.
#[test]
fn every_machine_is_examined() {
    let snapshots = fs::read_to_string(root().join("tests/cli/doctor.trycmd")).unwrap();
    for entry in fs::read_dir(root().join("tests/data/machines")).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        if entry.path().is_dir() {
            assert!(snapshots.contains(&format!("machines/{name}\n")), "{name} has no snapshot");
        }
    }
}

/// The manual pages that are checked in are those of this program. To renew them:
/// `cargo run -p turbolane-cli -- man docs/man`.
#[test]
fn manual_pages_are_current() {
    let fresh = tempfile::tempdir().unwrap();
    assert!(turbolane().arg("man").arg(fresh.path()).status().unwrap().success());
    let pages = |dir: &Path| {
        let mut pages: Vec<(String, String)> = fs::read_dir(dir)
            .unwrap()
            .map(|entry| entry.unwrap())
            // Section 3 is the library's.
            .filter(|entry| entry.path().extension().is_some_and(|section| section == "1"))
            .map(|entry| {
                let name = entry.file_name().into_string().unwrap();
                (name, fs::read_to_string(entry.path()).unwrap())
            })
            .collect();
        pages.sort();
        pages
    };
    let (now, checked_in) = (pages(fresh.path()), pages(&root().join("docs/man")));
    let names = |pages: &[(String, String)]| -> Vec<String> {
        pages.iter().map(|(name, _)| name.clone()).collect()
    };
    assert_eq!(names(&now), names(&checked_in));
    for (now, checked_in) in now.iter().zip(&checked_in) {
        assert!(now == checked_in, "docs/man/{} is stale", now.0);
    }
}

/// A recording of this machine says the same as the machine.
#[test]
fn a_recorded_machine_looks_like_the_live_one() {
    let dir = tempfile::tempdir().unwrap();
    let live = turbolane().args(["doctor", "--json", "--record"]).arg(dir.path()).output().unwrap();
    let replayed =
        turbolane().args(["doctor", "--json", "--machine"]).arg(dir.path()).output().unwrap();
    let sections = |output: &Output| -> Vec<Section> {
        serde_json::from_slice::<Doctor>(&output.stdout).unwrap().sections
    };
    let (mut live_sections, replayed_sections) = (sections(&live), sections(&replayed));
    // What this process may use is no fact of the machine.
    assert_eq!(live_sections.pop().unwrap().title, "This process");
    assert_eq!(live_sections, replayed_sections);
    assert_eq!(live.status.code(), replayed.status.code());
}

/// Every shell gets a script that knows the subcommands.
#[test]
fn completions_know_the_subcommands() {
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let output = turbolane().args(["completions", shell]).output().unwrap();
        assert!(output.status.success());
        let script = String::from_utf8(output.stdout).unwrap();
        for word in ["doctor", "wide-cpus", "affinity"] {
            assert!(script.contains(word), "{shell} does not know {word}");
        }
    }
}

/// A reader that goes away early (`| head -1`) is no error.
#[test]
fn a_closed_pipe_is_no_error() {
    use std::process::Stdio;
    let mut child = turbolane()
        .args(["run", "--help-stats"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
