// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which running services map the files that were scanned.
//!
//! A mapping is of a file if device and inode agree. Some file systems (overlayfs, btrfs) show one
//! device in a process's mappings and another to stat(2), so there the path and the inode must
//! agree. A file that was replaced since a process mapped it is not what runs, and does not count.
//!
//! Limits: without root only the user's own processes can be looked at.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use hw::memory::Origin;
use report::scan::{File, Scan, User};

use crate::running::{each_process, service_of};

/// Indexes of files, by what a mapping says of its file.
#[derive(Default)]
struct Index {
    by_identity: HashMap<(u64, u64), usize>,
    /// With the inode, if it is known.
    by_path: HashMap<PathBuf, (usize, Option<u64>)>,
}

impl Index {
    fn of(files: &[File]) -> Self {
        let mut index = Index::default();
        for (at, file) in files.iter().enumerate() {
            let path = PathBuf::from(&file.path);
            let path = fs::canonicalize(&path).unwrap_or(path);
            let metadata = fs::metadata(&path).ok();
            if let Some(metadata) = &metadata {
                index.by_identity.entry((metadata.dev(), metadata.ino())).or_insert(at);
            }
            let inode = metadata.map(|metadata| metadata.ino());
            index.by_path.entry(path).or_insert((at, inode));
        }
        index
    }

    fn find(&self, origin: &Origin) -> Option<usize> {
        let Origin::File { path, identity } = origin else { return None };
        let (device, inode) = identity_of(identity)?;
        if let Some(&at) = self.by_identity.get(&(device, inode)) {
            return Some(at);
        }
        let &(at, known) = self.by_path.get(path)?;
        known.is_none_or(|known| known == inode).then_some(at)
    }
}

/// `MAJOR:MINOR INODE`, the device in hexadecimal.
fn identity_of(text: &str) -> Option<(u64, u64)> {
    let (device, inode) = text.split_once(' ')?;
    let (major, minor) = device.split_once(':')?;
    let number = |text| u32::from_str_radix(text, 16).ok();
    Some((libc::makedev(number(major)?, number(minor)?), inode.trim().parse().ok()?))
}

/// Adds to each file the services that map it, most processes first; nothing where /proc shows no
/// process.
pub(super) fn add(scan: &mut Scan) {
    let index = Index::of(&scan.files);
    let mut users: Vec<BTreeMap<String, u32>> = vec![BTreeMap::new(); scan.files.len()];
    let seen = each_process(|pid, mappings| {
        let found: BTreeSet<usize> =
            mappings.iter().filter_map(|mapping| index.find(&mapping.origin)).collect();
        if found.is_empty() {
            return;
        }
        let service = service_of(pid);
        for at in found {
            *users[at].entry(service.clone()).or_default() += 1;
        }
    });
    let Ok(seen) = seen else { return };
    for (file, users) in scan.files.iter_mut().zip(users) {
        let mut users: Vec<User> =
            users.into_iter().map(|(name, processes)| User { name, processes }).collect();
        users.sort_by_key(|user| std::cmp::Reverse(user.processes));
        file.mapped_by = Some(users);
    }
    scan.processes = Some(seen);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn origin(path: &str, identity: String) -> Origin {
        Origin::File { path: path.into(), identity }
    }

    /// A file is found by device and inode whatever its name, by its name only with its inode.
    #[test]
    fn mappings_find_their_files() {
        let folder = tempfile::tempdir().unwrap();
        let path = fs::canonicalize(folder.path()).unwrap().join("lib.so");
        fs::write(&path, "x").unwrap();
        let (metadata, path) = (fs::metadata(&path).unwrap(), path.display().to_string());
        let (device, inode) = (metadata.dev(), metadata.ino());
        let known = format!("{:02x}:{:02x}", libc::major(device), libc::minor(device));
        let index = Index::of(&[File::new("gone", "", 0), File::new(&path, "", 0)]);
        let find = |path: &str, identity| index.find(&origin(path, identity));
        assert_eq!(find("/other/name", format!("{known} {inode}")), Some(1));
        assert_eq!(find(&path, format!("ff:ff {inode}")), Some(1), "another device");
        assert_eq!(find(&path, format!("ff:ff {}", inode + 1)), None, "a file that was replaced");
        assert_eq!(find("/other/name", format!("ff:ff {inode}")), None);
        assert_eq!(find("gone", "ff:ff 1".into()), Some(0), "not visible from here");
        assert_eq!(index.find(&Origin::Written), None);
    }
}
