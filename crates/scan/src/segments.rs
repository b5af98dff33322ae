// SPDX-License-Identifier: MIT OR Apache-2.0
//! The executable parts of an ELF file, and where functions begin in them, by program headers
//! alone: what a loaded file has to have, even if its sections are stripped.

use object::elf::{EM_X86_64, ET_DYN, ET_EXEC, PF_X, PT_GNU_EH_FRAME, PT_LOAD};
use object::read::elf::{ElfFile64, FileHeader, ProgramHeader};
use object::{Endianness, Object, ObjectSymbol, SymbolKind};

/// What linkers write into the header of the search table: its entries are pairs of 4-byte offsets
/// relative to it (LSB Core, ".eh_frame_hdr"; DW_EH_PE_udata4, DW_EH_PE_datarel | DW_EH_PE_sdata4).
const COUNT_ENCODING: u8 = 0x03;
const TABLE_ENCODING: u8 = 0x3b;

/// A loaded part of the file that is executable.
pub struct Segment<'a> {
    /// Its address in memory, before relocation.
    pub address: u64,
    /// Its offset in the file.
    pub offset: u64,
    /// Its bytes.
    pub code: &'a [u8],
}

/// A function, or what lies between two known starts of functions.
pub struct Function<'a> {
    /// Offset of its first byte in the file.
    pub offset: u64,
    /// Where it begins in its segment.
    pub start: usize,
    /// Its bytes.
    pub code: &'a [u8],
}

/// A parsed file.
pub struct Image<'a> {
    /// Its executable segments.
    pub segments: Vec<Segment<'a>>,
    /// Ascending by start, one for each.
    extents: Vec<Extent>,
}

/// Where a function lies in memory, before relocation.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Extent {
    start: u64,
    /// After its last byte; 0 if that is not known. What follows may be data, which must not get
    /// a probe even if it looks like code.
    end: u64,
}

impl<'a> Image<'a> {
    /// Reads segments, unwind table and symbols; the error says what is wrong with the file.
    ///
    /// # Errors
    /// When it is no linked ELF file for x86-64.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, String> {
        let elf = ElfFile64::<Endianness>::parse(bytes).map_err(|error| error.to_string())?;
        let (header, endian) = (elf.elf_header(), elf.endian());
        if header.e_machine(endian) != EM_X86_64 {
            return Err("it is for another kind of CPU".into());
        }
        if !matches!(header.e_type(endian), ET_EXEC | ET_DYN) {
            return Err("it is not linked".into());
        }
        let mut segments = Vec::new();
        let mut extents = Vec::new();
        let mut code_bytes = 0;
        for segment in elf.elf_program_headers() {
            let data = segment.data(endian, bytes).unwrap_or_default();
            let (address, offset) = (segment.p_vaddr(endian), segment.p_offset(endian));
            match segment.p_type(endian) {
                PT_LOAD if segment.p_flags(endian) & PF_X != 0 => {
                    code_bytes += data.len();
                    if code_bytes > 2 * bytes.len() {
                        return Err("its segments overlap".into());
                    }
                    segments.push(Segment { address, offset, code: data });
                }
                // The table and what it points to lie in one segment: the same distance in the
                // file as in memory.
                PT_GNU_EH_FRAME if extents.is_empty() => {
                    extents.extend(unwind_extents(bytes, offset, address))
                }
                _ => {}
            }
        }
        let symbols = elf.symbols().chain(elf.dynamic_symbols());
        extents.extend(
            symbols
                .filter(|symbol| symbol.kind() == SymbolKind::Text && symbol.is_definition())
                .map(|symbol| (symbol.address(), symbol.size()))
                .map(|(start, size)| Extent {
                    start,
                    end: if size > 0 { start.saturating_add(size) } else { 0 },
                }),
        );
        // Of several with one start, the longest says the most.
        extents.sort_unstable_by(|a, b| (a.start, b.end).cmp(&(b.start, a.end)));
        extents.dedup_by_key(|extent| extent.start);
        Ok(Self { segments, extents })
    }

    /// Start and end of the functions whose end is known, as addresses.
    pub fn extents(&self) -> impl Iterator<Item = (u64, u64)> {
        let known = self.extents.iter().filter(|extent| extent.end > extent.start);
        known.map(|extent| (extent.start, extent.end))
    }

    /// The function that the byte at `at` of the segment belongs to, if a start before it is known.
    pub fn function_around(&self, segment: &Segment<'a>, at: usize) -> Option<Function<'a>> {
        let address = segment.address.saturating_add(at as u64);
        let next = self.extents.partition_point(|extent| extent.start <= address);
        let Extent { start, end } = *self.extents.get(next.checked_sub(1)?)?;
        let end = match (end, self.extents.get(next)) {
            (0, Some(next)) => next.start,
            (0, None) => u64::MAX,
            (end, _) => end,
        };
        if address >= end {
            return None; // between functions
        }
        let start = usize::try_from(start.checked_sub(segment.address)?).ok()?;
        let end = usize::try_from(end - segment.address).unwrap_or(usize::MAX);
        let code = segment.code.get(start..end.min(segment.code.len()))?;
        Some(Function { offset: segment.offset + start as u64, start, code })
    }
}

/// Functions in the search table at this offset and address. Nothing if its form is another.
fn unwind_extents(bytes: &[u8], offset: u64, address: u64) -> Vec<Extent> {
    let word = |at: u64| -> Option<i32> {
        let at = usize::try_from(at).ok()?;
        Some(i32::from_le_bytes(bytes.get(at..at.checked_add(4)?)?.try_into().ok()?))
    };
    let usual = [1, COUNT_ENCODING, TABLE_ENCODING].map(Some);
    let head = |at: u64| bytes.get(usize::try_from(offset.saturating_add(at)).ok()?).copied();
    if [head(0), head(2), head(3)] != usual {
        return Vec::new();
    }
    // After the header and the address of .eh_frame: the number of entries, the entries.
    let count =
        word(offset.saturating_add(8)).and_then(|count| u64::try_from(count).ok()).unwrap_or(0);
    (0..count)
        .map_while(|entry| {
            let at = offset.saturating_add(12 + 8 * entry);
            Some((word(at)?, word(at.saturating_add(4))?))
        })
        .map(|(function, record)| {
            let start = address.wrapping_add_signed(function.into());
            let end = record_end(&word, offset, address, record, start).unwrap_or(0);
            Extent { start, end }
        })
        .collect()
}

/// Where the function ends that an unwind record describes: its length, identity, start relative
/// to itself, and size, 4 bytes each, in the form that compilers and linkers use. In another form
/// the start does not come out right, and the end is not known.
fn record_end(
    word: &impl Fn(u64) -> Option<i32>,
    offset: u64,
    address: u64,
    record: i32,
    start: u64,
) -> Option<u64> {
    let at = offset.checked_add_signed(i64::from(record) + 8)?;
    let field = address.checked_add_signed(i64::from(record) + 8)?;
    let is_usual = field.wrapping_add_signed(word(at)?.into()) == start;
    let size = u64::try_from(word(at.saturating_add(4))?).ok()?;
    (is_usual && size > 0).then(|| start.wrapping_add(size))
}
