// SPDX-License-Identifier: MIT OR Apache-2.0
//! Scans one ELF file: finds its functions, sweeps them in parallel, and puts the results together.

use iced_x86::Decoder;
use object::{Object, ObjectSection, SectionKind};
use rayon::prelude::*;
use report::scan::{
    ByLength, Check, Confidence, Counts, File, Function, Question, Source, SourceShare, Widest,
};

use crate::analysis::{self, Analysis};
use crate::bounds::{self, Range};
use crate::image::{Image, Kind, Section};
use crate::limits::PIECE_MAX_BYTES;
use crate::lines::Lines;
use crate::recover::{self, Gaps};
use crate::screen;
use crate::sweep::{Code, Nothing, Sweep, Targets, Until, Wanted, decoder};
use crate::symbols::{self, Symbol};
use crate::traits::Width;
use crate::{Limits, Meter, Options, ScanError, unwind};

/// Code that is swept by one task.
const TASK_BYTES: u64 = 128 << 10;

/// A function of the file with what was found in it.
pub(crate) struct Swept {
    pub(crate) section: usize,
    pub(crate) range: Range,
    pub(crate) analysis: Analysis,
}

/// What sweeping adds up to.
#[derive(Default)]
pub(crate) struct Total {
    pub(crate) swept: Vec<Swept>,
    /// Functions by source, in the order of [`Source::ALL`].
    pub(crate) functions: [u64; Source::ALL.len()],
}

/// A file with everything that is known of its functions' ranges.
struct Layout<'a> {
    image: Image<'a>,
    symbols: Vec<Symbol>,
    /// For each section of the image.
    ranges: Vec<Vec<Range>>,
    /// Groups of sections that share one space of addresses: all, but in object files each alone.
    groups: Vec<(Vec<usize>, Gaps)>,
}

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
    let mut layout = Layout::new(bytes, limits)?;
    let total = sweep_all(&layout, &Meter::new(limits))?;
    let partial = std::mem::take(&mut layout.image.partial);
    let code_bytes = layout.image.code_bytes as u64;
    let mut file = File {
        architecture: if layout.image.bits == 64 { "x86-64" } else { "x86" }.into(),
        build_id: build_id(&layout.image),
        functions: total.functions.iter().sum(),
        partial,
        ..File::new(path, layout.image.kind.name(), code_bytes)
    };
    let mut wide = [0; Source::ALL.len()];
    for swept in &total.swept {
        wide[swept.range.source as usize] += u64::from(swept.analysis.wide);
        layout.count(&mut file, swept);
    }
    summarise(&mut file, &total.functions, &wide);
    options.arrange(&mut file);
    let lines =
        if file.listed.is_empty() || !limits.lines { None } else { Lines::of(&layout.image) };
    for function in &mut file.listed {
        function.line = lines.as_ref().and_then(|lines| lines.find(function.address));
    }
    Ok(file)
}

/// Sums and coverage from what was swept, by source.
pub(crate) fn summarise(file: &mut File, functions: &[u64], wide: &[u64]) {
    let share = |(source, (&functions, &wide_instructions)): (Source, (&u64, &u64))| SourceShare {
        source,
        functions,
        wide_instructions,
    };
    let shares = Source::ALL.into_iter().zip(functions.iter().zip(wide)).map(share);
    file.sources = shares.filter(|share| share.functions > 0).collect();
    let all: u64 = wide.iter().sum();
    let guessed = wide[Source::Guess as usize];
    file.coverage_pct = (all > 0).then(|| 100.0 * (all - guessed) as f64 / all as f64);
}

impl<'a> Layout<'a> {
    fn new(bytes: &'a [u8], limits: &Limits<'_>) -> Result<Self, ScanError> {
        Limits::check("the file", bytes.len() as u64, limits.file_bytes)?;
        let mut image = Image::parse(bytes)?;
        if image.sections.is_empty() {
            return Err(ScanError::NoCode);
        }
        Limits::check("its code", image.code_bytes as u64, limits.code_bytes)?;
        let symbols = symbols::read(&image.file, bytes.len(), limits, &mut image.partial)?;
        let unwind = image.unwind(bytes);
        let order = in_order(image.kind, &symbols);
        let all = (symbols.as_slice(), order.as_slice());
        let sections = image.sections.iter();
        let ranges = sections.map(|section| stated(&image, section, all, &unwind)).collect();
        let mut layout = Layout { image, symbols, ranges, groups: Vec::new() };
        let numbers: Vec<usize> = (0..layout.image.sections.len()).collect();
        layout.groups = match layout.image.kind {
            Kind::Object => numbers.iter().map(|&one| (vec![one], layout.gaps(&[one]))).collect(),
            _ => vec![(numbers.clone(), layout.gaps(&numbers))],
        };
        Ok(layout)
    }

    fn gaps(&self, sections: &[usize]) -> Gaps {
        let of = |&number: &usize| {
            recover::gaps_of(self.image.sections[number].code, &self.ranges[number])
        };
        Gaps::new(sections.iter().flat_map(of).collect())
    }

    /// Adds a function to the file's sums and, if it is of the level, to its list.
    fn count(&self, file: &mut File, swept: &Swept) {
        let section = &self.image.sections[swept.section];
        let symbol = swept.range.symbol.map(|number| &self.symbols[number as usize]);
        let file_offset = section.offset + (swept.range.start - section.code.address);
        let place = Place {
            symbol: symbol.map(|symbol| &*symbol.name),
            section: (self.image.kind == Kind::Object).then_some(section.name.as_str()),
            file_offset: Some(file_offset),
        };
        keep(file, swept.range, &swept.analysis, &place);
    }
}

/// Names and places of a function.
pub(crate) struct Place<'a> {
    pub(crate) symbol: Option<&'a str>,
    pub(crate) section: Option<&'a str>,
    pub(crate) file_offset: Option<u64>,
}

/// Adds a function to the file. All with wide instructions are listed: the level is filtered by the
/// caller's [`Options`], after the sums.
pub(crate) fn keep(file: &mut File, range: Range, analysis: &Analysis, place: &Place<'_>) {
    keep_checks(file, range, analysis, place);
    if analysis.wide == 0 {
        return;
    }
    let counts = counts(analysis);
    let confidence = confidence(range.source, analysis);
    if confidence != Confidence::Low {
        file.counts.add(&counts);
        file.license_level = file.license_level.max(analysis.license_level);
        file.sustained_level = file.sustained_level.max(analysis.sustained_level);
        file.widest = file.widest.max(widest(analysis.widest));
        file.dirty_functions += u64::from(analysis.dirty.returns > 0);
    }
    file.listed.push(Function {
        name: None,
        symbol: place.symbol.map(str::to_string),
        address: range.start,
        file_offset: place.file_offset,
        section: place.section.map(str::to_string),
        size_bytes: range.end - range.start,
        source: range.source,
        confidence,
        license_level: analysis.license_level,
        sustained_level: analysis.sustained_level,
        widest: widest(analysis.widest),
        instructions: analysis.instructions.into(),
        counts,
        heavy_frac: analysis.density.map(|density| density.heavy_frac),
        in_loop: analysis.density.map(|density| density.in_loop),
        loops: analysis.loops,
        dirty_returns: analysis.dirty.returns,
        dirty_sse: analysis.dirty.sse,
        line: None,
    });
}

/// Adds the places where the function asks what the CPU can do.
fn keep_checks(file: &mut File, range: Range, analysis: &Analysis, place: &Place<'_>) {
    // What no one knows to be code asks nothing.
    if range.source == Source::Guess {
        return;
    }
    let asks = !(analysis.cpuid.is_empty() && analysis.xgetbv.is_empty());
    let function = place.symbol.filter(|_| asks).map(symbols::demangle);
    for (kind, sites) in [(Question::Cpuid, &analysis.cpuid), (Question::Xgetbv, &analysis.xgetbv)]
    {
        for &offset in sites {
            let is_named = file.checks.len() < CHECKS_NAMED_MAX;
            file.checks.push(Check {
                kind,
                address: range.start + u64::from(offset),
                file_offset: place.file_offset.map(|start| start + u64::from(offset)),
                function: function.clone().filter(|_| is_named),
            });
        }
    }
}

/// Checks whose function is named. Programs have some tens; a made-up file has half a million in a
/// function with a name of 64 KiB.
const CHECKS_NAMED_MAX: usize = 4096;

fn confidence(source: Source, analysis: &Analysis) -> Confidence {
    match source {
        Source::Guess => Confidence::Low,
        _ if analysis.unreached => Confidence::Low,
        source if source.is_stated() => Confidence::High,
        _ => Confidence::Medium,
    }
}

fn widest(width: Width) -> Widest {
    match width {
        Width::None => Widest::None,
        Width::Xmm => Widest::Xmm,
        Width::Ymm => Widest::Ymm,
        Width::Zmm => Widest::Zmm,
    }
}

fn counts(analysis: &Analysis) -> Counts {
    let lengths = |counts: analysis::Counts| {
        let [xmm, ymm, zmm] = counts.map(u64::from);
        ByLength { xmm, ymm, zmm }
    };
    Counts {
        heavy: lengths(analysis.heavy),
        light: lengths(analysis.light),
        tile: analysis.tile.into(),
        tile_multiply: analysis.tile_multiply.into(),
        vnni: analysis.vnni.into(),
        scatter: analysis.scatter.into(),
        gather: analysis.gather.into(),
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
    if section.name.starts_with(".plt") {
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

fn build_id(image: &Image<'_>) -> Option<String> {
    let id = image.file.build_id().ok()??;
    Some(id.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Work of one task: pieces of functions of one section.
pub(crate) struct Task {
    pub(crate) section: usize,
    pub(crate) pieces: Vec<Range>,
}

fn tasks(layout: &Layout<'_>, sections: &[usize]) -> Vec<Task> {
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

fn sweep_all(layout: &Layout<'_>, meter: &Meter<'_>) -> Result<Total, ScanError> {
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
        let seeds = [(Source::Entry, entries(layout)), (Source::Pointer, pointers(layout, gaps))];
        for &section in sections {
            let code = layout.image.sections[section].code;
            for function in recover::run(code, gaps, &seeds, &targets, meter)? {
                total.functions[function.range.source as usize] += 1;
                if let Some(analysis) = function.analysis {
                    total.swept.push(Swept { section, range: function.range, analysis });
                }
            }
        }
    }
    Ok(total)
}

impl Total {
    fn add(&mut self, part: Total) {
        self.swept.extend(part.swept);
        for (sum, more) in self.functions.iter_mut().zip(part.functions) {
            *sum += more;
        }
    }
}

/// `sweep` may have been used for other tasks: what it remembers of them makes it faster, and
/// changes nothing.
pub(crate) fn sweep(
    task: &Task,
    code: Code<'_>,
    gaps: &Gaps,
    sweep: &mut Sweep,
    meter: &Meter<'_>,
) -> Result<(Total, Targets), ScanError> {
    sweep_those(task, code, gaps, sweep, screen::needs_decoding, meter)
}

/// Whether a range of code has to be decoded.
type Needs = fn(&mut Decoder<'_>, Code<'_>, (usize, usize), &Gaps) -> bool;

fn sweep_those(
    task: &Task,
    code: Code<'_>,
    gaps: &Gaps,
    sweep: &mut Sweep,
    needs: Needs,
    meter: &Meter<'_>,
) -> Result<(Total, Targets), ScanError> {
    let mut total = Total::default();
    let mut targets = Targets::default();
    let mut decoder = decoder(code);
    for &range in &task.pieces {
        let start = (range.start - code.address) as usize;
        let end = (range.end - code.address) as usize;
        total.functions[range.source as usize] += 1;
        meter.spend(SCREEN_COST.max((range.end - range.start) / SCREEN_COST))?;
        if code.bits == 64 && !needs(&mut decoder, code, (start, end), gaps) {
            continue;
        }
        meter.spend(range.end - range.start)?;
        sweep.run(&mut decoder, code, (start, end), Until::Range, gaps, &mut targets);
        if let Some(analysis) = analysis::analyse(sweep) {
            total.swept.push(Swept { section: task.section, range, analysis });
        }
    }
    Ok((total, targets))
}

/// Screening takes an eighth of what decoding takes, and each function, however short, as much as 8
/// bytes.
const SCREEN_COST: u64 = 8;

fn entries(layout: &Layout<'_>) -> Vec<u64> {
    let mut entries = vec![layout.image.file.entry()];
    if layout.image.kind != Kind::Object {
        let starts = layout
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
fn pointers(layout: &Layout<'_>, gaps: &Gaps) -> Vec<u64> {
    let file = &layout.image.file;
    let mut found = Vec::new();
    if layout.image.kind == Kind::Object {
        return found;
    }
    for (_, relocation) in file.dynamic_relocations().into_iter().flatten() {
        let address = relocation.addend() as u64;
        if !relocation.has_implicit_addend() && gaps.wants(address) {
            found.push(address);
        }
    }
    let word = (layout.image.bits / 8) as usize;
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
    let seeds = [(Source::Entry, entries(&layout)), (Source::Pointer, pointers(&layout, gaps))];
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

#[cfg(test)]
mod tests {
    use super::*;

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
