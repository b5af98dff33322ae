// SPDX-License-Identifier: MIT OR Apache-2.0
//! Installs, upgrades and removes the RPM package in a root of its own, with its scripts, and says
//! what differs.
//!
//! Problem: no guest has rpm and systemd, and scripts that are not executed go wrong unseen.
//!
//! Idea: rpm executes the scripts in the root that it installs into. That root has a shell, and for
//! systemctl and ldconfig programs that only note how they were called. So the test sees what the
//! scripts ask of systemd, and what they do to files: whatever the root has after the removal and
//! had not before is a difference.
//!
//! Limits: what systemd does then is tested with the Debian package (`purge.rs`), whose scripts do
//! the same. Dependencies are not resolved (`rpm.rs` looks at them), and the root is no
//! distribution's.

use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use tempfile::TempDir;

use crate::repo;

/// What the scripts use of a shell's tools.
const TOOLS: [&str; 4] = ["sh", "rm", "rmdir", "cat"];
/// Programs that are noted instead of executed. As a success, so that a script goes on.
const NOTED: [&str; 2] = ["usr/bin/systemctl", "sbin/ldconfig"];
const NOTES: &str = "notes";
/// What rpm keeps itself; Debian's has another place for it.
const DATABASE: &str = "var/lib/rpm";
/// No device: a temporary folder may be where there can be none. What is written there is not
/// looked at.
const DEVICES: &str = "dev";

/// Files of a service that runs: link of systemctl, addition of `turbolane enable --metrics`,
/// folder of a run. And the operator's settings, which stay.
const ENABLED: &str = "etc/systemd/system/multi-user.target.wants/turbolane.service";
const ADDED: &str = "etc/systemd/system/turbolane.service.d/metrics.conf";
const RUN: &str = "run/turbolane/lock";
const SETTINGS: &str = "etc/turbolane.toml";

/// What must be there while it is installed.
const INSTALLED: [&str; 3] = [
    "usr/bin/turbolane",
    "usr/lib64/libturbolane.so.0",
    "usr/lib/systemd/system/turbolane.service",
];

/// What is wrong, one line each.
pub(super) fn differences(rpm: &Path) -> Result<Vec<String>> {
    let root = Root::new()?;
    let package = rpm.display().to_string();
    root.add_folders(&repo::output("rpm", &["-qlp", &package])?)?;
    let before = root.state()?;
    let mut found = Vec::new();

    let noted = root.rpm(&["--install", &package])?;
    found.extend(unlike("install", &noted, &["ldconfig", "systemctl daemon-reload"]));
    let missing = INSTALLED.into_iter().filter(|file| !root.path(file).exists());
    found.extend(missing.map(|file| format!("rpm: {file} is missing")));
    let version = repo::output("chroot", &[&root.name(), "/usr/bin/turbolane", "--version"])?;
    if !version.contains(env!("CARGO_PKG_VERSION")) {
        found.push(format!("rpm: the command says {version}"));
    }

    root.enable()?;
    let noted = root.rpm(&["--upgrade", "--replacepkgs", &package])?;
    // The new version asks the one that runs to be taken over; here none answers.
    let due = [
        "ldconfig",
        "systemctl daemon-reload",
        "systemctl --quiet is-active turbolane.service",
        "systemctl try-restart turbolane.service",
    ];
    found.extend(unlike("upgrade", &noted, &due));
    let kept = [ENABLED, ADDED, RUN, SETTINGS].into_iter().filter(|file| !root.is_there(file));
    found.extend(kept.map(|file| format!("rpm: the upgrade removed {file}")));

    let noted = root.rpm(&["--erase", "turbolane"])?;
    let due = [
        "systemctl disable --now turbolane.service",
        "ldconfig",
        "systemctl daemon-reload",
        "systemctl reset-failed turbolane.service",
    ];
    found.extend(unlike("removal", &noted, &due));
    match fs::remove_file(root.path(SETTINGS)) {
        Ok(()) => {}
        Err(_) => found.push(format!("rpm: the removal took {SETTINGS}")),
    }
    found.extend(changed(&before, &root.state()?));
    Ok(found)
}

/// A root that rpm installs into.
struct Root(TempDir);

impl Root {
    fn new() -> Result<Self> {
        let root = Root(tempfile::tempdir().context("cannot make a folder")?);
        // Where rpm puts scripts, and where systemd says that it runs.
        let folders = ["bin", "var/tmp", "tmp", "run/systemd/system", DATABASE, DEVICES];
        folders.iter().try_for_each(|folder| root.folder(folder))?;
        root.folder(Path::new(ADDED).parent().and_then(Path::parent).expect("it has folders"))?;
        root.folder(Path::new(ENABLED).parent().expect("it has a folder"))?;
        let busybox = Path::new("/bin/busybox");
        ensure!(busybox.exists(), "{} is missing: install busybox-static", busybox.display());
        fs::copy(busybox, root.path("bin/busybox")).context("cannot copy busybox")?;
        for tool in TOOLS {
            symlink("busybox", root.path("bin").join(tool)).context("cannot make a link")?;
        }
        for program in NOTED {
            let path = root.path(program);
            root.folder(Path::new(program).parent().expect("it has a folder"))?;
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            fs::write(&path, format!("#!/bin/sh\necho {name} \"$@\" >> /{NOTES}\n"))?;
            fs::set_permissions(&path, Permissions::from_mode(0o755))?;
        }
        Ok(root)
    }

    fn path(&self, file: &str) -> PathBuf {
        self.0.path().join(file)
    }

    fn name(&self) -> String {
        self.0.path().display().to_string()
    }

    fn folder(&self, folder: impl AsRef<Path>) -> Result<()> {
        let path = self.0.path().join(folder);
        fs::create_dir_all(&path).with_context(|| format!("cannot make {}", path.display()))
    }

    /// Makes the folders of a package's files that a distribution has too.
    fn add_folders(&self, files: &str) -> Result<()> {
        let above =
            files.lines().filter_map(|file| Path::new(file.trim_start_matches('/')).parent());
        let is_ours =
            |folder: &&Path| folder.components().any(|part| part.as_os_str() == "turbolane");
        above.filter(|folder| !is_ours(folder)).try_for_each(|folder| self.folder(folder))
    }

    /// A link that leads nowhere is there.
    fn is_there(&self, file: &str) -> bool {
        fs::symlink_metadata(self.path(file)).is_ok()
    }

    /// Makes what a service that runs has.
    fn enable(&self) -> Result<()> {
        symlink("/usr/lib/systemd/system/turbolane.service", self.path(ENABLED))?;
        for file in [ADDED, RUN, SETTINGS] {
            self.folder(Path::new(file).parent().expect("it has a folder"))?;
            fs::write(self.path(file), "x")?;
        }
        Ok(())
    }

    /// Runs rpm; how programs were called meanwhile.
    fn rpm(&self, what: &[&str]) -> Result<Vec<String>> {
        let mut rpm = Command::new("rpm");
        rpm.args(["--root", &self.name(), "--dbpath", &format!("/{DATABASE}"), "--nodeps"]);
        rpm.args(what);
        let done = repo::logged(&mut rpm, "rpm")?;
        ensure!(done.success, "rpm {} failed:\n{}", what[0], done.text);
        // A script that fails is a warning to rpm.
        ensure!(!done.text.contains("warning"), "rpm {}:\n{}", what[0], done.text);
        let notes = self.path(NOTES);
        let text = fs::read_to_string(&notes).unwrap_or_default();
        fs::write(&notes, "").context("cannot clear the notes")?;
        Ok(text.lines().map(|line| line.trim_end().to_owned()).collect())
    }

    /// Each file with its kind, mode, owner and target or checksum.
    fn state(&self) -> Result<BTreeMap<String, String>> {
        let name = self.name();
        let (kept, devices) = (format!("{name}/{DATABASE}"), format!("{name}/{DEVICES}"));
        let skip = [
            "-path", &kept, "-prune", "-o", "-path", &devices, "-prune", "-o", "!", "-name", NOTES,
        ];
        let find =
            |more: &[&str]| repo::output("find", &[&[name.as_str()], &skip[..], more].concat());
        let kinds = find(&["-printf", "%P\t%y %m %U %G %l\n"])?;
        let sums = find(&["-type", "f", "-exec", "sha256sum", "{}", "+"])?;
        let kinds = kinds.lines().filter_map(|line| line.split_once('\t'));
        let sums = sums.lines().filter_map(|line| line.split_once("  "));
        let contents = sums.map(|(sum, path)| {
            let path = path.strip_prefix(&name).unwrap_or(path).trim_start_matches('/');
            (format!("{path} (contents)"), sum.to_owned())
        });
        let state = kinds.map(|(path, kind)| (path.to_owned(), kind.to_owned()));
        Ok(state.chain(contents).collect())
    }
}

/// Calls that differ from those that are due, in any order: rpm may call ldconfig more often.
fn unlike(step: &str, noted: &[String], due: &[&str]) -> Vec<String> {
    let missing = due.iter().filter(|call| !noted.iter().any(|noted| noted == *call));
    let further = noted.iter().filter(|call| !due.contains(&call.as_str()));
    let missing = missing.map(|call| format!("rpm, {step}: does not call {call}"));
    missing.chain(further.map(|call| format!("rpm, {step}: calls {call}"))).collect()
}

/// What is new, gone or another.
fn changed(before: &BTreeMap<String, String>, after: &BTreeMap<String, String>) -> Vec<String> {
    let new = after.iter().filter_map(|(path, what)| match before.get(path) {
        None => Some(format!("rpm: {path} is left: {what}")),
        Some(was) if was != what => Some(format!("rpm: {path} was {was}, is {what}")),
        Some(_) => None,
    });
    let gone = before.keys().filter(|path| !after.contains_key(*path));
    new.chain(gone.map(|path| format!("rpm: {path} is gone"))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each kind of difference is a line: of files, and of calls.
    #[test]
    fn differences_are_found() {
        let state = |files: &[(&str, &str)]| -> BTreeMap<String, String> {
            files.iter().map(|(path, what)| (path.to_string(), what.to_string())).collect()
        };
        let before = state(&[("a", "f"), ("b", "f"), ("c", "f")]);
        assert_eq!(changed(&before, &before), [""; 0]);
        assert_eq!(
            changed(&before, &state(&[("a", "f"), ("b", "d"), ("d", "f")])),
            ["rpm: b was f, is d", "rpm: d is left: f", "rpm: c is gone"]
        );
        let noted = ["x", "y"].map(String::from);
        assert_eq!(unlike("install", &noted, &["y", "x"]), [""; 0]);
        assert_eq!(
            unlike("install", &noted, &["y", "z"]),
            ["rpm, install: does not call z", "rpm, install: calls x"]
        );
    }

    /// The state of a root has links, modes and contents, and neither rpm's data nor the notes.
    #[test]
    fn a_state_is_complete() {
        let root = Root::new().unwrap();
        fs::write(root.path(DATABASE).join("x"), "").unwrap();
        fs::write(root.path(NOTES), "").unwrap();
        let state = root.state().unwrap();
        assert!(state["bin/sh"].starts_with("l ") && state["bin/sh"].ends_with("busybox"));
        assert!(state["usr/bin/systemctl"].starts_with("f 755 "), "{state:?}");
        assert!(state.contains_key("usr/bin/systemctl (contents)"), "{state:?}");
        assert!(!state.keys().any(|path| path.contains("rpm/") || path == NOTES), "{state:?}");
    }
}
