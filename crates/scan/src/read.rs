// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads a file that others may change meanwhile, and that may be mostly holes.
//!
//! **Problem.** If a mapped file is truncated, SIGBUS ends the process. If files are read
//! completely, a sparse file of gigabytes, which costs its maker nothing, fills memory.
//!
//! **Idea.** The bytes are copied, piece by piece, into an anonymous mapping of the file's length.
//! A page of zeros is not copied: a page of the mapping that was never written takes no memory, and
//! reads as zeros. So memory is limited by the bytes that the file really has
//! ([`Limits::data_bytes`]), and offsets stay what they are.
//!
//! **Limits.** A file system in user space may answer a read late or never; no flag ends that.

use std::fs::File;
use std::ops::Deref;
use std::os::unix::fs::FileExt;

use memmap2::MmapMut;

use crate::{Limits, ScanError};

/// A page, bytes: what takes no memory while it is zero.
const PAGE: usize = 4096;
/// Bytes that are read at a time: the flag is looked at in between.
const PIECE: usize = 256 << 10;

/// A copy of a file.
#[derive(Debug)]
pub struct Bytes(Option<MmapMut>);

impl Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.0.as_deref().unwrap_or_default()
    }
}

/// Copies a file to memory, within the limits.
///
/// # Errors
/// When it is too long, has too much data, cannot be read, or the scan is to stop.
pub fn read_file(file: &File, limits: &Limits<'_>) -> Result<Bytes, ScanError> {
    let unreadable = |error: std::io::Error| ScanError::Unreadable(error.to_string());
    let length = file.metadata().map_err(unreadable)?.len();
    Limits::check("the file", length, limits.file_bytes)?;
    if length == 0 {
        return Ok(Bytes(None));
    }
    let mut bytes = MmapMut::map_anon(length as usize).map_err(unreadable)?;
    let mut piece = vec![0; PIECE];
    let (mut at, mut data_bytes) = (0, 0);
    while (at as u64) < length {
        limits.check_stop()?;
        let wanted = PIECE.min(length as usize - at);
        let got = file.read_at(&mut piece[..wanted], at as u64).map_err(unreadable)?;
        if got == 0 {
            break; // it was truncated: what is missing reads as zeros
        }
        for (number, page) in piece[..got].chunks(PAGE).enumerate() {
            if page.iter().any(|byte| *byte != 0) {
                data_bytes += page.len() as u64;
                let to = at + number * PAGE;
                bytes[to..to + page.len()].copy_from_slice(page);
            }
        }
        Limits::check("its data", data_bytes, limits.data_bytes)?;
        at += got;
    }
    Ok(Bytes(Some(bytes)))
}
