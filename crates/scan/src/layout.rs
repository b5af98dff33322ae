// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where the functions of an ELF file are: what its symbols, its unwind table and its entries
//! state, and the gaps between, in which `recover` searches.

use object::{Object, ObjectSection, SectionKind};
use report::scan::Source;

use crate::bounds::{self, Range};
use crate::debug::DebugFile;
use crate::image::{Image, Kind, Section};
use crate::recover::{self, Gaps};
use crate::sweep::Wanted;
use crate::symbols::{self, Symbol};
use crate::{Limits, ScanError, unwind};

/// A file with everything that is known of its functions' ranges.
pub(crate) struct Layout<'a> {
    pub(crate) image: Image<'a>,
    pub(crate) symbols: Vec<Symbol>,
    /// For each section of the image.
    pub(crate) ranges: Vec<Vec<Range>>,
    /// Groups of sections that share one space of addresses: all, but in object files each alone.
    pub(crate) groups: Vec<(Vec<usize>, Gaps)>,
    /// Whether the separate file with symbols is this one's.
    pub(crate) has_debug: bool,
}

impl<'a> Layout<'a> {
    pub(crate) fn new(bytes: &'a [u8], limits: &Limits<'_>) -> Result<Self, ScanError> {
        Self::with_debug(bytes, None, limits)
    }

    /// The same with the symbols of a separate file.
    pub(crate) fn with_debug(
        bytes: &'a [u8],
        debug: Option<&DebugFile<'_>>,
        limits: &Limits<'_>,
    ) -> Result<Self, ScanError> {
        Limits::check("the file", bytes.len() as u64, limits.file_bytes)?;
        let mut image = Image::parse(bytes)?;
        if image.sections.is_empty() {
            return Err(ScanError::NoCode);
        }
        Limits::check("its code", image.code_bytes as u64, limits.code_bytes)?;
        let debug = debug.filter(|debug| debug.is_of(&image));
        let files = (&image.file, debug);
        let symbols = symbols::read(files, bytes.len(), limits, &mut image.partial)?;
        let unwind = image.unwind(bytes);
        let order = in_order(image.kind, &symbols);
        let all = (symbols.as_slice(), order.as_slice());
        let sections = image.sections.iter();
        let ranges = sections.map(|section| stated(&image, section, all, &unwind)).collect();
        let has_debug = debug.is_some();
        let mut layout = Layout { image, symbols, ranges, groups: Vec::new(), has_debug };
        let numbers: Vec<usize> = (0..layout.image.sections.len()).collect();
        layout.groups = match layout.image.kind {
            Kind::Object => numbers.iter().map(|&one| (vec![one], layout.gaps(&[one]))).collect(),
            _ => vec![(numbers.clone(), layout.gaps(&numbers))],
        };
        Ok(layout)
    }

    pub(crate) fn gaps(&self, sections: &[usize]) -> Gaps {
        let of = |&number: &usize| {
            recover::gaps_of(self.image.sections[number].code, &self.ranges[number])
        };
        Gaps::new(sections.iter().flat_map(of).collect())
    }

    /// Where the kernel and the dynamic linker enter a program.
    pub(crate) fn entries(&self) -> Vec<u64> {
        let mut entries = vec![self.image.file.entry()];
        if self.image.kind != Kind::Object {
            let starts = self
                .image
                .sections
                .iter()
                .filter(|section| matches!(section.name.as_str(), ".init" | ".fini"));
            entries.extend(starts.map(|section| section.code.address));
        }
        entries
    }

    /// Where relocations and words of data point to: those of RELR and of programs that are not
    /// relocated hold the address themselves.
    pub(crate) fn pointers(&self, gaps: &impl Wanted) -> Vec<u64> {
        let file = &self.image.file;
        let mut found = Vec::new();
        if self.image.kind == Kind::Object {
            return found;
        }
        for (_, relocation) in file.dynamic_relocations().into_iter().flatten() {
            let address = relocation.addend() as u64;
            if !relocation.has_implicit_addend() && gaps.wants(address) {
                found.push(address);
            }
        }
        let word = (self.image.bits / 8) as usize;
        let is_data = |kind| {
            matches!(
                kind,
                SectionKind::Data | SectionKind::ReadOnlyData | SectionKind::ReadOnlyDataWithRel
            ) || matches!(kind, SectionKind::Elf(_))
        };
        for section in file.sections().filter(|section| is_data(section.kind())) {
            let Ok(data) = section.data() else { continue };
            let skew = (section.address() % word as u64) as usize;
            let words = data.get((word - skew) % word..).unwrap_or_default();
            let wanted = |&address: &u64| gaps.wants(address);
            if word == 8 {
                let address = |bytes: &[u8; 8]| u64::from_le_bytes(*bytes);
                found.extend(words.as_chunks().0.iter().map(address).filter(wanted));
            } else {
                let address = |bytes: &[u8; 4]| u32::from_le_bytes(*bytes).into();
                found.extend(words.as_chunks().0.iter().map(address).filter(wanted));
            }
        }
        found.sort_unstable();
        found.dedup();
        found
    }
}

/// What the file states about a section. `order` has the symbols in the order of [`in_order`].
fn stated(
    image: &Image<'_>,
    section: &Section<'_>,
    (symbols, order): (&[Symbol], &[u32]),
    unwind: &[(u64, u64)],
) -> Vec<Range> {
    let (start, end) = (section.code.address, section.code.end());
    if section.is_stubs() {
        return vec![Range { start, end, source: Source::Entry, symbol: None }];
    }
    let place = |number: &u32| group_and_address(image.kind, &symbols[*number as usize]);
    let group = if image.kind == Kind::Object { Some(section.index) } else { None };
    let from = order.partition_point(|number| place(number) < (group, start));
    let to = order.partition_point(|number| place(number) < (group, end));
    let own: Vec<(u32, &Symbol)> =
        order[from..to].iter().map(|&number| (number, &symbols[number as usize])).collect();
    let from = unwind.partition_point(|(record, _)| *record < start);
    let to = unwind.partition_point(|(record, _)| *record < end);
    let unwind: Vec<(u64, u64)> =
        unwind[from..to].iter().map(|&(from, to)| (from, to.min(end))).collect();
    bounds::ranges((start, end), &own, &unwind)
}

/// Symbols by section, where each section has its own addresses, and by address; the longest of the
/// best table first.
fn in_order(kind: Kind, symbols: &[Symbol]) -> Vec<u32> {
    let mut order: Vec<u32> = (0..symbols.len() as u32).collect();
    order.sort_by_key(|&number| {
        let symbol = &symbols[number as usize];
        (group_and_address(kind, symbol), u64::MAX - symbol.size, symbol.source)
    });
    order
}

fn group_and_address(kind: Kind, symbol: &Symbol) -> (Option<usize>, u64) {
    (symbol.section.filter(|_| kind == Kind::Object), symbol.address)
}

impl Image<'_> {
    /// Ranges of the unwind table, ascending, each start once.
    fn unwind(&mut self, bytes: &[u8]) -> Vec<(u64, u64)> {
        if self.kind == Kind::Object {
            return Vec::new(); // its addresses are still to be filled in
        }
        let mut ranges = unwind::read(&self.file, (self.bits / 8) as u8, &mut self.partial);
        if ranges.is_empty()
            && let Ok(image) = crate::segments::Image::parse(bytes)
        {
            ranges = image.extents().collect();
        }
        ranges.sort_unstable_by_key(|&(start, end)| (start, u64::MAX - end));
        ranges.dedup_by_key(|(start, _)| *start);
        ranges
    }
}
