// SPDX-License-Identifier: MIT OR Apache-2.0
//! The bytes of files that are scanned.
//!
//! Files are mapped, not read: of a gigabyte of debugging information nothing is loaded. A file
//! that another program truncates meanwhile ends the scan (SIGBUS), as it does with every linker
//! and debugger.

use std::fs::File;
use std::io;

use memmap2::Mmap;

/// The bytes of a file. An empty one cannot be mapped.
pub(crate) fn map(file: &File) -> io::Result<Box<dyn std::ops::Deref<Target = [u8]>>> {
    if file.metadata()?.len() == 0 {
        return Ok(Box::new(Vec::new()));
    }
    // SAFETY: the bytes are only read. If the file is changed meanwhile, the scanner sees other
    // bytes, and takes any; if it is truncated, the program ends by SIGBUS, as said at the head.
    Ok(Box::new(unsafe { Mmap::map(file) }?))
}
