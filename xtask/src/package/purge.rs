// SPDX-License-Identifier: MIT OR Apache-2.0
//! Installs the package into a fresh Debian root, uses it, purges it, and says what differs.
//!
//! The root is a copy of one in the cache, in which systemd runs as in a container: namespaces of
//! mounts, processes and control groups end with it. So the service really starts, is upgraded and
//! is purged while it runs. A file is compared by its kind, mode, owner and contents; not compared
//! are logs, dpkg's backup of its own list, and the linker's auxiliary cache, which are written at
//! each installation and hold times. Compared as well are systemd's units, our modules, the
//! settings in /proc/sys/kernel, and the affinity masks of processes.
//!
//! **Limits.** The container has this machine's kernel, so the service runs in affinity mode, in
//! which it leaves the scheduler alone. Needs root and cgroup v2.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::stage;
use crate::repo;

/// Takes the root, the folder with the package, and the package's name.
const SESSION: &str = include_str!("purge.sh");

/// Between the two states.
const DIVIDER: &str = "== after the purge ==";

/// How lines of purge.sh begin that are no files.
const UNIT: &str = "unit ";
const SETTING: &str = "kernel.";
const MASK: &str = "Cpus_allowed_list:";
const KINDS: [&str; 5] = [UNIT, "loaded ", "module ", SETTING, MASK];

/// What a container needs of this machine.
const NEEDS: &str = r#"d=$(mktemp -d); trap 'rmdir "$d"' EXIT; mount -t cgroup2 cgroup2 "$d"
mkdir "$d/turbolane-look-$$"; rmdir "$d/turbolane-look-$$"; umount "$d""#;

/// Why no container can be made here, such as within another one; `None` if it can.
pub(crate) fn why_not() -> Result<Option<String>> {
    let mut look = Command::new("unshare");
    look.args(["--mount", "--propagation", "private", "--pid", "--fork", "--cgroup"]);
    let done = look.args(["sh", "-euc", NEEDS]).output().context("cannot execute unshare")?;
    let stderr = String::from_utf8_lossy(&done.stderr);
    Ok((!done.status.success()).then(|| format!("no container here: {}", stderr.trim())))
}

/// A copy of the fresh root of a Debian release.
pub(super) fn copy_of_root(suite: &str) -> Result<PathBuf> {
    let work = repo::target().join("package/fresh");
    stage::remove(&work)?;
    let base = testbed::fresh_root(&testbed::Cache::open()?, suite)?;
    stage::run(Command::new("cp").args(["--archive", "--reflink=auto"]).arg(base).arg(&work))?;
    Ok(work)
}

/// What purging the package leaves that was not there before, or takes away.
pub(super) fn differences(deb: &Path) -> Result<Vec<String>> {
    let work = copy_of_root(&testbed::fresh_suites()[0])?;
    let folder = deb.parent().context("the package is in a folder")?;
    let mut session = Command::new("unshare");
    session.args(["--mount", "--propagation", "private", "sh", "-c", SESSION, "sh"]);
    session.arg(&work).arg(folder).arg(deb.file_name().unwrap_or_default());
    let done = repo::logged(session.env("LC_ALL", "C"), "purge")?;
    // Nothing is mounted there any more: the mounts were in the session's namespace.
    stage::remove(&work)?;
    ensure!(
        done.success,
        "the package does not install, work or purge:\n{}",
        testbed::last_lines(&done.text, 20)
    );
    compare(&done.text)
}

fn compare(text: &str) -> Result<Vec<String>> {
    let (before, after) = text.split_once(DIVIDER).context("the session was cut off")?;
    let (before, after) = (state(before), state(after));
    ensure!(before.len() > 1000, "the state before has only {} files", before.len());
    for kind in [UNIT, SETTING, MASK] {
        let has = before.keys().any(|key| key.starts_with(kind));
        ensure!(has, "the state before has no line that begins with {kind}");
    }
    let mut found = Vec::new();
    for (path, what) in &after {
        match before.get(path) {
            None => found.push(format!("{path} is new: {what}")),
            Some(was) if was != what => found.push(format!("{path} was {was}, is {what}")),
            Some(_) => {}
        }
    }
    let gone = before.keys().filter(|path| !after.contains_key(*path));
    found.extend(gone.map(|path| format!("{path} is gone")));
    Ok(found)
}

/// Lines of a path or one of [`KINDS`], a tab, and what it is. What dpkg prints is between them.
fn state(text: &str) -> BTreeMap<&str, &str> {
    text.lines()
        .filter(|line| line.starts_with('/') || KINDS.iter().any(|kind| line.starts_with(kind)))
        .filter_map(|line| line.split_once('\t'))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file that is new, gone or changed is one difference each.
    #[test]
    fn every_kind_of_difference_is_found() {
        let many: String = (0..1001).map(|at| format!("/same/{at}\tf 644 0 0 1\n")).collect();
        let kinds = "unit a.service\tstatic\nkernel.a\t1 \nCpus_allowed_list:\t0-1\t\n";
        let many = many + kinds;
        let before = format!("{many}/a\tf 644 0 0 11\n/b\tl 777 0 0 to\n");
        let same = format!("{before}{DIVIDER}\n{before}");
        assert_eq!(compare(&same).unwrap(), Vec::<String>::new());
        let other = format!("{before}{DIVIDER}\n{many}/a\tf 600 0 0 11\n/c\td 755 0 0\n");
        assert_eq!(
            compare(&other).unwrap(),
            ["/a was f 644 0 0 11, is f 600 0 0 11", "/c is new: d 755 0 0", "/b is gone"]
        );
        let set = before.replace("kernel.a\t1 ", "kernel.a\t2 ");
        let changed = compare(&format!("{before}{DIVIDER}\n{set}")).unwrap();
        assert_eq!(changed, ["kernel.a was 1 , is 2 "]);
        assert!(compare(&before).is_err());
        let blind = many.replace(kinds, "");
        assert!(compare(&format!("{blind}{DIVIDER}\n{blind}")).is_err());
    }
}
