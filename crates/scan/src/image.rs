// SPDX-License-Identifier: MIT OR Apache-2.0
//! An ELF file: its code, and where it lies.

use object::elf::{PF_X, PT_INTERP};
use object::read::elf::ProgramHeader;
use object::{
    Architecture, BinaryFormat, File, Object, ObjectKind, ObjectSection, ObjectSegment,
    SectionKind, SegmentFlags,
};

use crate::ScanError;
use crate::sweep::Code;

/// What kind of file it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Executable,
    SharedObject,
    Object,
}

impl Kind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Kind::Executable => "executable",
            Kind::SharedObject => "shared object",
            Kind::Object => "object",
        }
    }
}

/// An executable section, or segment if the file has no sections.
#[derive(Clone, Debug)]
pub(crate) struct Section<'a> {
    pub(crate) name: String,
    /// Number in the file.
    pub(crate) index: usize,
    pub(crate) code: Code<'a>,
    /// In the file.
    pub(crate) offset: u64,
}

impl Section<'_> {
    /// Whether it holds the stubs of the procedure linkage table, which are no functions.
    pub(crate) fn is_stubs(&self) -> bool {
        self.name.starts_with(".plt")
    }
}

/// A parsed file.
pub(crate) struct Image<'a> {
    pub(crate) file: File<'a>,
    pub(crate) kind: Kind,
    pub(crate) bits: u32,
    pub(crate) sections: Vec<Section<'a>>,
    /// Their lengths together.
    pub(crate) code_bytes: usize,
    /// What reaches beyond the end of the file.
    pub(crate) partial: Vec<String>,
}

impl<'a> Image<'a> {
    pub(crate) fn parse(bytes: &'a [u8]) -> Result<Self, ScanError> {
        if !bytes.starts_with(b"\x7fELF") {
            return Err(ScanError::NotElf);
        }
        let file = File::parse(bytes).map_err(|error| ScanError::Broken(error.to_string()))?;
        if file.format() != BinaryFormat::Elf {
            return Err(ScanError::NotElf);
        }
        let bits = match file.architecture() {
            Architecture::X86_64 | Architecture::X86_64_X32 => 64,
            Architecture::I386 => 32,
            Architecture::Unknown => return Err(ScanError::OtherCpu("another kind of CPU".into())),
            other => return Err(ScanError::OtherCpu(format!("{other:?}"))),
        };
        let kind = match file.kind() {
            ObjectKind::Relocatable => Kind::Object,
            ObjectKind::Executable => Kind::Executable,
            ObjectKind::Dynamic if has_interpreter(&file) => Kind::Executable,
            ObjectKind::Dynamic => Kind::SharedObject,
            ObjectKind::Core => return Err(ScanError::Broken("it is the core of a crash".into())),
            _ => return Err(ScanError::Broken("it is neither linked nor an object".into())),
        };
        let mut image =
            Image { file, kind, bits, sections: Vec::new(), code_bytes: 0, partial: Vec::new() };
        let has_sections = image.file.sections().next().is_some();
        let pieces = if has_sections { image.text_sections() } else { image.text_segments() };
        for piece in pieces {
            image.keep(bytes, piece);
        }
        Ok(image)
    }

    fn text_sections(&self) -> Vec<Piece> {
        let text = self.file.sections().filter(|section| section.kind() == SectionKind::Text);
        text.filter_map(|section| {
            let name = section.name().unwrap_or("?").to_string();
            let (offset, size) = section.file_range()?;
            Some(Piece { name, index: section.index().0, address: section.address(), offset, size })
        })
        .collect()
    }

    /// Of a file without sections; such files run as well as others.
    fn text_segments(&self) -> Vec<Piece> {
        let executable = self.file.segments().enumerate().filter(|(_, segment)| {
            matches!(segment.flags(), SegmentFlags::Elf { p_flags } if p_flags & PF_X != 0)
        });
        executable
            .map(|(index, segment)| {
                let (offset, size) = segment.file_range();
                let name = format!("segment {index}");
                Piece { name, index, address: segment.address(), offset, size }
            })
            .collect()
    }

    fn keep(&mut self, bytes: &'a [u8], piece: Piece) {
        let Piece { name, index, address, offset, size } = piece;
        let left = (bytes.len() as u64).saturating_sub(offset);
        if size > left {
            self.partial.push(format!("{name} reaches beyond the end of the file"));
        }
        let start = offset.min(bytes.len() as u64) as usize;
        let data = &bytes[start..start + size.min(left) as usize];
        if address.checked_add(data.len() as u64).is_none_or(|end| end > ADDRESSES_END) {
            self.partial.push(format!("{name} reaches beyond the last address"));
            return;
        }
        let known = self.code_bytes + data.len();
        let is_object = self.kind == Kind::Object;
        if known > 2 * bytes.len() || !is_object && self.sections.len() >= SECTIONS_MAX {
            // One note for all of them.
            let note = "its sections overlap, or are too many: not all were scanned";
            if self.partial.last().is_none_or(|last| last != note) {
                self.partial.push(note.into());
            }
        } else if !data.is_empty() {
            self.code_bytes = known;
            let code = Code { bytes: data, address, bits: self.bits };
            self.sections.push(Section { name, index, code, offset });
        }
    }
}

/// Executable sections of a linked file: the kernel has about twenty. Together with the limit on
/// their size this bounds the time that a made-up file can take.
const SECTIONS_MAX: usize = 1024;

/// Nothing is mapped after that: the kernel takes such pointers for error numbers. Keeping code
/// away from the end lets addresses after it be computed.
pub(crate) const ADDRESSES_END: u64 = u64::MAX - 0xfff;

struct Piece {
    name: String,
    index: usize,
    address: u64,
    offset: u64,
    size: u64,
}

fn has_interpreter(file: &File<'_>) -> bool {
    match file {
        File::Elf64(elf) => {
            let mut headers = elf.elf_program_headers().iter();
            headers.any(|header| header.p_type(elf.endian()) == PT_INTERP)
        }
        File::Elf32(elf) => {
            let mut headers = elf.elf_program_headers().iter();
            headers.any(|header| header.p_type(elf.endian()) == PT_INTERP)
        }
        _ => false,
    }
}
