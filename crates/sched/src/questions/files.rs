// SPDX-License-Identifier: MIT OR Apache-2.0
//! Files that processes have mapped as code: opened as what is mapped, and looked through once.
//!
//! **Problem.** A path in /proc/PID/maps is a name that the process's user chose, and may name
//! another file a moment later. A probe at a place that was found in one file would destroy the
//! other. And a file is the user's too: it may be endless, sparse, or on a file system that never
//! answers.
//!
//! **Idea.** /proc/PID/map_files has a link for each mapping that leads to the mapped file itself,
//! whatever has become of its name. It is opened once; what is scanned and what gets the probes is
//! that descriptor. Opened without any effect first (`O_PATH`): only a regular file is opened for
//! reading.
//!
//! The module is notified before the first byte is read and after the last site is placed
//! ([`hw::trap::Device::read_step`]). It notices when the file could have been changed in between,
//! or later.
//!
//! A file stays *unread*, so that the processes that map it are withheld nothing, if it
//! - is larger than [`BYTES_MAX`], or mostly holes;
//! - is on a file system that may not answer, or whose files change without being opened here
//!   ([`may_block`]);
//! - belongs to a user who has [`FILES_PER_OWNER_MAX`] already (root may have any number);
//! - has a save or restore of registers in a place that cannot be shown to be an instruction or
//!   not;
//! - takes more work than [`scan::Limits::strict`] allows, or needs more than [`super::SITES_MAX`]
//!   probes.

use std::collections::HashMap;
use std::fs::{self, File, Metadata};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::atomic::AtomicBool;

use hw::trap::{Device, ReadStep};
use scan::Limits;

use super::maps::{Id, Mapping};
use super::mounts::{LOCAL, OVERLAY, mount};
use super::{Found, Kind, Saves, find_in};

/// The largest libraries in use have some 200 MB of code and data.
pub(super) const BYTES_MAX: u64 = 1 << 28;
/// Far more than a user has programs.
const FILES_PER_OWNER_MAX: usize = 1000;
/// Far more than machines have programs; the module has a limit of its own.
const FILES_MAX: usize = 100_000;
/// `st_blocks` counts these.
const BLOCK_BYTES: u64 = 512;
/// XCR0's bit of AVX.
const AVX: u64 = 1 << 2;

/// What a look at a file has brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Known {
    /// The module counts it as read.
    pub(super) read: bool,
}

/// What a look at the processes has brought.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Added {
    /// Files that were looked through for the first time.
    pub files: usize,
    /// Probes placed before `xgetbv`.
    pub xgetbv_sites: usize,
    /// Probes placed on `xsave` and `xrstor`.
    pub xsave_sites: usize,
    /// Places that had to be left alone; see [`super::Found::unverified`].
    pub unverified: usize,
    /// Files that could not be looked through, and probes that the kernel refused.
    pub failed: usize,
    /// Of these, probes on `xsave` and `xrstor`.
    pub failed_saves: usize,
    /// Files that hold something that was not understood: who maps them is withheld nothing.
    pub unread: usize,
}

impl Added {
    pub(super) fn add(&mut self, other: Self) {
        self.files += other.files;
        self.xgetbv_sites += other.xgetbv_sites;
        self.xsave_sites += other.xsave_sites;
        self.unverified += other.unverified;
        self.failed += other.failed;
        self.failed_saves += other.failed_saves;
        self.unread += other.unread;
    }
}

/// The files that were looked through.
#[derive(Default)]
pub(super) struct Files {
    known: HashMap<Id, Known>,
    per_owner: HashMap<u32, usize>,
    /// The module's count of files that became unread.
    unread: u64,
}

impl Files {
    /// Forgets what may be out of date; true if something was.
    pub(super) fn follow(&mut self, device: &Device) -> bool {
        let unread = device.info().map_or(self.unread, |info| info.files_unread);
        let outdated = unread != self.unread || self.known.len() >= FILES_MAX;
        if outdated {
            self.known.clear();
            self.per_owner.clear();
            self.unread = unread;
        }
        outdated
    }

    /// What is known of a mapped file.
    pub(super) fn get(&self, mapping: &Mapping) -> Option<Known> {
        self.known.get(&mapping.id).copied()
    }

    #[cfg(test)]
    pub(super) fn set(&mut self, mapping: &Mapping, known: Known) {
        self.known.insert(mapping.id.clone(), known);
    }

    /// Looks at a mapped file, unless it is known.
    pub(super) fn look_at(
        &mut self,
        process: &Path,
        mapping: &Mapping,
        device: &Device,
        stop: &AtomicBool,
    ) -> Added {
        if self.known.contains_key(&mapping.id) {
            return Added::default();
        }
        if may_block(process, &mapping.id.0) {
            self.known.insert(mapping.id.clone(), Known { read: false });
            return Added { files: 1, failed: 1, ..Added::default() };
        }
        // Gone since: it is no longer mapped there, and is met again if it is mapped elsewhere.
        let Ok(file) = mapping.open(process) else { return Added::default() };
        self.look_through(&file, mapping.id.clone(), device, stop).unwrap_or(Added {
            files: 1,
            failed: 1,
            ..Added::default()
        })
    }

    /// Looks at a file that is open already.
    pub(super) fn look_through(
        &mut self,
        file: &File,
        id: Id,
        device: &Device,
        stop: &AtomicBool,
    ) -> io::Result<Added> {
        let meta = file.metadata()?;
        let begun = match device.read_step(file, ReadStep::Begin) {
            Err(error) if error.raw_os_error() == Some(libc::EALREADY) => {
                self.known.insert(id, Known { read: true });
                return Ok(Added::default());
            }
            // It is looked at again later, and is not known until then.
            Err(error) if error.raw_os_error() == Some(libc::ETXTBSY) => {
                return Ok(Added::default());
            }
            other => other.is_ok(),
        };
        self.known.insert(id.clone(), Known { read: false });
        let Some(bytes) = self.take(file, &meta) else {
            return Err(io::ErrorKind::FileTooLarge.into());
        };
        let saves = match device.info() {
            Ok(info) if info.xcr0_withheld & AVX == 0 => Saves::ExceptResolvers,
            _ => Saves::All,
        };
        let found = find_in(&bytes, saves, &Limits::strict(stop)).map_err(io::Error::other)?;
        let mut added = place(&found, file, device);
        let whole = begun && found.unread == 0 && added.failed_saves == 0;
        if whole && device.read_step(file, ReadStep::End).is_ok() {
            self.known.insert(id, Known { read: true });
        } else {
            added.unread += 1;
        }
        Ok(added)
    }

    /// The file's bytes, if they are few enough and it has them.
    fn take(&mut self, file: &File, meta: &Metadata) -> Option<Vec<u8>> {
        let owned = self.per_owner.entry(meta.uid()).or_default();
        *owned += 1;
        if meta.uid() != 0 && *owned > FILES_PER_OWNER_MAX {
            return None;
        }
        read_bounded(file, meta)
    }
}

/// All bytes of a file, if they are few enough and it has them.
pub(super) fn read_bounded(file: &File, meta: &Metadata) -> Option<Vec<u8>> {
    // A small file may lie in its inode, and a compressed one takes less than it has.
    let mostly_holes = meta.len() > 1 << 20 && meta.blocks() * BLOCK_BYTES < meta.len() / 8;
    if meta.len() > BYTES_MAX || mostly_holes {
        return None;
    }
    let mut bytes = Vec::with_capacity(usize::try_from(meta.len()).ok()?);
    file.take(BYTES_MAX + 1).read_to_end(&mut bytes).ok()?;
    (bytes.len() as u64 <= BYTES_MAX).then_some(bytes)
}

/// Whether a file of this device may keep its reader waiting for someone else, as far as the
/// process's mounts say: one that is mounted nowhere may.
fn may_block(process: &Path, device: &str) -> bool {
    let mounts = fs::read_to_string(process.join("mountinfo")).unwrap_or_default();
    !mounts.lines().any(|line| is_local(line, device))
}

/// Whether a line of mountinfo is of this device (`major:minor`, hexadecimal in maps and decimal
/// here), and of a kind whose files the kernel alone changes.
fn is_local(line: &str, device: &str) -> bool {
    let numbers = |text: &str, radix: u32| -> Option<(u32, u32)> {
        let (major, minor) = text.split_once(':')?;
        Some((u32::from_str_radix(major, radix).ok()?, u32::from_str_radix(minor, radix).ok()?))
    };
    let Some((_, here, kind)) = mount(line) else { return false };
    let here = numbers(here, 10);
    here.is_some() && here == numbers(device, 16) && (LOCAL.contains(&kind) || kind == OVERLAY)
}

fn place(found: &Found, file: &File, device: &Device) -> Added {
    let mut added = Added { files: 1, unverified: found.unverified, ..Added::default() };
    for site in &found.sites {
        match (device.add_site(file, site.offset), site.kind) {
            (Ok(()), Kind::Xgetbv) => added.xgetbv_sites += 1,
            (Ok(()), Kind::Xsave | Kind::Xrstor) => added.xsave_sites += 1,
            (Err(_), Kind::Xgetbv) => added.failed += 1,
            (Err(_), Kind::Xsave | Kind::Xrstor) => {
                added.failed += 1;
                added.failed_saves += 1;
            }
        }
    }
    added
}

#[cfg(test)]
mod tests {
    use super::super::maps::open_regular;
    use super::*;

    /// Kinds whose files others may change or withhold are not read; nor is what is mounted
    /// nowhere.
    #[test]
    fn only_local_file_systems() {
        let line = |device: &str, kind: &str| {
            format!("36 35 {device} / /mnt rw,noatime shared:1 - {kind} /dev/root rw")
        };
        assert!(is_local(&line("254:16", "ext4"), "fe:10"));
        assert!(!is_local(&line("254:17", "ext4"), "fe:10"));
        assert!(!is_local(&line("254:16", "fuse.sshfs"), "fe:10"));
        assert!(!is_local(&line("254:16", "nfs4"), "fe:10"));
        assert!(!is_local("36 35", "fe:10"));
        assert!(!is_local("", ""));
    }

    /// A file of holes, or one that is too large, costs no memory.
    #[test]
    fn large_and_empty_files_fail() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("sparse");
        let file = File::create_new(&path).unwrap();
        for bytes in [BYTES_MAX / 2, BYTES_MAX + 1, 1 << 40] {
            file.set_len(bytes).unwrap();
            let opened = open_regular(&path).unwrap();
            assert_eq!(read_bounded(&opened, &opened.metadata().unwrap()), None, "{bytes}");
        }
        fs::write(&path, "few").unwrap();
        let opened = open_regular(&path).unwrap();
        assert_eq!(read_bounded(&opened, &opened.metadata().unwrap()).unwrap(), b"few");
    }

    /// A pipe or a device is not even opened: this would wait for a writer.
    #[test]
    fn what_is_no_file_fails() {
        let dir = tempfile::tempdir().unwrap();
        let pipe = dir.path().join("pipe");
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        assert!(open_regular(&pipe).is_err());
        assert!(open_regular(Path::new("/dev/null")).is_err());
        assert!(open_regular(dir.path()).is_err());
    }
}
