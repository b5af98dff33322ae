// SPDX-License-Identifier: MIT OR Apache-2.0
//! Every instruction with its widest register, for a comparison with a disassembler.

use report::scan::Source;

use crate::file::tasks;
use crate::image::Kind;
use crate::layout::Layout;
use crate::pieces::sweep;
use crate::recover;
use crate::sweep::{Nothing, Sweep, Targets, Until, decoder};
use crate::traits::Width;
use crate::{Limits, Meter, ScanError};

/// Calls `each` with address and widest register of every instruction of every function, guesses
/// left out: what a test compares with a disassembler.
///
/// # Errors
/// As [`scan_file`].
pub fn widths(bytes: &[u8], mut each: impl FnMut(u64, Width)) -> Result<(), ScanError> {
    let limits = Limits::default();
    let meter = Meter::new(&limits);
    let mut layout = Layout::new(bytes, &limits)?;
    let Some((sections, gaps)) =
        layout.groups.first().filter(|_| layout.image.kind != Kind::Object)
    else {
        return Err(ScanError::Broken("instructions of an object file have no addresses".into()));
    };
    let mut targets = Targets::default();
    let mut known = Sweep::default();
    for task in tasks(&layout, sections) {
        let code = layout.image.sections[task.section].code;
        let (_, found) = sweep(&task, code, gaps, &mut known, &meter)?;
        targets.calls.extend(found.calls);
        targets.addresses.extend(found.addresses);
    }
    let seeds = [(Source::Entry, layout.entries()), (Source::Pointer, layout.pointers(gaps))];
    for &section in sections {
        let code = layout.image.sections[section].code;
        let found = recover::run(code, gaps, &seeds, &targets, &meter)?;
        let known = found.iter().map(|function| function.range);
        layout.ranges[section].extend(known.filter(|range| range.source != Source::Guess));
    }
    let mut sweep = known;
    for (section, ranges) in layout.image.sections.iter().zip(&layout.ranges) {
        let code = section.code;
        let mut decoder = decoder(code);
        for range in ranges {
            let (start, end) = (range.start - code.address, range.end - code.address);
            let within = (start as usize, end as usize);
            let none = &mut Targets::default();
            sweep.run(&mut decoder, code, within, Until::Range, &Nothing, none);
            let mut events = sweep.events.iter().peekable();
            for offset in sweep.starts.iter() {
                let event = events.next_if(|event| event.at == offset);
                let width = event.map_or(Width::None, |event| event.traits.widest());
                each(range.start + u64::from(offset), width);
            }
        }
    }
    Ok(())
}
