// SPDX-License-Identifier: MIT OR Apache-2.0
//! The files of one boot, and the guest's streams in them.
//!
//! QEMU gives every stream a file. Bochs has no such device: there the text
//! streams are regions of a disk that the guest writes to, a stream's next
//! sector as soon as something is there, padded with NULs. Host and guest see
//! the same file, so output is there while the guest runs.
//!
//! ```text
//!   disk "text"   | stdout ........ | stderr ........ | dmesg ......... |
//!                 0                 R                 2R                3R
//!   disk "out"    | a tar ......
//! ```
//!
//! Limit: a stream on a disk loses NULs that happen to end what one read gave,
//! and what is beyond 252 MiB.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::emulator::Emulator;

const SECTOR_BYTES: usize = 512;

/// Sectors of a region: 512 cylinders of the disk that Bochs shows.
/// `guest/init` has the same number.
pub(crate) const REGION_SECTORS: u64 = 512 * 16 * 63;

/// The folder of one boot.
pub(crate) struct Files<'a> {
    pub(crate) dir: &'a Path,
    pub(crate) emulator: Emulator,
}

impl Files<'_> {
    /// Lines about the run itself, by the guest's init.
    pub(crate) fn control(&self) -> PathBuf {
        self.dir.join("ctl")
    }

    /// The kernel's console.
    pub(crate) fn console(&self) -> PathBuf {
        self.dir.join("console")
    }

    pub(crate) fn initramfs(&self) -> PathBuf {
        self.dir.join("initramfs")
    }

    /// Bochs only: the disk that it boots from.
    pub(crate) fn floppy(&self) -> PathBuf {
        self.dir.join("floppy")
    }

    /// Bochs only: the kernel as it lies in memory.
    pub(crate) fn kernel(&self) -> PathBuf {
        self.dir.join("kernel")
    }

    /// Bochs only: what the kernel must know of its machine.
    pub(crate) fn info(&self) -> PathBuf {
        self.dir.join("info")
    }

    /// What the emulator itself had to say.
    pub(crate) fn complaints(&self) -> PathBuf {
        self.dir.join("emulator")
    }

    /// What a dim-silicon machine did.
    pub(crate) fn silicon_log(&self) -> PathBuf {
        self.dir.join("silicon")
    }

    /// The tar of what the command left.
    pub(crate) fn out(&self) -> PathBuf {
        self.dir.join("out")
    }

    pub(crate) fn stdout(&self) -> Stream {
        self.stream("stdout", 0)
    }

    pub(crate) fn stderr(&self) -> Stream {
        self.stream("stderr", 1)
    }

    pub(crate) fn dmesg(&self) -> Stream {
        self.stream("dmesg", 2)
    }

    fn stream(&self, name: &str, region: u64) -> Stream {
        match self.emulator {
            Emulator::Qemu => {
                Stream { path: self.dir.join(name), at: 0, padded: false, file: None }
            }
            Emulator::Bochs => Stream {
                path: self.text_disk(),
                at: region * REGION_SECTORS * SECTOR_BYTES as u64,
                padded: true,
                file: None,
            },
        }
    }

    /// Bochs only: the disk with the text streams.
    pub(crate) fn text_disk(&self) -> PathBuf {
        self.dir.join("text")
    }
}

/// Something that the guest appends to while we read.
pub(crate) struct Stream {
    path: PathBuf,
    at: u64,
    padded: bool,
    file: Option<File>,
}

impl Stream {
    /// What has come since the last call.
    pub(crate) fn read_new(&mut self) -> Result<Vec<u8>> {
        if self.file.is_none() {
            self.file = File::open(&self.path).ok();
        }
        let Some(file) = &mut self.file else {
            return Ok(Vec::new());
        };
        file.seek(SeekFrom::Start(self.at)).context("cannot read the guest's output")?;
        let mut text = Vec::new();
        self.at += if self.padded {
            read_sectors(file, &mut text)?
        } else {
            file.read_to_end(&mut text).context("cannot read the guest's output")? as u64
        };
        Ok(text)
    }

    /// All that has come, as text.
    pub(crate) fn text(mut self) -> Result<String> {
        Ok(String::from_utf8_lossy(&self.read_new()?).into_owned())
    }
}

/// Reads up to the first empty sector; returns how far that was, in bytes.
fn read_sectors(file: &mut impl Read, text: &mut Vec<u8>) -> Result<u64> {
    let mut sector = [0; SECTOR_BYTES];
    let mut bytes = 0;
    loop {
        if file.read_exact(&mut sector).is_err() {
            return Ok(bytes); // the end of the disk
        }
        let Some(last) = sector.iter().rposition(|&byte| byte != 0) else {
            return Ok(bytes);
        };
        text.extend_from_slice(&sector[..=last]);
        bytes += SECTOR_BYTES as u64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sectors(texts: &[&str]) -> Vec<u8> {
        let mut disk = Vec::new();
        for text in texts {
            disk.extend_from_slice(text.as_bytes());
            disk.resize(disk.len().next_multiple_of(SECTOR_BYTES).max(SECTOR_BYTES), 0);
        }
        disk.resize(disk.len() + SECTOR_BYTES, 0);
        disk
    }

    /// Padding between two writes is no output; what comes later is found.
    #[test]
    fn a_stream_on_a_disk_is_read_as_it_grows() {
        let dir = tempfile::tempdir().unwrap();
        let files = Files { dir: dir.path(), emulator: Emulator::Bochs };
        let full = "x".repeat(SECTOR_BYTES);
        std::fs::write(files.text_disk(), sectors(&["one ", &full])).unwrap();
        let mut stream = files.stdout();
        assert_eq!(stream.read_new().unwrap(), format!("one {full}").as_bytes());
        assert_eq!(stream.read_new().unwrap(), b"");
        std::fs::write(files.text_disk(), sectors(&["one ", &full, "three"])).unwrap();
        assert_eq!(stream.read_new().unwrap(), b"three");
        assert_eq!(files.stderr().text().unwrap(), "", "another region");
    }

    #[test]
    fn a_stream_in_a_file_may_begin_late() {
        let dir = tempfile::tempdir().unwrap();
        let files = Files { dir: dir.path(), emulator: Emulator::Qemu };
        let mut stream = files.stderr();
        assert_eq!(stream.read_new().unwrap(), b"");
        std::fs::write(dir.path().join("stderr"), "a\0").unwrap();
        assert_eq!(stream.read_new().unwrap(), b"a\0");
        assert_eq!(stream.read_new().unwrap(), b"");
    }
}
