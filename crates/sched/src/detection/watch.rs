// SPDX-License-Identifier: MIT OR Apache-2.0
//! Keeps an eye on which files processes execute, and puts probes into new ones.

use std::collections::HashSet;
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use hw::trap::{self, Device};

use super::light::Light;
use super::maps::{Mapped, folder, in_root};
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

/// The files that have their probes, and what is known of processes. A probe belongs to a file, not
/// to a process: whoever maps it later has it too.
#[derive(Default)]
pub struct Watch {
    /// Device and inode.
    seen: HashSet<(u64, u64)>,
    light: Light,
}

impl Watch {
    /// Nothing seen yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Looks at all processes. Cheap when there is nothing new: it reads their memory maps.
    pub fn look_at_all(&mut self, device: &Device) -> Added {
        let names = fs::read_dir("/proc").into_iter().flatten().flatten();
        self.look(names.filter_map(|name| name.file_name().to_str()?.parse().ok()), device)
    }

    /// Looks at one process.
    pub fn look_at(&mut self, pid: u32, device: &Device) -> Added {
        self.look([pid], device)
    }

    fn look(&mut self, pids: impl IntoIterator<Item = u32>, device: &Device) -> Added {
        let mut added = Added::default();
        // A process that has just ended has no maps, and that is no failure.
        let read = |pid| Some((pid, Mapped::read(&folder(pid))?));
        let processes: Vec<(u32, Mapped)> = pids.into_iter().filter_map(read).collect();
        // Probes first: they are what a program needs, and placed quickly.
        for (pid, mapped) in &processes {
            let root = folder(*pid).join("root");
            for path in &mapped.files {
                added.add(self.look_at_file(&in_root(&root, path), device));
            }
        }
        let wide_level = trap::setting("wide_level").ok().and_then(|level| level.parse().ok());
        let Some(wide_level) = wide_level else { return added };
        for (pid, mapped) in &processes {
            // A module that does not answer decides by what traps, as it does without us.
            _ = self.light.judge(*pid, mapped, device, wide_level);
        }
        added
    }

    /// Looks at a program or library before anybody runs it.
    pub fn look_at_file(&mut self, path: &Path, device: &Device) -> Added {
        let Ok(meta) = fs::metadata(path) else {
            return Added::default(); // deleted since it was mapped
        };
        if !meta.is_file() || self.seen.contains(&(meta.dev(), meta.ino())) {
            return Added::default();
        }
        let Ok(file) = File::open(path) else { return Added::default() };
        self.seen.insert((meta.dev(), meta.ino()));
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
