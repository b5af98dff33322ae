// SPDX-License-Identifier: MIT OR Apache-2.0
//! A new file in the place of an old one, so that readers see the old one or the new one and
//! nothing between.

use std::fs::Permissions;
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use tempfile::NamedTempFile;

/// A complete file beside `path` that everyone may read: `persist(path)` puts it there, dropping it
/// removes it.
pub(crate) fn replacement(path: &Path, bytes: &[u8]) -> io::Result<NamedTempFile> {
    let mut new = NamedTempFile::new_in(folder_of(path))?;
    new.write_all(bytes)?;
    new.as_file().set_permissions(Permissions::from_mode(0o644))?;
    Ok(new)
}

/// The folder that a file of this path is in.
pub(crate) fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| *folder != Path::new("")).unwrap_or(Path::new("."))
}
