// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which settings of control groups divide or limit CPU time on this machine.
//!
//! Counts only: names of groups are names of users, containers and services, and go into no report.
//! For the same reason recordings do not have them.
//!
//! Limits: a container sees its own groups. The walk ends after [`MOST`] groups. Of the first
//! version of control groups only those in the folders `cpu` and `cpu,cpuacct` are seen.

use std::fs;
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
