// SPDX-License-Identifier: MIT OR Apache-2.0
//! Code in the memory of a process that comes from no file: what a just-in-time compiler wrote.
//!
//! Such code has no symbols. Compilers that want to be profiled write the ranges of their functions
//! to a file for perf (`/tmp/perf-PID.map`: start, length and name in each line); without it,
//! everything here is a guess.

use report::scan::{File, Source};

use crate::bounds::Range;
use crate::findings::{Place, keep, summarise};
use crate::image::ADDRESSES_END;
use crate::limits::PIECE_MAX_BYTES;
use crate::pieces::{Task, sweep};
use crate::recover::{self, Gaps};
use crate::sweep::{Code, Sweep};
use crate::{Limits, Meter, Options, ScanError};

/// A function that a just-in-time compiler names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JitSymbol {
    /// Address of its first byte.
    pub address: u64,
    /// Its length.
    pub size_bytes: u64,
    /// Its name.
    pub name: String,
}

/// The lines of a perf map that make sense, ascending and apart from each other. Of two that
/// overlap the one with the lower address is kept; of two with the same address the later line,
/// since it was written later.
#[must_use]
pub fn parse_perf_map(text: &str) -> Vec<JitSymbol> {
    let line = |line: &str| {
        let mut fields = line.splitn(3, ' ');
        let mut hexadecimal = || {
            let field = fields.next()?;
            u64::from_str_radix(field.strip_prefix("0x").unwrap_or(field), 16).ok()
        };
        let (address, size_bytes) = (hexadecimal()?, hexadecimal()?);
        let name = fields.next()?.trim().to_string();
        address.checked_add(size_bytes).filter(|_| size_bytes > 0)?;
        Some(JitSymbol { address, size_bytes, name })
    };
    let mut all: Vec<JitSymbol> = text.lines().rev().filter_map(line).collect();
    // Stable: of one address, the later line comes first.
    all.sort_by_key(|symbol| symbol.address);
    let mut kept: Vec<JitSymbol> = Vec::new();
    for symbol in all {
        if kept.last().is_none_or(|last| last.address + last.size_bytes <= symbol.address) {
            kept.push(symbol);
        }
    }
    kept
}

/// Scans executable memory at `address`; `path` is only shown.
///
/// # Errors
/// When there is no code, or it cannot be at that address.
pub fn scan_memory(
    path: &str,
    address: u64,
    bytes: &[u8],
    symbols: &[JitSymbol],
    options: &Options,
) -> Result<File, ScanError> {
    scan_memory_within(path, address, bytes, symbols, options, &Limits::default())
}

/// The same within limits.
///
/// # Errors
/// As [`scan_memory`], and when it is beyond a limit or the scan is stopped.
pub fn scan_memory_within(
    path: &str,
    address: u64,
    bytes: &[u8],
    symbols: &[JitSymbol],
    options: &Options,
    limits: &Limits<'_>,
) -> Result<File, ScanError> {
    if bytes.is_empty() {
        return Err(ScanError::NoCode);
    }
    if address.checked_add(bytes.len() as u64).is_none_or(|end| end > ADDRESSES_END) {
        return Err(ScanError::Broken("it reaches beyond the last address".into()));
    }
    Limits::check("its code", bytes.len() as u64, limits.code_bytes)?;
    let meter = &Meter::new(limits);
    let code = Code { bytes, address, bits: 64 };
    let ranges = ranges(code, symbols);
    let task = Task { section: 0, pieces: ranges.clone() };
    let gaps = Gaps::new(recover::gaps_of(code, &ranges));
    let (total, targets) = sweep(&task, code, &gaps, &mut Sweep::default(), meter)?;
    let found = recover::run(code, &gaps, &[], &targets, meter)?;

    let mut file = File::new(path, "memory", bytes.len() as u64);
    let mut functions = total.functions;
    let mut wide = [0; Source::ALL.len()];
    let recovered = found.into_iter().map(|function| {
        functions[function.range.source as usize] += 1;
        (function.range, function.analysis)
    });
    let swept = total.swept.into_iter().map(|swept| (swept.range, Some(swept.analysis)));
    let all: Vec<_> = swept.chain(recovered).collect();
    for (range, analysis) in all {
        let Some(analysis) = analysis else { continue };
        wide[range.source as usize] += u64::from(analysis.wide);
        let symbol = range.symbol.map(|number| symbols[number as usize].name.as_str());
        keep(&mut file, range, &analysis, &Place { symbol, section: None, file_offset: None });
    }
    file.functions = functions.iter().sum();
    summarise(&mut file, &functions, &wide);
    options.arrange(&mut file);
    Ok(file)
}

/// The symbols that lie in the code, and not in one before them.
fn ranges(code: Code<'_>, symbols: &[JitSymbol]) -> Vec<Range> {
    let numbered = symbols.iter().enumerate();
    let mut at = code.address;
    let inside = numbered.filter(|(_, symbol)| {
        let end = symbol.address.checked_add(symbol.size_bytes).filter(|end| *end <= code.end());
        let fits = symbol.address >= at && symbol.size_bytes <= PIECE_MAX_BYTES;
        at = end.filter(|_| fits).unwrap_or(at);
        fits && end.is_some()
    });
    inside
        .map(|(number, symbol)| Range {
            start: symbol.address,
            end: symbol.address + symbol.size_bytes,
            source: Source::PerfMap,
            symbol: Some(number as u32),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Overlapping and broken lines are left out; the later of two lines holds.
    #[test]
    fn perf_maps_are_read() {
        let text =
            "1000 20 old\nrubbish\n2000 0 empty\n1000 10 new name\n1008 10 overlaps\nfff0 zz x\n";
        let symbols = parse_perf_map(text);
        assert_eq!(
            symbols,
            [JitSymbol { address: 0x1000, size_bytes: 0x10, name: "new name".into() }]
        );
    }

    /// Code with a map is attributed; without one it is a guess.
    #[test]
    fn a_map_makes_the_difference() {
        // vmulps zmm0, zmm1, zmm2; vzeroupper; ret
        let code = [0x62, 0xf1, 0x74, 0x48, 0x59, 0xc2, 0xc5, 0xf8, 0x77, 0xc3];
        let symbols = [JitSymbol { address: 0x7000, size_bytes: 10, name: "jitted".into() }];
        let options = Options::default();
        let known = scan_memory("jit", 0x7000, &code, &symbols, &options).unwrap();
        assert_eq!((known.found, known.license_level, known.coverage_pct), (1, 2, Some(100.0)));
        let guessed = scan_memory("jit", 0x7000, &code, &[], &options).unwrap();
        assert_eq!((guessed.found, guessed.license_level, guessed.coverage_pct), (0, 0, Some(0.0)));
        assert_eq!(guessed.listed.len(), 1);
    }
}
