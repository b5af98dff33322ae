// SPDX-License-Identifier: MIT OR Apache-2.0
//! Source file and line of an address, where a file has debugging information.

use std::borrow::Cow;

use addr2line::Context;
use gimli::{Dwarf, DwarfSections, EndianSlice, LittleEndian, SectionId};
use object::{File, Object, ObjectSection};

use crate::image::Kind;

/// The debugging information of a file.
pub(crate) struct Lines<'a> {
    context: Context<EndianSlice<'a, LittleEndian>>,
}

impl<'a> Lines<'a> {
    /// `None` if there is none that can be read: none at all, compressed, or without its
    /// relocations applied.
    pub(crate) fn of(kind: Kind, file: &File<'a>) -> Option<Self> {
        if kind == Kind::Object {
            return None;
        }
        file.section_by_name(".debug_info")?;
        let load = |id: SectionId| -> Result<&'a [u8], ()> {
            let Some(section) = file.section_by_name(id.name()) else { return Ok(&[]) };
            match section.uncompressed_data() {
                Ok(Cow::Borrowed(bytes)) => Ok(bytes),
                _ => Err(()),
            }
        };
        let sections = DwarfSections::load(load).ok()?;
        let dwarf: Dwarf<EndianSlice<'a, LittleEndian>> =
            sections.borrow(|bytes| EndianSlice::new(bytes, LittleEndian));
        Context::from_dwarf(dwarf).ok().map(|context| Lines { context })
    }

    /// `file:line` of an address.
    pub(crate) fn find(&self, address: u64) -> Option<String> {
        let location = self.context.find_location(address).ok()??;
        let (file, line) = (location.file?, location.line?);
        Some(format!("{file}:{line}"))
    }
}
