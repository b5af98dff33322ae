// SPDX-License-Identifier: MIT OR Apache-2.0
//! Files that the user has named for output.

use std::fs::{self, File};
use std::path::Path;

use crate::failure::{Failure, unwritable};

/// Writes it, in place of what was there.
pub(crate) fn write(path: &Path, contents: impl AsRef<[u8]>) -> Result<(), Failure> {
    fs::write(path, contents).map_err(|error| unwritable(path, &error))
}

/// Whether it can be written, before anything has begun; what is in the file is kept until then. A
/// new file is made, and is empty.
pub(crate) fn check_writable(path: &Path) -> Result<(), Failure> {
    let opened = File::options().write(true).create(true).truncate(false).open(path);
    opened.map(drop).map_err(|error| unwritable(path, &error))
}

/// The same, and a file that was not there is not made: it comes with its contents, or not at all
/// if what makes them fails.
pub(crate) fn check_before(path: &Path) -> Result<(), Failure> {
    // a link that leads nowhere is there
    let is_new = fs::symlink_metadata(path).is_err();
    check_writable(path)?;
    if is_new {
        _ = fs::remove_file(path);
    }
    Ok(())
}
