// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which bytes of a section belong to which function, as far as the file states it.
//!
//! Order of trust: symbols that state a size; unwind records, where no symbol is; symbols without
//! size, which end where the next thing begins. A symbol inside another one's range is a second
//! entry of it. Two that overlap are cut where the second begins. What is left are gaps: padding,
//! data, and in stripped assembly most of the code ([`crate::recover`]).
//!
//! ```text
//! symbols   [aaaaaaaa]        [bbbb]
//! unwind    [--------]  [-----][--------]         c: before the symbol without size
//! no size                                  c
//! result    [aaaaaaaa]gg[uuuuu][bbbbbbbb]gg[cccccc
//! ```

use report::scan::Source;

use crate::symbols::Symbol;

/// A function's range, in addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Range {
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) source: Source,
    /// Number of the symbol that names it.
    pub(crate) symbol: Option<u32>,
}

/// The ranges of one section, ascending and apart from each other.
pub(crate) fn ranges(
    (start, end): (u64, u64),
    symbols: &[(u32, &Symbol)],
    unwind: &[(u64, u64)],
) -> Vec<Range> {
    let mut ranges = sized(end, symbols);
    ranges = with_unwind(ranges, unwind, (start, end));
    name_unwound(&mut ranges, symbols);
    with_unsized(ranges, symbols, end)
}

/// Symbols with a size; `symbols` is sorted by address, longest first.
fn sized(end: u64, symbols: &[(u32, &Symbol)]) -> Vec<Range> {
    let mut ranges: Vec<Range> = Vec::new();
    for (number, symbol) in symbols.iter().filter(|(_, symbol)| symbol.size > 0) {
        let symbol_end = symbol.address.saturating_add(symbol.size).min(end);
        if let Some(last) = ranges.last_mut() {
            if symbol_end <= last.end || symbol.address == last.start {
                continue;
            }
            last.end = last.end.min(symbol.address);
        }
        ranges.push(Range {
            start: symbol.address,
            end: symbol_end,
            source: symbol.source,
            symbol: Some(*number),
        });
    }
    ranges
}

/// Adds the parts of unwind records that no symbol covers.
fn with_unwind(symbols: Vec<Range>, unwind: &[(u64, u64)], section: (u64, u64)) -> Vec<Range> {
    let mut merged: Vec<Range> = Vec::with_capacity(symbols.len() + unwind.len());
    let mut unwind = unwind.iter().peekable();
    let mut at = section.0;
    let mut cut: Option<(u64, u64)> = None;
    let mut symbols = symbols.into_iter().peekable();
    loop {
        let limit = symbols.peek().map_or(section.1, |next| next.start);
        while let Some((from, to)) =
            cut.take().or_else(|| unwind.next_if(|(from, _)| *from < limit).copied())
        {
            fill(&mut merged, (from.max(at), to.min(limit)), from);
            at = at.max(to.min(limit));
            if to > limit && limit < section.1 {
                // The rest is after the symbol.
                cut = Some((from, to));
                break;
            }
        }
        let Some(next) = symbols.next() else { return merged };
        at = at.max(next.end);
        merged.push(next);
    }
}

fn fill(merged: &mut Vec<Range>, (start, end): (u64, u64), record_start: u64) {
    if start >= end {
        return;
    }
    // A record that begins with a symbol and is longer: the symbol's size was too small.
    if let Some(last) = merged.last_mut()
        && last.end == start
        && last.start == record_start
    {
        last.end = end;
        return;
    }
    merged.push(Range { start, end, source: Source::Unwind, symbol: None });
}

/// Symbols without size name the records that begin there.
fn name_unwound(ranges: &mut [Range], symbols: &[(u32, &Symbol)]) {
    for range in ranges.iter_mut().filter(|range| range.symbol.is_none()) {
        let at = symbols.partition_point(|(_, symbol)| symbol.address < range.start);
        let here = symbols.get(at).filter(|(_, symbol)| symbol.address == range.start);
        range.symbol = here.map(|(number, _)| *number);
    }
}

/// Adds symbols without size where nothing else is.
fn with_unsized(ranges: Vec<Range>, symbols: &[(u32, &Symbol)], end: u64) -> Vec<Range> {
    let mut all = Vec::with_capacity(ranges.len());
    let mut open = symbols.iter().filter(|(_, symbol)| symbol.size == 0).peekable();
    let mut covered = 0;
    for limit in ranges.into_iter().map(Some).chain([None]) {
        let next = limit.map_or(end, |range| range.start);
        while let Some((number, symbol)) = open.next_if(|(_, symbol)| symbol.address < next) {
            let follows = open.peek().map_or(next, |(_, symbol)| symbol.address.min(next));
            if symbol.address >= covered && symbol.address < follows {
                let (start, symbol) = (symbol.address, (symbol.source, Some(*number)));
                all.push(Range { start, end: follows, source: symbol.0, symbol: symbol.1 });
            }
        }
        let Some(range) = limit else { break };
        covered = range.end;
        all.push(range);
    }
    all
}

/// What lies between the ranges.
pub(crate) fn gaps(ranges: &[Range], (start, end): (u64, u64)) -> Vec<(u64, u64)> {
    let mut gaps = Vec::new();
    let mut at = start;
    for range in ranges {
        if range.start > at {
            gaps.push((at, range.start));
        }
        at = at.max(range.end);
    }
    if at < end {
        gaps.push((at, end));
    }
    gaps
}

#[cfg(test)]
mod tests {
    use super::*;

    fn symbol(address: u64, size: u64) -> Symbol {
        let name = format!("f{address:x}").into();
        Symbol { name, address, size, section: Some(1), source: Source::Symtab }
    }

    /// Start, end and whether it has a name.
    fn found(symbols: &[(u64, u64)], unwind: &[(u64, u64)]) -> Vec<(u64, u64, bool)> {
        let symbols: Vec<Symbol> = symbols.iter().map(|&(at, size)| symbol(at, size)).collect();
        let numbered: Vec<(u32, &Symbol)> =
            symbols.iter().enumerate().map(|(i, symbol)| (i as u32, symbol)).collect();
        let ranges = ranges((0, 100), &numbered, unwind);
        assert!(ranges.is_sorted_by(|a, b| a.end <= b.start), "{ranges:?}");
        ranges.iter().map(|range| (range.start, range.end, range.symbol.is_some())).collect()
    }

    /// Second entries are no functions, overlaps are cut.
    #[test]
    fn symbols_with_sizes() {
        assert_eq!(found(&[(10, 20), (15, 5), (40, 10)], &[]), [(10, 30, true), (40, 50, true)]);
        assert_eq!(found(&[(10, 20), (20, 20)], &[]), [(10, 20, true), (20, 40, true)]);
        assert_eq!(found(&[(90, 50)], &[]), [(90, 100, true)]);
    }

    /// Unwind records fill what symbols leave, and lengthen a symbol that is too short.
    #[test]
    fn unwind_records_fill_up() {
        assert_eq!(found(&[(10, 10)], &[(10, 20), (30, 40)]), [(10, 20, true), (30, 40, false)]);
        assert_eq!(found(&[(10, 5)], &[(10, 20)]), [(10, 20, true)]);
        assert_eq!(
            found(&[(20, 10)], &[(15, 40)]),
            [(15, 20, false), (20, 30, true), (30, 40, false)]
        );
        assert_eq!(found(&[(10, 10), (20, 10)], &[(10, 30)]), [(10, 20, true), (20, 30, true)]);
    }

    /// A symbol without size ends where the next thing begins, and names the record it begins.
    #[test]
    fn symbols_without_sizes() {
        assert_eq!(
            found(&[(10, 0), (20, 0)], &[(30, 40)]),
            [(10, 20, true), (20, 30, true), (30, 40, false)]
        );
        assert_eq!(found(&[(30, 0), (35, 0)], &[(30, 40)]), [(30, 40, true)]);
    }
}
