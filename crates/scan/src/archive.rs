// SPDX-License-Identifier: MIT OR Apache-2.0
//! Static archives: each member is an object file.

use object::read::archive::ArchiveFile;
use report::scan::{File, Skipped};

use crate::{Limits, Options, ScanError, scan_file_within};

const MAGIC: &[u8] = b"!<arch>\n";
const THIN_MAGIC: &[u8] = b"!<thin>\n";

/// Whether it begins as archives do.
#[must_use]
pub fn is_archive(bytes: &[u8]) -> bool {
    bytes.starts_with(MAGIC) || bytes.starts_with(THIN_MAGIC)
}

impl ScanError {
    /// Counts what was passed over for this reason.
    pub fn count(&self, skipped: &mut Skipped) {
        let counter = match self {
            ScanError::NotElf | ScanError::ThinArchive => &mut skipped.not_elf,
            ScanError::OtherCpu(_) => &mut skipped.other_cpu,
            ScanError::Broken(_) => &mut skipped.broken,
            ScanError::NoCode => &mut skipped.no_code,
            ScanError::Unreadable(_) => &mut skipped.unreadable,
            ScanError::TooBig { .. } | ScanError::TooMuchWork { .. } | ScanError::Stopped => {
                &mut skipped.beyond_limits
            }
        };
        *counter += 1;
    }
}

/// Scans each member; members that are no ELF files for x86 are counted in `skipped`.
///
/// # Errors
/// When the archive itself makes no sense.
pub fn scan_archive(
    path: &str,
    bytes: &[u8],
    options: &Options,
    skipped: &mut Skipped,
) -> Result<Vec<File>, ScanError> {
    scan_archive_within(path, bytes, options, &Limits::default(), skipped)
}

/// The same within limits, which hold for each member.
///
/// # Errors
/// As [`scan_archive`], and when the scan is stopped.
pub fn scan_archive_within(
    path: &str,
    bytes: &[u8],
    options: &Options,
    limits: &Limits<'_>,
    skipped: &mut Skipped,
) -> Result<Vec<File>, ScanError> {
    if bytes.starts_with(THIN_MAGIC) {
        return Err(ScanError::ThinArchive);
    }
    let broken = |error: object::Error| ScanError::Broken(error.to_string());
    let archive = ArchiveFile::parse(bytes).map_err(broken)?;
    let mut files = Vec::new();
    for member in archive.members() {
        let member = member.map_err(broken)?;
        let name = format!("{path}({})", String::from_utf8_lossy(member.name()));
        let Ok(data) = member.data(bytes) else {
            skipped.broken += 1;
            continue;
        };
        keep(scan_file_within(&name, data, options, limits), &mut files, skipped)?;
    }
    Ok(files)
}

/// Adds the scan of a member. One that is no code, or broken, is counted; only a stop ends all.
pub(crate) fn keep(
    scanned: Result<File, ScanError>,
    files: &mut Vec<File>,
    skipped: &mut Skipped,
) -> Result<(), ScanError> {
    match scanned {
        Err(ScanError::Stopped) => return Err(ScanError::Stopped),
        Ok(file) => files.push(file.in_archive()),
        Err(error) => error.count(skipped),
    }
    Ok(())
}
