// SPDX-License-Identifier: MIT OR Apache-2.0
//! Keeps an eye on which files processes execute, and puts probes into new ones.

use std::collections::HashSet;
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use hw::trap::Device;

use super::{Found, Kind, find};

/// What a look at the processes has brought.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Added {
    /// Files that were looked through for the first time.
    pub files: usize,
    /// Probes placed before `xgetbv`.
    pub xgetbv_sites: usize,
    /// Probes placed on `xsave`.
    pub xsave_sites: usize,
    /// Places that had to be left alone; see [`Found::unverified`].
    pub unverified: usize,
    /// Files that could not be looked through, and probes that the kernel refused.
    pub failed: usize,
}

impl Added {
    fn add(&mut self, other: Self) {
        self.files += other.files;
        self.xgetbv_sites += other.xgetbv_sites;
        self.xsave_sites += other.xsave_sites;
        self.unverified += other.unverified;
        self.failed += other.failed;
    }
}

/// The files that have their probes. A probe belongs to a file, not to a process: whoever maps it
/// later has it too.
#[derive(Debug, Default)]
pub struct Watch {
    /// Device and inode.
    seen: HashSet<(u64, u64)>,
}

impl Watch {
    /// Nothing seen yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Looks at all processes. Cheap when there is nothing new: it reads their memory maps.
    pub fn look_at_all(&mut self, device: &Device) -> Added {
        let mut added = Added::default();
        for process in fs::read_dir("/proc").into_iter().flatten().flatten() {
            let name = process.file_name();
            let is_pid = name.to_str().is_some_and(|name| name.bytes().all(|b| b.is_ascii_digit()));
            if is_pid {
                added.add(self.look_at_maps(&process.path(), device));
            }
        }
        added
    }

    /// Looks at one process.
    pub fn look_at(&mut self, pid: u32, device: &Device) -> Added {
        self.look_at_maps(&Path::new("/proc").join(pid.to_string()), device)
    }

    /// A process that has just ended has no maps, and that is no failure.
    fn look_at_maps(&mut self, process: &Path, device: &Device) -> Added {
        let mut added = Added::default();
        let maps = fs::read_to_string(process.join("maps")).unwrap_or_default();
        let root = process.join("root");
        for path in executable_files(&maps) {
            added.add(self.look_at_file(&in_root(&root, path), device));
        }
        added
    }

    /// Looks at a program or library before anybody runs it.
    pub fn look_at_file(&mut self, path: &Path, device: &Device) -> Added {
        let Ok(file) = File::open(path) else {
            return Added::default(); // deleted since it was mapped
        };
        let Ok(meta) = file.metadata() else {
            return Added { failed: 1, ..Added::default() };
        };
        if !meta.is_file() || !self.seen.insert((meta.dev(), meta.ino())) {
            return Added::default();
        }
        match find(path) {
            Ok(found) => place(&found, &file, device),
            Err(_) => Added { files: 1, failed: 1, ..Added::default() },
        }
    }
}

fn place(found: &Found, file: &File, device: &Device) -> Added {
    let mut added = Added { files: 1, unverified: found.unverified, ..Added::default() };
    for site in &found.sites {
        match (device.add_site(file, site.offset), site.kind) {
            (Ok(()), Kind::Xgetbv) => added.xgetbv_sites += 1,
            (Ok(()), Kind::Xsave) => added.xsave_sites += 1,
            (Err(_), _) => added.failed += 1,
        }
    }
    added
}

/// The files that a process has mapped as code, as its `maps` names them.
fn executable_files(maps: &str) -> Vec<&str> {
    let mut files: Vec<&str> = maps
        .lines()
        .filter(|line| line.split(' ').nth(1).is_some_and(|protection| protection.contains('x')))
        .filter_map(|line| Some(&line[line.find('/')?..]))
        .filter(|path| !path.ends_with(" (deleted)"))
        .collect();
    files.sort_unstable();
    files.dedup();
    files
}

/// A path as the process sees it, in a container of its own.
fn in_root(root: &Path, path: &str) -> PathBuf {
    let mut whole = root.as_os_str().to_owned();
    whole.push(path);
    PathBuf::from(whole)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_files_mapped_as_code() {
        let maps = "\
            400000-401000 r--p 00000000 fe:00 11 /usr/bin/a\n\
            401000-402000 r-xp 00001000 fe:00 11 /usr/bin/a\n\
            7f0000000000-7f0000001000 r-xp 00000000 fe:00 12    /usr/lib/with space.so\n\
            7f0000002000-7f0000003000 rw-p 00000000 fe:00 13 /usr/lib/data\n\
            7f0000004000-7f0000005000 r-xp 00000000 fe:00 14 /tmp/gone (deleted)\n\
            7ffc00000000-7ffc00001000 r-xp 00000000 00:00 0 [vdso]\n";
        assert_eq!(executable_files(maps), ["/usr/bin/a", "/usr/lib/with space.so"]);
    }
}
