// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which settings of control groups divide or limit CPU time on this machine, and which groups
//! there are.
//!
//! Of settings only counts: names of groups are names of users, containers and services, and go
//! into no report. For the same reason recordings do not have them.
//!
//! Limits: a container sees its own groups. The walk ends after [`MOST`] groups. Of the first
//! version of control groups only those in the folders `cpu` and `cpu,cpuacct` are seen.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Groups that are looked at.
const MOST: usize = 20_000;

/// Groups whose settings differ from those of a new group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InForce {
    /// With a limit of CPU time (`cpu.max`, `cpu.cfs_quota_us`).
    pub limits: usize,
    /// With another weight than the default (`cpu.weight`, `cpu.idle`, `cpu.shares`).
    pub weights: usize,
}

/// What is in force on this machine.
pub fn in_force() -> InForce {
    ["/sys/fs/cgroup", "/sys/fs/cgroup/unified", "/sys/fs/cgroup/cpu", "/sys/fs/cgroup/cpu,cpuacct"]
        .map(|root| in_force_below(Path::new(root)))
        .into_iter()
        .find(|found| *found != InForce::default())
        .unwrap_or_default()
}

/// What is in force in the groups below this folder, which is a root of control groups.
pub fn in_force_below(root: &Path) -> InForce {
    let mut found = InForce::default();
    let mut folders: Vec<PathBuf> = children(root).collect();
    let mut looked_at = 0;
    while let Some(folder) = folders.pop() {
        looked_at += 1;
        if looked_at > MOST {
            break;
        }
        found.limits += usize::from(has_limit(&folder));
        found.weights += usize::from(has_weight(&folder));
        folders.extend(children(&folder));
    }
    found
}

/// Which group a folder is; one that is made anew under its name has another.
pub type GroupId = u64;

/// The root of the unified hierarchy; `None` where there is none.
pub fn unified_root() -> Option<PathBuf> {
    let roots = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"].map(PathBuf::from);
    roots.into_iter().find(|root| root.join("cgroup.controllers").exists())
}

/// Which group it is, if it is there.
///
/// # Errors
/// When that is not known.
pub fn folder_id(folder: &Path) -> io::Result<Option<GroupId>> {
    match fs::metadata(folder) {
        Ok(found) => Ok(found.is_dir().then(|| found.ino())),
        Err(error) if is_gone(&error) || error.kind() == io::ErrorKind::NotADirectory => Ok(None),
        Err(error) => Err(error),
    }
}

/// CPU time that a group and those below it have used, ns.
///
/// # Errors
/// When it cannot be read; of a group that is gone too.
pub fn cpu_time_ns(folder: &Path) -> io::Result<u64> {
    let text = fs::read_to_string(folder.join("cpu.stat"))?;
    let us = text.lines().find_map(|line| line.strip_prefix("usage_usec ")?.trim().parse().ok());
    let none = || io::Error::other("its cpu.stat has no usage_usec");
    us.map(|us: u64| us * 1_000).ok_or_else(none)
}

/// Whether it says that a group is there no more.
fn is_gone(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ENODEV))
}

/// The groups that the system's systemd has made: all in slices of this user, root, from this
/// folder down.
///
/// What is in a slice of another user was made by that user; what is in a service or a scope, by
/// what runs there: a container has units of its own. A group itself may belong to another user, as
/// that of a service with `Delegate=` does: its name was chosen by who owns its slice.
///
/// # Errors
/// When a folder cannot be read; one that is gone meanwhile is no error.
pub fn units_below(root: &Path, user: u32) -> io::Result<Vec<PathBuf>> {
    let is_slice = |path: &Path| path.extension().is_some_and(|ending| ending == "slice");
    let mut slices = vec![root.to_path_buf()];
    let mut found = Vec::new();
    while let Some(slice) = slices.pop() {
        let groups = match groups_of(&slice, user) {
            Err(error) if is_gone(&error) => continue,
            groups => groups?,
        };
        slices.extend(groups.iter().filter(|path| is_slice(path)).cloned());
        found.extend(groups);
        if found.len() > MOST {
            return Err(io::Error::other(format!("there are more than {MOST} units")));
        }
    }
    Ok(found)
}

/// The groups in a group that belongs to this user.
fn groups_of(group: &Path, user: u32) -> io::Result<Vec<PathBuf>> {
    if fs::symlink_metadata(group)?.uid() != user {
        return Ok(Vec::new());
    }
    let mut found = Vec::new();
    for entry in fs::read_dir(group)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            found.push(entry.path());
        }
    }
    Ok(found)
}

/// Folders in a folder; symbolic links are none.
fn children(folder: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter(|entry| entry.file_type().is_ok_and(|t| t.is_dir())).map(|entry| entry.path())
}

fn text(folder: &Path, file: &str) -> Option<String> {
    fs::read_to_string(folder.join(file)).ok().map(|text| text.trim().to_string())
}

fn has_limit(folder: &Path) -> bool {
    let v2 = text(folder, "cpu.max").is_some_and(|max| !max.starts_with("max"));
    v2 || text(folder, "cpu.cfs_quota_us").is_some_and(|quota| !quota.starts_with('-'))
}

fn has_weight(folder: &Path) -> bool {
    let differs = |file: &str, default: &str| text(folder, file).is_some_and(|t| t != default);
    differs("cpu.weight", "100") || differs("cpu.idle", "0") || differs("cpu.shares", "1024")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The time is found among the other lines; without it there is an error, not zero.
    #[test]
    fn cpu_time_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let stat = dir.path().join("cpu.stat");
        fs::write(&stat, "usage_usec 1234\nuser_usec 1000\n").unwrap();
        assert_eq!(cpu_time_ns(dir.path()).unwrap(), 1_234_000);
        fs::write(&stat, "nr_periods 0\n").unwrap();
        assert!(cpu_time_ns(dir.path()).is_err());
    }

    /// Every setting that differs counts once for its group, at every depth and in both versions;
    /// what a new group has does not.
    #[test]
    fn settings_are_counted() {
        let dir = tempfile::tempdir().unwrap();
        let group = |path: &str, files: &[(&str, &str)]| {
            let folder = dir.path().join(path);
            fs::create_dir_all(&folder).unwrap();
            for (file, text) in files {
                fs::write(folder.join(file), text).unwrap();
            }
        };
        group("new", &[("cpu.max", "max 100000\n"), ("cpu.weight", "100\n"), ("cpu.idle", "0\n")]);
        group("old", &[("cpu.cfs_quota_us", "-1\n"), ("cpu.shares", "1024\n")]);
        assert_eq!(in_force_below(dir.path()), InForce::default());
        group("a/b/limited", &[("cpu.max", "10000 100000\n"), ("cpu.weight", "100\n")]);
        group("a/heavy", &[("cpu.max", "max 100000\n"), ("cpu.weight", "1000\n")]);
        group("a/idle", &[("cpu.weight", "0\n"), ("cpu.idle", "1\n")]);
        group("old/quota", &[("cpu.cfs_quota_us", "5000\n"), ("cpu.shares", "2\n")]);
        assert_eq!(in_force_below(dir.path()), InForce { limits: 2, weights: 3 });
        assert_eq!(in_force_below(&dir.path().join("missing")), InForce::default());
    }
}
