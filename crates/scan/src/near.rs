// SPDX-License-Identifier: MIT OR Apache-2.0
//! The symbol before a function that has no name.
//!
//! Files of source code become contiguous code, so what a stripped library exports shortly before a
//! function says where it belongs. perf shows all samples so. Beyond [`FAR_BYTES`] it says nothing:
//! stripped assembly is up to megabytes away from the last export.

use crate::image::Kind;
use crate::layout::Layout;
use crate::symbols::{Symbol, demangle};

/// A larger distance is not shown: the code of a source file rarely takes more.
const FAR_BYTES: u64 = 64 << 10;

/// The symbols of a file by address.
pub(crate) struct Near<'a> {
    symbols: Vec<&'a Symbol>,
}

impl<'a> Near<'a> {
    pub(crate) fn new(layout: &'a Layout<'_>) -> Self {
        // In an object file, each section has its own addresses.
        if layout.image.kind == Kind::Object {
            return Near { symbols: Vec::new() };
        }
        let mut symbols: Vec<&Symbol> = layout.symbols.iter().collect();
        symbols.sort_by_key(|symbol| symbol.address);
        Near { symbols }
    }

    /// `symbol+0x…`.
    pub(crate) fn find(&self, address: u64) -> Option<String> {
        let after = self.symbols.partition_point(|symbol| symbol.address <= address);
        let symbol = self.symbols[..after].last()?;
        let distance = address - symbol.address;
        (distance < FAR_BYTES).then(|| format!("{}+{distance:#x}", demangle(&symbol.name)))
    }
}
