// SPDX-License-Identifier: MIT OR Apache-2.0
//! Ranges of functions from the unwind table, which stripped files keep.

use gimli::{
    BaseAddresses, CieOrFde, CommonInformationEntry, EhFrame, EndianSlice, LittleEndian,
    UnwindSection,
};
use object::{File, Object, ObjectSection};

type Reader<'a> = EndianSlice<'a, LittleEndian>;

/// Start and end of each function in `.eh_frame`; of a broken table, those before the break.
pub(crate) fn read(
    file: &File<'_>,
    address_size: u8,
    partial: &mut Vec<String>,
) -> Vec<(u64, u64)> {
    let Some(section) = file.section_by_name(".eh_frame") else { return Vec::new() };
    let Ok(data) = section.data() else {
        partial.push(".eh_frame cannot be read".into());
        return Vec::new();
    };
    let mut table = EhFrame::new(data, LittleEndian);
    table.set_address_size(address_size);
    let address = |name| file.section_by_name(name).map_or(0, |section| section.address());
    let bases = BaseAddresses::default()
        .set_eh_frame(section.address())
        .set_text(address(".text"))
        .set_got(address(".got"));
    let mut ranges = Vec::new();
    // Records of a file share few of the entries that they refer to, and mostly the last one.
    let mut last: Option<(usize, CommonInformationEntry<Reader<'_>>)> = None;
    let mut entries = table.entries(&bases);
    loop {
        match entries.next() {
            Ok(Some(CieOrFde::Fde(record))) => {
                let parsed = record.parse(|table, bases, offset| match &last {
                    Some((at, entry)) if *at == offset.0 => Ok(entry.clone()),
                    _ => {
                        let entry = table.cie_from_offset(bases, offset)?;
                        last = Some((offset.0, entry.clone()));
                        Ok(entry)
                    }
                });
                if let Ok(function) = parsed {
                    let start = function.initial_address();
                    ranges.push((start, start.saturating_add(function.len())));
                }
            }
            Ok(Some(CieOrFde::Cie(_))) => {}
            Ok(None) => break,
            Err(error) => {
                partial.push(format!(".eh_frame is broken: {error}"));
                break;
            }
        }
    }
    ranges.retain(|(start, end)| start < end);
    ranges
}
