// SPDX-License-Identifier: MIT OR Apache-2.0
//! `turbolane enable`, `disable` and `status` below a folder that replaces `/`, with a
//! `systemctl` that writes down how it was called. As root, since the machine is checked before
//! anything is written; skipped without.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::schemas::follows;
use crate::turbolane;

/// Its answers come from files beside it: `fail` names a verb that fails, `show` is what it shows
/// of the unit.
const SYSTEMCTL: &str = r#"#!/bin/sh
here=${0%/*}
case "$1" in
show) cat "$here/show"; exit 0 ;;
esac
echo "$*" >> "$here/calls"
if [ "$1" = "$(cat "$here/fail")" ]; then
	echo "Job for turbolane.service failed." >&2
	exit 1
fi
"#;

const ABSENT: &str =
    "LoadState=not-found\nActiveState=inactive\nUnitFileState=\nMainPID=0\nNRestarts=0\n";
const ENABLED: &str =
    "LoadState=loaded\nActiveState=inactive\nUnitFileState=enabled\nMainPID=0\nNRestarts=0\n";

/// A machine with systemd, as far as files and `systemctl` show it.
struct Machine {
    root: tempfile::TempDir,
    tools: tempfile::TempDir,
}

impl Machine {
    fn new() -> Machine {
        let (root, tools) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        for folder in ["etc/systemd/system", "usr/lib/systemd/system", "run/systemd/system"] {
            fs::create_dir_all(root.path().join(folder)).unwrap();
        }
        let systemctl = tools.path().join("systemctl");
        fs::write(&systemctl, SYSTEMCTL).unwrap();
        fs::set_permissions(&systemctl, Permissions::from_mode(0o755)).unwrap();
        let machine = Machine { root, tools };
        machine.set("fail", "nothing");
        machine.set("show", ABSENT);
        machine.set("calls", "");
        machine
    }

    fn set(&self, name: &str, text: &str) {
        fs::write(self.tools.path().join(name), text).unwrap();
    }

    fn calls(&self) -> String {
        fs::read_to_string(self.tools.path().join("calls")).unwrap().replace('\n', "; ")
    }

    fn path(&self, path: &str) -> PathBuf {
        self.root.path().join(path)
    }

    /// With its `systemctl` before the real one.
    fn search_path(&self) -> String {
        format!("{}:/usr/bin:/bin", self.tools.path().display())
    }

    fn run(&self, args: &[&str]) -> Output {
        let (verb, rest) = args.split_first().unwrap();
        let mut command = turbolane();
        command
            .env("PATH", self.search_path())
            .env("COLUMNS", "200")
            .arg(verb)
            .arg("--root")
            .arg(self.root.path())
            .args(rest);
        command.output().unwrap()
    }

    /// All files with their contents.
    fn files(&self) -> Vec<(PathBuf, String)> {
        let mut found = Vec::new();
        collect(self.root.path(), &mut found);
        found.sort();
        found
    }
}

fn collect(folder: &Path, found: &mut Vec<(PathBuf, String)>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            collect(&path, found);
        } else {
            found.push((path.clone(), fs::read_to_string(&path).unwrap()));
        }
    }
}

/// A machine, or `None` for users who may not change services.
fn machine() -> Option<Machine> {
    // SAFETY: geteuid takes no memory and cannot fail.
    if unsafe { libc::geteuid() } != 0 {
        eprintln!("skipped: only root may change services");
        return None;
    }
    Some(Machine::new())
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

const SETTINGS: &str = "etc/turbolane.toml";
const UNIT: &str = "etc/systemd/system/turbolane.service";
const DROP_IN: &str = "etc/systemd/system/turbolane.service.d/metrics.conf";
/// Fits every machine that has two cores, and any kernel.
const FLAGS: [&str; 5] = ["enable", "--mode", "affinity", "--slice-wide", "10ms"];

/// The settings and the unit are written, the service is started, and `disable` leaves what was
/// there before.
#[test]
fn disable_removes_what_enable_made() {
    let Some(machine) = machine() else { return };
    let before = machine.files();
    let enabled = machine.run(&FLAGS);
    assert!(enabled.status.success(), "{}", stderr(&enabled));
    assert_eq!(
        machine.calls(),
        "daemon-reload; enable turbolane.service; reset-failed turbolane.service; start turbolane.service; "
    );
    let settings = fs::read_to_string(machine.path(SETTINGS)).unwrap();
    assert!(settings.contains("\nmode = \"affinity\"\n"), "{settings}");
    assert!(settings.contains("\nslice-wide = \"10ms\"\n"), "{settings}");
    let unit = fs::read_to_string(machine.path(UNIT)).unwrap();
    let program = format!("ExecStart={}", env!("CARGO_BIN_EXE_turbolane"));
    assert!(unit.contains(&program), "{unit}");
    let check = turbolane()
        .args(["run", "--check", "--config"])
        .arg(machine.path(SETTINGS))
        .output()
        .unwrap();
    assert!(check.status.success(), "{}", stderr(&check));

    machine.set("show", ENABLED);
    machine.set("calls", "");
    let disabled = machine.run(&["disable"]);
    assert!(disabled.status.success(), "{}", stderr(&disabled));
    assert!(machine.calls().starts_with("disable --now turbolane.service; daemon-reload; "));
    assert_eq!(machine.files(), before);
    machine.set("show", ABSENT);
    let again = machine.run(&["disable"]);
    assert!(String::from_utf8_lossy(&again.stdout).contains("nothing to disable"));
}

/// A service that does not start leaves nothing, and a file that was there before is as it was.
#[test]
fn a_service_that_does_not_start_changes_nothing() {
    let Some(machine) = machine() else { return };
    for verb in ["daemon-reload", "enable", "start"] {
        let before = machine.files();
        machine.set("fail", verb);
        let failed = machine.run(&FLAGS);
        assert_eq!(failed.status.code(), Some(2), "{verb}");
        assert!(
            stderr(&failed).contains("Job for turbolane.service failed."),
            "{}",
            stderr(&failed)
        );
        assert_eq!(machine.files(), before, "{verb}");
        // The second round has files of an earlier enable.
        machine.set("fail", "nothing");
        assert!(machine.run(&["enable", "--mode", "affinity"]).status.success());
    }
}

/// A settings file that a person wrote or edited is used as it is, never overwritten and never
/// removed.
#[test]
fn files_of_others_are_kept() {
    let Some(machine) = machine() else { return };
    let theirs = "mode = \"affinity\"\n";
    fs::write(machine.path(SETTINGS), theirs).unwrap();
    let refused = machine.run(&FLAGS);
    assert_eq!(refused.status.code(), Some(2));
    assert!(stderr(&refused).contains("did not write it"), "{}", stderr(&refused));
    assert_eq!(machine.calls(), "");
    assert!(machine.run(&["enable"]).status.success());
    machine.set("show", ENABLED);
    let disabled = machine.run(&["disable"]);
    assert!(String::from_utf8_lossy(&disabled.stdout).contains("kept"));
    assert_eq!(fs::read_to_string(machine.path(SETTINGS)).unwrap(), theirs);
    assert!(!machine.path(UNIT).exists());
}

/// With metrics the service may write to their folder and to no other one, whoever wrote the unit;
/// `disable` takes that back. A folder that is not there is refused.
#[test]
fn the_service_may_write_its_metrics() {
    let Some(machine) = machine() else { return };
    let before = machine.files();
    let folder = machine.path("etc");
    let metrics = folder.join("a.prom").display().to_string();
    let missing = folder.join("no/a.prom").display().to_string();
    let with = |path: &str| machine.run(&[&FLAGS[..], &["--metrics", path]].concat());
    assert_eq!(with(&missing).status.code(), Some(2));
    machine.set("fail", "start");
    assert_eq!(with(&metrics).status.code(), Some(2));
    assert_eq!(machine.files(), before);
    let own_folder = machine.path(DROP_IN);
    assert!(!own_folder.parent().unwrap().exists());
    machine.set("fail", "nothing");
    let enabled = with(&metrics);
    assert!(enabled.status.success(), "{}", stderr(&enabled));
    let text = fs::read_to_string(&own_folder).unwrap();
    assert!(text.contains(&format!("\nReadWritePaths={}\n", folder.display())), "{text}");
    machine.set("show", ENABLED);
    assert!(machine.run(&["disable"]).status.success());
    assert_eq!(machine.files(), before);
    assert!(!own_folder.parent().unwrap().exists());
}

/// The unit of a package is used; no second one is written over it.
#[test]
fn the_unit_of_a_package_is_used() {
    let Some(machine) = machine() else { return };
    fs::write(machine.path("usr/lib/systemd/system/turbolane.service"), "[Service]\n").unwrap();
    assert!(machine.run(&FLAGS).status.success());
    assert!(!machine.path(UNIT).exists());
    assert!(machine.path(SETTINGS).exists());
}

/// What `run` notes is noted here too: the service of a systemd whose processes may not use the
/// wide CPU.
#[test]
fn what_is_no_error_is_noted() {
    let Some(machine) = machine() else { return };
    // The first process of a new PID namespace is the program itself.
    let namespace = ["--pid", "--fork", "taskset", "--cpu-list", "0"];
    let mut command = Command::new("unshare");
    command.args(namespace).arg(env!("CARGO_BIN_EXE_turbolane"));
    command.args(FLAGS).args(["--wide-cpus", "1", "--root"]).arg(machine.root.path());
    let looked = Command::new("unshare").args(namespace).arg("true").output();
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    if cpus < 2 || !looked.is_ok_and(|output| output.status.success()) {
        return eprintln!("skipped: two CPUs and a PID namespace are needed");
    }
    let output = command.env("PATH", machine.search_path()).env("COLUMNS", "400").output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(said.contains("a service has from systemd, 0, contains no wide CPU"), "{said}");
}

/// What cannot work is refused before anything is written or started: no systemd, a list of
/// services, settings that this machine cannot meet, a mistake in the file.
#[test]
fn impossible_services_fail() {
    let Some(machine) = machine() else { return };
    let before = machine.files();
    let refused = |args: &[&str], code: i32, words: &str| {
        let output = machine.run(args);
        assert_eq!(output.status.code(), Some(code), "{args:?}: {}", stderr(&output));
        assert!(stderr(&output).contains(words), "{args:?}: {}", stderr(&output));
        assert_eq!(machine.calls(), "");
    };
    refused(&["enable", "nginx"], 2, "cannot enable the lane for nginx only");
    refused(&["enable", "--wide-cpus", "1000"], 2, "this machine has");
    refused(&["enable", "--mark", "/no/file:f"], 2, "/no/file");
    assert_eq!(machine.files(), before);
    fs::write(machine.path(SETTINGS), "slcie = '5ms'\n").unwrap();
    refused(&["enable"], 2, "line 1, column 1");
    fs::remove_file(machine.path(SETTINGS)).unwrap();
    fs::remove_dir(machine.path("run/systemd/system")).unwrap();
    refused(&FLAGS, 77, "does not run systemd");
    refused(&["disable"], 77, "does not run systemd");
    assert_eq!(machine.files(), before);
}

/// The state of the unit decides where no lane answers; the exit code says whether one runs.
#[test]
fn status_says_why_nothing_runs() {
    let machine = Machine::new();
    let status = |show: &str| {
        machine.set("show", show);
        let output = machine.run(&["status", "--socket", "/nonexistent/ctl.sock", "--json"]);
        follows("status", &output.stdout);
        let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        (json["state"].as_str().unwrap().to_string(), output.status.code().unwrap())
    };
    assert_eq!(status(ABSENT), ("stopped".into(), 1));
    assert_eq!(status(ENABLED), ("stopped".into(), 1));
    assert_eq!(status(&ENABLED.replace("inactive", "failed")), ("failed".into(), 1));
    assert_eq!(status(&ENABLED.replace("inactive", "active")), ("running".into(), 0));
}
