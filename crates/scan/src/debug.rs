// SPDX-License-Identifier: MIT OR Apache-2.0
//! The separate file with the debugging information of a stripped one.
//!
//! Distributions install it by build id, others by a name that the stripped file gives
//! (`.gnu_debuglink`, with a checksum). It has the sections' headers and the symbols, and none of
//! the code. A file that was built at another time has other addresses: its names would be wrong,
//! so the build id decides where both files have one, and the checksum where not.

use object::{File, Object};

use crate::image::Image;

/// Where the debug file of a file may be.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DebugLink {
    /// In hexadecimal.
    pub build_id: Option<String>,
    /// The debug file's name, without folders.
    pub name: Option<String>,
}

/// Which debug file an ELF file has; `None` if it is not stripped, or names none.
pub fn debug_link(bytes: &[u8]) -> Option<DebugLink> {
    let file = File::parse(bytes).ok()?;
    if file.symbols().next().is_some() || file.section_by_name(".debug_info").is_some() {
        return None;
    }
    let name = link(&file).and_then(|(name, _)| String::from_utf8(name.to_vec()).ok());
    let is_plain = |name: &String| !name.is_empty() && !name.contains('/') && name != "..";
    let found = DebugLink { build_id: build_id(&file), name: name.filter(is_plain) };
    (found != DebugLink::default()).then_some(found)
}

fn link<'a>(file: &File<'a>) -> Option<(&'a [u8], u32)> {
    file.gnu_debuglink().ok()?
}

/// The build id of a file, in hexadecimal.
pub(crate) fn build_id(file: &File<'_>) -> Option<String> {
    let id = file.build_id().ok()??;
    Some(id.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// A debug file, which may be another file's.
pub(crate) struct DebugFile<'a> {
    file: File<'a>,
    bytes: &'a [u8],
}

impl<'a> DebugFile<'a> {
    /// `None` if it is no ELF file.
    pub(crate) fn parse(bytes: &'a [u8]) -> Option<Self> {
        Some(DebugFile { file: File::parse(bytes).ok()?, bytes })
    }

    /// Whether it was made from this file.
    pub(crate) fn is_of(&self, image: &Image<'_>) -> bool {
        match (build_id(&image.file), build_id(&self.file)) {
            (Some(own), Some(other)) => own == other,
            _ => link(&image.file).is_some_and(|(_, sum)| sum == crc32fast::hash(self.bytes)),
        }
    }

    pub(crate) fn file(&self) -> &File<'a> {
        &self.file
    }

    /// Its length.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes.len()
    }
}
