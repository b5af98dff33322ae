// SPDX-License-Identifier: MIT OR Apache-2.0
//! Scans one ELF file: finds its functions, sweeps them in parallel, and puts the results together.

use rayon::prelude::*;
use report::scan::{File, Source};

use crate::bounds::Range;
use crate::debug::{DebugFile, build_id};
use crate::findings::{Place, keep, summarise};
use crate::image::Kind;
use crate::layout::Layout;
use crate::limits::PIECE_MAX_BYTES;
use crate::lines::Lines;
use crate::near::Near;
use crate::pieces::{Swept, Task, Total, sweep};
use crate::recover;
use crate::sweep::{Sweep, Targets};
use crate::{Limits, Meter, Options, ScanError};

/// Code that is swept by one task.
const TASK_BYTES: u64 = 128 << 10;

/// Scans an ELF file; `path` is only shown.
///
/// # Errors
/// When it is no ELF file, is for another CPU, or has no code. Broken parts of a file are named in
/// `partial` of the result.
pub fn scan_file(path: &str, bytes: &[u8], options: &Options) -> Result<File, ScanError> {
    scan_file_within(path, bytes, options, &Limits::default())
}

/// The same within limits.
///
/// # Errors
/// As [`scan_file`], and when the file is beyond a limit or the scan is stopped: then nothing is
/// known of the file.
pub fn scan_file_within(
    path: &str,
    bytes: &[u8],
    options: &Options,
    limits: &Limits<'_>,
) -> Result<File, ScanError> {
    scan_with(path, bytes, None, options, limits)
}

/// The same, with names and source lines from a separate file with debugging information, where it
/// is this file's ([`crate::debug_link`]).
///
/// # Errors
/// As [`scan_file_within`].
pub fn scan_file_with_debug(
    path: &str,
    bytes: &[u8],
    debug: &[u8],
    options: &Options,
    limits: &Limits<'_>,
) -> Result<File, ScanError> {
    Limits::check("the debug file", debug.len() as u64, limits.file_bytes)?;
    let debug = DebugFile::parse(debug);
    scan_with(path, bytes, debug.as_ref(), options, limits)
}

fn scan_with(
    path: &str,
    bytes: &[u8],
    debug: Option<&DebugFile<'_>>,
    options: &Options,
    limits: &Limits<'_>,
) -> Result<File, ScanError> {
    let mut layout = Layout::with_debug(bytes, debug, limits)?;
    let total = sweep_all(&layout, &Meter::new(limits))?;
    let partial = std::mem::take(&mut layout.image.partial);
    let code_bytes = layout.image.code_bytes as u64;
    let mut file = File {
        architecture: if layout.image.bits == 64 { "x86-64" } else { "x86" }.into(),
        build_id: build_id(&layout.image.file),
        functions: total.functions.iter().sum(),
        partial,
        ..File::new(path, layout.image.kind.name(), code_bytes)
    };
    let mut wide = [0; Source::ALL.len()];
    for swept in &total.swept {
        wide[swept.range.source as usize] += u64::from(swept.analysis.wide);
        count(&layout, &mut file, swept);
    }
    summarise(&mut file, &total.functions, &wide);
    options.arrange(&mut file);
    let kind = layout.image.kind;
    let lines = if file.listed.is_empty() || !limits.lines {
        None
    } else {
        let apart = || debug.filter(|_| layout.has_debug);
        Lines::of(kind, &layout.image.file).or_else(|| Lines::of(kind, apart()?.file()))
    };
    let is_nameless = |function: &report::scan::Function| function.name.is_none();
    let near = file.listed.iter().any(is_nameless).then(|| Near::new(&layout));
    for function in &mut file.listed {
        if is_nameless(function) {
            function.near = near.as_ref().and_then(|near| near.find(function.address));
        }
        function.line = lines.as_ref().and_then(|lines| lines.find(function.address));
    }
    Ok(file)
}

/// Adds a function to the file's sums and, if it is of the level, to its list.
fn count(layout: &Layout<'_>, file: &mut File, swept: &Swept) {
    let section = &layout.image.sections[swept.section];
    let symbol = swept.range.symbol.map(|number| &layout.symbols[number as usize]);
    let file_offset = section.offset + (swept.range.start - section.code.address);
    let place = Place {
        symbol: symbol.map(|symbol| &*symbol.name),
        section: (layout.image.kind == Kind::Object).then_some(section.name.as_str()),
        file_offset: Some(file_offset),
    };
    keep(file, swept.range, &swept.analysis, &place);
}

/// Cuts the functions of sections to pieces, and deals the pieces out.
pub(crate) fn tasks(layout: &Layout<'_>, sections: &[usize]) -> Vec<Task> {
    let mut tasks = Vec::new();
    for &section in sections {
        let mut task = Task { section, pieces: Vec::new() };
        let mut bytes = 0;
        for range in &layout.ranges[section] {
            let mut start = range.start;
            while start < range.end {
                let end = range.end.min(start.saturating_add(PIECE_MAX_BYTES));
                task.pieces.push(Range { start, end, ..*range });
                bytes += end - start;
                start = end;
            }
            if bytes >= TASK_BYTES {
                tasks.push(std::mem::replace(&mut task, Task { section, pieces: Vec::new() }));
                bytes = 0;
            }
        }
        tasks.push(task);
    }
    tasks
}

pub(crate) fn sweep_all(layout: &Layout<'_>, meter: &Meter<'_>) -> Result<Total, ScanError> {
    let mut total = Total::default();
    for (sections, gaps) in &layout.groups {
        let tasks = tasks(layout, sections);
        let parts: Result<Vec<(Total, Targets)>, ScanError> = tasks
            .par_iter()
            .map_init(Sweep::default, |known, task| {
                let code = layout.image.sections[task.section].code;
                sweep(task, code, gaps, known, meter)
            })
            .collect();
        let mut targets = Targets::default();
        for (part, found) in parts? {
            total.add(part);
            targets.calls.extend(found.calls);
            targets.addresses.extend(found.addresses);
        }
        if gaps.is_empty() {
            continue;
        }
        let seeds = [(Source::Entry, layout.entries()), (Source::Pointer, layout.pointers(gaps))];
        for &section in sections {
            let code = layout.image.sections[section].code;
            for function in recover::run(code, gaps, &seeds, &targets, meter)? {
                total.functions[function.range.source as usize] += 1;
                total.recovered.push((section, function.range));
                if let Some(analysis) = function.analysis {
                    total.swept.push(Swept { section, range: function.range, analysis });
                }
            }
        }
    }
    Ok(total)
}

#[cfg(test)]
mod tests {
    use iced_x86::Decoder;

    use super::*;
    use crate::analysis::Analysis;
    use crate::pieces::sweep_those;
    use crate::recover::Gaps;
    use crate::sweep::Code;

    /// Whole libraries give the same with and without the functions that are passed over: the same
    /// functions with wide code, the same targets in gaps. With their symbols, and as if without.
    #[test]
    fn screening_changes_nothing() {
        let folder = std::path::Path::new("/lib/x86_64-linux-gnu");
        let names = ["libc.so.6", "libm.so.6", "libcrypto.so.3", "libstdc++.so.6"];
        let (mut decoded, mut known) = (0, Sweep::default());
        for bytes in names.iter().filter_map(|name| std::fs::read(folder.join(name)).ok()) {
            let mut layout = Layout::new(&bytes, &Limits::default()).unwrap();
            let meter = Meter::new(&Limits::default());
            for keep_all in [true, false] {
                if !keep_all {
                    let half = |range: &Range| (range.start / 64).is_multiple_of(2);
                    layout.ranges.iter_mut().for_each(|ranges| ranges.retain(half));
                    let sections: Vec<usize> = (0..layout.ranges.len()).collect();
                    layout.groups = vec![(sections.clone(), layout.gaps(&sections))];
                }
                let (sections, gaps) = &layout.groups[0];
                for task in tasks(&layout, sections) {
                    let code = layout.image.sections[task.section].code;
                    let (screened, found) = sweep(&task, code, gaps, &mut known, &meter).unwrap();
                    let all = |_: &mut Decoder<'_>, _: Code<'_>, _: (usize, usize), _: &Gaps| true;
                    let mut fresh = Sweep::default();
                    let (whole, all) =
                        sweep_those(&task, code, gaps, &mut fresh, all, &meter).unwrap();
                    let parts = |total: Total| -> Vec<(Range, Analysis)> {
                        total.swept.into_iter().map(|one| (one.range, one.analysis)).collect()
                    };
                    assert_eq!(parts(screened), parts(whole));
                    assert_eq!((found.calls, found.addresses), (all.calls, all.addresses));
                    decoded += 1;
                }
            }
        }
        assert!(decoded > 10, "{decoded} tasks");
    }
}
