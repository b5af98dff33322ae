// SPDX-License-Identifier: MIT OR Apache-2.0
//! The files of the service, and which of them `turbolane enable` wrote.
//!
//! **Problem.** `disable` has to remove what `enable` made, and nothing that a person or a package
//! wrote: a settings file that was edited since is a person's work.
//!
//! **Idea.** A file that `enable` writes begins with a line that has a checksum of the rest. While
//! the checksum holds, the file is exactly what `enable` wrote. There is no other record that could
//! be lost or disagree.
//!
//! Files are replaced by renaming a complete new one, and [`Written`] remembers what was there
//! before, so that a service that does not start leaves no trace.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use report::problem::Problem;

use crate::failure::Failure;
use crate::replacement::replacement;

/// First words of a file that `enable` wrote; the checksum follows.
const STAMP: &str =
    "# Written by turbolane enable; turbolane disable removes it unless it is edited. Checksum ";

/// Where the service's files are.
pub(super) struct Places {
    root: PathBuf,
}

impl Places {
    /// Below this root: `/`, except in tests.
    pub(super) fn below(root: &Path) -> Self {
        Places { root: root.to_owned() }
    }

    /// The settings.
    pub(super) fn settings(&self) -> PathBuf {
        self.root.join("etc/turbolane.toml")
    }

    /// The unit that `enable` writes if no package has installed one.
    pub(super) fn unit(&self) -> PathBuf {
        self.root.join("etc/systemd/system/turbolane.service")
    }

    /// What is added to the unit, whoever wrote it.
    pub(super) fn drop_in(&self) -> PathBuf {
        self.root.join("etc/systemd/system/turbolane.service.d/metrics.conf")
    }

    /// The unit of a package.
    pub(super) fn packaged_unit(&self) -> Option<PathBuf> {
        ["usr/lib", "lib"]
            .into_iter()
            .map(|lib| self.root.join(lib).join("systemd/system/turbolane.service"))
            .find(|path| path.exists())
    }

    /// Whether systemd runs this machine (sd_booted(3)).
    pub(super) fn has_systemd(&self) -> bool {
        self.root.join("run/systemd/system").is_dir()
    }
}

/// What a file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    /// There is none.
    Absent,
    /// As `enable` wrote it.
    Enable,
    /// A person or a program wrote or edited it.
    Other,
}

/// Who wrote the file at `path`.
pub(super) fn origin(path: &Path) -> Result<Origin, Failure> {
    match fs::read(path) {
        Ok(bytes) => Ok(if is_unedited(&bytes) { Origin::Enable } else { Origin::Other }),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(Origin::Absent),
        Err(error) => Err(unchangeable(path, &error)),
    }
}

/// `body` with the line that says that `enable` wrote it.
fn stamped(body: &str) -> String {
    format!("{STAMP}{:016x}.\n{body}", checksum(body.as_bytes()))
}

fn is_unedited(bytes: &[u8]) -> bool {
    let Some(text) = std::str::from_utf8(bytes).ok() else { return false };
    let Some((first, body)) = text.split_once('\n') else { return false };
    stamped(body).split_once('\n').is_some_and(|(expected, _)| expected == first)
}

/// FNV-1a of 64 bits: it finds edits, and is not meant to resist forgery.
fn checksum(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |sum, &byte| {
        (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// Files that were written and can still be taken back.
#[derive(Default)]
pub(super) struct Written {
    files: Vec<(PathBuf, Option<Vec<u8>>)>,
    folder: Option<PathBuf>,
}

impl Written {
    /// Writes a stamped file into a folder that is made if it is not there.
    pub(super) fn write_in_own_folder(&mut self, path: &Path, body: &str) -> Result<(), Failure> {
        let folder = path.parent().unwrap_or(Path::new("/"));
        match fs::create_dir(folder) {
            Ok(()) => self.folder = Some(folder.to_owned()),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            Err(error) => return Err(unchangeable(folder, &error)),
        }
        self.write(path, body)
    }

    /// Writes a stamped file.
    pub(super) fn write(&mut self, path: &Path, body: &str) -> Result<(), Failure> {
        let before = match fs::read(path) {
            Ok(bytes) => Some(bytes),
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            Err(error) => return Err(unchangeable(path, &error)),
        };
        replace(path, stamped(body).as_bytes()).map_err(|error| unchangeable(path, &error))?;
        self.files.push((path.to_owned(), before));
        Ok(())
    }

    /// The files.
    pub(super) fn paths(&self) -> impl Iterator<Item = &Path> {
        self.files.iter().map(|(path, _)| path.as_path())
    }

    /// Makes every file what it was. Errors are ignored: the failure that led here matters more.
    pub(super) fn take_back(self) {
        for (path, before) in self.files.into_iter().rev() {
            _ = match before {
                Some(bytes) => replace(&path, &bytes),
                None => fs::remove_file(&path),
            };
        }
        if let Some(folder) = self.folder {
            _ = fs::remove_dir(folder);
        }
    }
}

fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let new = replacement(path, bytes)?;
    new.as_file().sync_all()?;
    new.persist(path)?;
    Ok(())
}

/// A file of the service cannot be read, written or removed.
pub(super) fn unchangeable(path: &Path, error: &io::Error) -> Failure {
    let what = format!("cannot change {}", path.display());
    match error.kind() {
        ErrorKind::ReadOnlyFilesystem => Failure::unsupported(Problem::new(
            what,
            "the file system is read-only",
            "put the file into the image of this machine, or start turbolane run --config FILE yourself",
        )),
        ErrorKind::PermissionDenied => {
            Failure::unsupported(Problem::new(what, "only root may change it", "run it with sudo"))
        }
        _ => Failure::failed(Problem::new(
            what,
            error.to_string(),
            "check the folder, and try again",
        )),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    /// A file is ours until one character of it changes, wherever that is.
    #[test]
    fn edits_are_found() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        assert_eq!(origin(&path).unwrap(), Origin::Absent);
        Written::default().write(&path, "slice = \"5ms\"\n").unwrap();
        assert_eq!(origin(&path).unwrap(), Origin::Enable);
        let text = fs::read_to_string(&path).unwrap();
        for at in 0..text.len() {
            let mut edited = text.clone().into_bytes();
            edited[at] ^= 1;
            assert!(!is_unedited(&edited), "byte {at}");
        }
        fs::write(&path, text + "\n").unwrap();
        assert_eq!(origin(&path).unwrap(), Origin::Other);
        for other in ["", "tiers = true\n", STAMP] {
            fs::write(&path, other).unwrap();
            assert_eq!(origin(&path).unwrap(), Origin::Other);
        }
    }

    /// Taking back restores a file that was there, and removes one that was not.
    #[test]
    fn what_was_written_can_be_taken_back() {
        let dir = tempfile::tempdir().unwrap();
        let (old, new) = (dir.path().join("old"), dir.path().join("new"));
        fs::write(&old, "before").unwrap();
        let mut written = Written::default();
        written.write(&old, "after").unwrap();
        written.write(&old, "later").unwrap();
        written.write(&new, "after").unwrap();
        let below = dir.path().join("d/below");
        written.write_in_own_folder(&below, "after").unwrap();
        assert!(below.exists());
        assert_eq!(fs::metadata(&new).unwrap().permissions().mode() & 0o777, 0o644);
        written.take_back();
        assert_eq!(fs::read_to_string(&old).unwrap(), "before");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    /// A folder that is missing is a failure with a reason, and leaves nothing.
    #[test]
    fn missing_folders_fail() {
        let dir = tempfile::tempdir().unwrap();
        let mut written = Written::default();
        let failure = written.write(&dir.path().join("no/file"), "x").unwrap_err();
        assert!(failure.why().contains("No such file"), "{}", failure.why());
        assert_eq!(written.paths().count(), 0);
    }
}
