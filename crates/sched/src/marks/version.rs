// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which version of a file something is about.

use std::fs::{self, File, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// A version of a file: another file under the same name has another one, and so has a file that
/// was written to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileVersion {
    device: u64,
    inode: u64,
    bytes: u64,
    /// Last change of the contents: seconds, and nanoseconds of the second.
    changed: (i64, i64),
}

impl FileVersion {
    pub(super) fn of(file: &Metadata) -> Self {
        FileVersion {
            device: file.dev(),
            inode: file.ino(),
            bytes: file.len(),
            changed: (file.mtime(), file.mtime_nsec()),
        }
    }

    /// That of the file which has this name now.
    ///
    /// # Errors
    /// When there is none, or it cannot be asked for.
    pub fn now(path: &Path) -> io::Result<Self> {
        fs::metadata(path).map(|file| Self::of(&file))
    }

    /// Opens the file of this name, if it is this version still.
    ///
    /// # Errors
    /// When it cannot be opened, or is another version.
    pub fn open(self, path: &Path) -> io::Result<File> {
        let file = File::open(path)?;
        if Self::of(&file.metadata()?) == self {
            Ok(file)
        } else {
            Err(io::Error::other("the file was replaced after it was read"))
        }
    }

    /// Whether both are of one file, which was written to in between if they differ.
    pub fn is_same_file(self, other: Self) -> bool {
        (self.device, self.inode) == (other.device, other.inode)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file that is replaced or written to is another version, and is not opened as the old one.
    #[test]
    fn versions_differ() {
        let folder = tempfile::tempdir().unwrap();
        let (path, new) = (folder.path().join("f"), folder.path().join("g"));
        fs::write(&path, "one").unwrap();
        let first = FileVersion::now(&path).unwrap();
        assert_eq!(first, FileVersion::now(&path).unwrap());
        first.open(&path).unwrap();
        fs::write(&path, "longer").unwrap();
        let second = FileVersion::now(&path).unwrap();
        assert_ne!(first, second);
        assert!(first.is_same_file(second));
        fs::write(&new, "longer").unwrap();
        fs::rename(&new, &path).unwrap();
        let third = FileVersion::now(&path).unwrap();
        assert!(!third.is_same_file(second));
        second.open(&path).unwrap_err();
        fs::remove_file(&path).unwrap();
        FileVersion::now(&path).unwrap_err();
    }
}
