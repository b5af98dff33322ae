// SPDX-License-Identifier: MIT OR Apache-2.0
//! Zip files, such as Python's wheels: each member that is an ELF file is unpacked and scanned.
//!
//! A member is looked at by its first bytes, so that of thousands of scripts nothing else is
//! unpacked. What one unpacks to is limited by what is read, not by what the file says of it.

use std::io::{Cursor, Read};

use report::scan::{File, Skipped};
use zip::ZipArchive;
use zip::result::ZipError;

use crate::archive::keep;
use crate::{Limits, Options, ScanError, scan_file_within};

const MAGIC: &[u8] = b"PK\x03\x04";
const ELF: &[u8; 4] = b"\x7fELF";
/// A longer member is not scanned: all of it is kept in memory. The largest libraries of PyTorch
/// have half of that.
const MEMBER_MAX_BYTES: u64 = 4 << 30;
/// Of all members together: entries may share what they unpack, so that a small file has any number
/// of large ones.
const ARCHIVE_MAX_BYTES: u64 = 16 << 30;

/// Whether it begins as zip files do.
#[must_use]
pub fn is_zip(bytes: &[u8]) -> bool {
    bytes.starts_with(MAGIC)
}

/// Scans each member within limits; members that are no ELF files for x86 are counted in `skipped`.
///
/// # Errors
/// When the zip file makes no sense, or the scan is stopped.
pub fn scan_zip_within(
    path: &str,
    bytes: &[u8],
    options: &Options,
    limits: &Limits<'_>,
    skipped: &mut Skipped,
) -> Result<Vec<File>, ScanError> {
    let broken = |error: ZipError| ScanError::Broken(error.to_string());
    let mut archive = ZipArchive::new(Cursor::new(bytes)).map_err(broken)?;
    let mut files = Vec::new();
    let mut left = ARCHIVE_MAX_BYTES;
    for number in 0..archive.len() {
        limits.check_stop()?;
        let Ok(mut member) = archive.by_index(number) else {
            skipped.broken += 1;
            continue;
        };
        if !member.is_file() {
            continue;
        }
        let name = format!("{path}({})", String::from_utf8_lossy(member.name_raw()));
        let limit = limits.file_bytes.min(MEMBER_MAX_BYTES).min(left);
        let scanned = unpack(&mut member, limit).and_then(|data| {
            left -= data.len() as u64;
            scan_file_within(&name, &data, options, limits)
        });
        keep(scanned, &mut files, skipped)?;
    }
    Ok(files)
}

/// The bytes of an ELF file.
fn unpack(member: &mut impl Read, limit: u64) -> Result<Vec<u8>, ScanError> {
    let broken = |error: std::io::Error| ScanError::Broken(error.to_string());
    let mut data = Vec::new();
    member.by_ref().take(ELF.len() as u64).read_to_end(&mut data).map_err(broken)?;
    if data != ELF {
        return Err(ScanError::NotElf);
    }
    member.by_ref().take(limit).read_to_end(&mut data).map_err(broken)?;
    Limits::check("a member", data.len() as u64, limit)?;
    Ok(data)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is no ELF file is not unpacked further, and what is too long is not kept.
    #[test]
    fn members_are_limited_fail() {
        let endless = || std::io::repeat(0x7f);
        assert!(matches!(unpack(&mut endless(), 100), Err(ScanError::NotElf)));
        let mut long = ELF.chain(std::io::repeat(0));
        assert!(matches!(unpack(&mut long, 100), Err(ScanError::TooBig { limit: 100, .. })));
        let mut short = ELF.chain(&b"rest"[..]);
        assert_eq!(unpack(&mut short, 100).unwrap(), b"\x7fELFrest");
    }
}
