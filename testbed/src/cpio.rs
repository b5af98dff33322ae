// SPDX-License-Identifier: MIT OR Apache-2.0
//! A writer for the `newc` archive format, which the kernel unpacks as the
//! initial root file system. See Documentation/driver-api/early-userspace/
//! buffer-format.rst in the Linux tree.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

const DIRECTORY: u32 = 0o040_000;
const REGULAR: u32 = 0o100_000;
const SYMLINK: u32 = 0o120_000;

/// An archive being written. Everything in it belongs to root.
pub(crate) struct Archive<W: Write> {
    out: W,
    written: u64,
    next_inode: u32,
    folders: BTreeSet<PathBuf>,
}

impl<W: Write> Archive<W> {
    pub(crate) fn new(out: W) -> Self {
        Self { out, written: 0, next_inode: 1, folders: BTreeSet::new() }
    }

    /// Adds a folder and those above it, each once.
    pub(crate) fn folder(&mut self, path: &Path) -> Result<()> {
        let path = relative(path);
        if path.as_os_str().is_empty() || self.folders.contains(path) {
            return Ok(());
        }
        if let Some(parent) = path.parent() {
            self.folder(parent)?;
        }
        self.folders.insert(path.to_owned());
        self.entry(path, DIRECTORY | 0o755, 0, &mut io::empty())
    }

    /// Adds a file with the given contents.
    pub(crate) fn bytes(&mut self, path: &Path, mode: u32, data: &[u8]) -> Result<()> {
        self.parent_of(path)?;
        let length = data.len() as u64;
        self.entry(relative(path), REGULAR | mode, length, &mut &*data)
    }

    /// Adds a symbolic link.
    pub(crate) fn link(&mut self, path: &Path, target: &Path) -> Result<()> {
        self.parent_of(path)?;
        let data = target.as_os_str().as_encoded_bytes();
        let length = data.len() as u64;
        self.entry(relative(path), SYMLINK | 0o777, length, &mut &*data)
    }

    /// Adds a file of this machine, or a folder with all that is in it. A
    /// symbolic link is followed if it is `host` itself, kept if it is inside.
    pub(crate) fn tree(&mut self, host: &Path, path: &Path) -> Result<()> {
        let meta = fs::metadata(host)
            .with_context(|| format!("cannot read {} for the guest", host.display()))?;
        if !meta.is_dir() {
            return self.file(host, path);
        }
        self.folder(path)?;
        let mut entries = fs::read_dir(host)
            .and_then(Iterator::collect::<io::Result<Vec<_>>>)
            .with_context(|| format!("cannot list {}", host.display()))?;
        entries.sort_by_key(fs::DirEntry::file_name);
        for entry in entries {
            let (from, to) = (entry.path(), path.join(entry.file_name()));
            if from.is_symlink() {
                let target = fs::read_link(&from)
                    .with_context(|| format!("cannot read {}", from.display()))?;
                self.link(&to, &target)?;
            } else {
                self.tree(&from, &to)?;
            }
        }
        Ok(())
    }

    fn file(&mut self, host: &Path, path: &Path) -> Result<()> {
        self.parent_of(path)?;
        let read = || -> io::Result<(File, fs::Metadata)> {
            let file = File::open(host)?;
            let meta = file.metadata()?;
            Ok((file, meta))
        };
        let (mut file, meta) = read().with_context(|| format!("cannot read {}", host.display()))?;
        let mode = REGULAR | (meta.permissions().mode() & 0o7777);
        self.entry(relative(path), mode, meta.len(), &mut file)
    }

    /// Writes the end mark, after which the kernel accepts another archive.
    pub(crate) fn finish(mut self) -> Result<W> {
        self.entry(Path::new("TRAILER!!!"), 0, 0, &mut io::empty())?;
        self.out.flush().context("cannot write the archive")?;
        Ok(self.out)
    }

    fn parent_of(&mut self, path: &Path) -> Result<()> {
        match relative(path).parent() {
            Some(parent) => self.folder(parent),
            None => Ok(()),
        }
    }

    fn entry(
        &mut self,
        path: &Path,
        mode: u32,
        length: u64,
        data: &mut dyn io::Read,
    ) -> Result<()> {
        let size = u32::try_from(length)
            .ok()
            .with_context(|| format!("{} exceeds the archive's 4 GiB", path.display()))?;
        let name = path.as_os_str().as_encoded_bytes();
        let inode = self.next_inode;
        self.next_inode += 1;
        let links = 1;
        // magic, ino, mode, uid, gid, nlink, mtime, filesize, device major and
        // minor, rdev major and minor, name size, checksum.
        let fields = [inode, mode, 0, 0, links, 0, size, 0, 0, 0, 0, name.len() as u32 + 1, 0];
        let mut header = String::from("070701");
        for field in fields {
            header.push_str(&format!("{field:08x}"));
        }
        let mut write = || -> io::Result<u64> {
            self.out.write_all(header.as_bytes())?;
            self.out.write_all(name)?;
            self.out.write_all(&[0])?;
            self.written += (header.len() + name.len() + 1) as u64;
            pad(&mut self.out, &mut self.written)?;
            let copied = io::copy(data, &mut self.out)?;
            self.written += copied;
            pad(&mut self.out, &mut self.written)?;
            Ok(copied)
        };
        let copied = write().with_context(|| format!("cannot archive {}", path.display()))?;
        anyhow::ensure!(
            copied == length,
            "{} changed while it was archived; was it being built?",
            path.display()
        );
        Ok(())
    }
}

/// Names and data start at multiples of four bytes.
fn pad(out: &mut impl Write, written: &mut u64) -> io::Result<()> {
    while !written.is_multiple_of(4) {
        out.write_all(&[0])?;
        *written += 1;
    }
    Ok(())
}

/// Names in the archive have no leading slash.
fn relative(path: &Path) -> &Path {
    path.strip_prefix("/").unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    /// The archive says what busybox's reader understands from it.
    #[test]
    fn an_independent_reader_agrees() {
        let dir = tempfile::tempdir().unwrap();
        let host = dir.path().join("tree");
        fs::create_dir_all(host.join("sub")).unwrap();
        fs::write(host.join("sub/five"), "12345").unwrap();
        std::os::unix::fs::symlink("sub/five", host.join("link")).unwrap();

        let mut archive = Archive::new(Vec::new());
        archive.bytes(Path::new("/init"), 0o755, b"hello").unwrap();
        archive.tree(&host, Path::new("/payload/x")).unwrap();
        let bytes = archive.finish().unwrap();
        assert!(bytes.len().is_multiple_of(4));

        let out = dir.path().join("out");
        fs::create_dir(&out).unwrap();
        let mut cpio = Command::new("busybox")
            .args(["cpio", "-i", "-d"])
            .current_dir(&out)
            .stdin(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        cpio.stdin.take().unwrap().write_all(&bytes).unwrap();
        assert!(cpio.wait().unwrap().success());
        assert_eq!(fs::read(out.join("init")).unwrap(), b"hello");
        assert_eq!(fs::read(out.join("payload/x/link")).unwrap(), b"12345");
        let mode = fs::metadata(out.join("init")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o755);
    }

    #[test]
    fn each_folder_is_written_once() {
        let mut archive = Archive::new(Vec::new());
        archive.bytes(Path::new("/a/b/c"), 0o644, b"").unwrap();
        archive.bytes(Path::new("/a/b/d"), 0o644, b"").unwrap();
        let text = String::from_utf8(archive.finish().unwrap()).unwrap();
        assert_eq!(text.matches("a/b\0").count(), 1);
    }
}
