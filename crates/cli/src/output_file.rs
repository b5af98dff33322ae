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
