// SPDX-License-Identifier: MIT OR Apache-2.0
//! Names and ranges of functions, from the symbol tables that a file has.
//!
//! A stripped file may carry its symbols compressed, as a small ELF file in `.gnu_debugdata`
//! (Fedora's "mini debug info"). The size that it unpacks to is limited before it is unpacked
//! ([`crate::xz`]).
//!
//! Symbols may share names, or the ends of names, so a table of a megabyte can name 40,000
//! functions by half a megabyte each. Names are kept up to [`NAME_MAX_BYTES`], and up to a total of
//! [`NAMES_PER_BYTE`] times the file's length. A mangled name can encode one that is exponentially
//! longer: it is shown as it is when it exceeds [`SHOWN_MAX_BYTES`].

use std::fmt::{self, Write};

use object::elf::{STB_LOCAL, STT_FUNC, STT_GNU_IFUNC, STT_NOTYPE};
use object::{File, Object, ObjectSection, ObjectSymbol, SymbolFlags};
use report::scan::Source;

use crate::debug::DebugFile;
use crate::{Limits, ScanError, xz};

/// `.gnu_debugdata` of a short file may unpack to that.
const UNPACKED_BYTES: u64 = 16 << 20;
/// Longest name of a symbol that is kept whole, bytes: templates of C++ reach some ten thousand.
const NAME_MAX_BYTES: usize = 32 << 10;
/// Bytes of all names together, for each byte of the file. Linkers let names share bytes, but not
/// many.
const NAMES_PER_BYTE: usize = 4;
/// Longest name that is shown, bytes.
const SHOWN_MAX_BYTES: usize = 64 << 10;

/// A symbol that may be a function.
#[derive(Clone, Debug)]
pub(crate) struct Symbol {
    pub(crate) name: Box<str>,
    pub(crate) address: u64,
    /// 0 if it is not known.
    pub(crate) size: u64,
    /// The section's number; in an object file, addresses are relative to it.
    pub(crate) section: Option<usize>,
    pub(crate) source: Source,
}

/// All symbols of a file of that length, and of its debug file, that may be functions.
pub(crate) fn read(
    (file, debug): (&File<'_>, Option<&DebugFile<'_>>),
    length: usize,
    limits: &Limits<'_>,
    partial: &mut Vec<String>,
) -> Result<Vec<Symbol>, ScanError> {
    let mut names = Names { left: length.saturating_mul(NAMES_PER_BYTE) };
    let mut symbols = Vec::new();
    names.add(file.symbols(), Source::Symtab, &mut symbols);
    names.add(file.dynamic_symbols(), Source::Dynsym, &mut symbols);
    limits.check_stop()?;
    if let Some(debug) = debug {
        names.left = names.left.saturating_add(debug.bytes().saturating_mul(NAMES_PER_BYTE));
        names.add(debug.file().symbols(), Source::DebugFile, &mut symbols);
        limits.check_stop()?;
    }
    if let Some(section) = file.section_by_name(".gnu_debugdata") {
        // Symbols are a part of what a file has: unpacked, they are shorter than the file was.
        let limit = limits.unpacked_bytes.min(UNPACKED_BYTES.max(length as u64));
        let packed = section.data().map_err(|error| error.to_string());
        match packed.and_then(|packed| unpack(packed, limit)) {
            Ok(unpacked) => names.add_unpacked(&unpacked, &mut symbols),
            Err(why) => partial.push(format!(".gnu_debugdata cannot be unpacked: {why}")),
        }
        limits.check_stop()?;
    }
    if names.left == 0 {
        partial.push("its symbols' names overlap: some were left out".into());
    }
    Ok(symbols)
}

/// Reads symbols, as long as names are left.
struct Names {
    left: usize,
}

impl Names {
    fn add<'a, S: ObjectSymbol<'a>>(
        &mut self,
        from: impl Iterator<Item = S>,
        source: Source,
        to: &mut Vec<Symbol>,
    ) {
        for symbol in from {
            if self.left == 0 {
                return;
            }
            to.extend(self.of(&symbol, source));
        }
    }

    fn add_unpacked(&mut self, unpacked: &[u8], to: &mut Vec<Symbol>) {
        let Ok(file) = File::parse(unpacked) else { return };
        self.left = self.left.saturating_add(unpacked.len().saturating_mul(NAMES_PER_BYTE));
        self.add(file.symbols(), Source::Debugdata, to);
    }

    fn of<'a>(&mut self, symbol: &impl ObjectSymbol<'a>, source: Source) -> Option<Symbol> {
        let SymbolFlags::Elf { st_info, .. } = symbol.flags() else { return None };
        let section = symbol.section_index()?;
        let (kind, binding) = (st_info & 15, st_info >> 4);
        if !matches!(kind, STT_FUNC | STT_GNU_IFUNC | STT_NOTYPE) {
            return None;
        }
        let bytes = symbol.name_bytes().ok()?;
        // The whole length: to find it took as long.
        self.left = self.left.saturating_sub(bytes.len());
        let name = str::from_utf8(bytes.get(..NAME_MAX_BYTES).unwrap_or(bytes)).ok()?;
        // Functions of assembly may have no type. Their local labels have none either: `name.loop`,
        // and whatever else is not global.
        let is_label = kind == STT_NOTYPE && (binding == STB_LOCAL || name.contains('.'));
        let size = if kind == STT_NOTYPE { 0 } else { symbol.size() };
        (!name.is_empty() && !is_label).then(|| Symbol {
            name: name.into(),
            address: symbol.address(),
            size,
            section: Some(section.0),
            source,
        })
    }
}

fn unpack(packed: &[u8], limit: u64) -> Result<Vec<u8>, String> {
    let bytes = xz::unpacked_bytes(packed).ok_or("it is not in order")?;
    if bytes > limit {
        return Err(format!("it unpacks to {bytes} bytes, and {limit} are the limit"));
    }
    let mut unpacked = Vec::new();
    let mut rest = packed;
    lzma_rs::xz_decompress(&mut rest, &mut unpacked).map_err(|error| error.to_string())?;
    Ok(unpacked)
}

/// A text that ends where it gets too long.
struct Bounded(String);

impl Write for Bounded {
    fn write_str(&mut self, part: &str) -> fmt::Result {
        if self.0.len() + part.len() > SHOWN_MAX_BYTES {
            return Err(fmt::Error);
        }
        self.0.push_str(part);
        Ok(())
    }
}

/// A name as people write it, if it is one of C++ or Rust.
pub(crate) fn demangle(symbol: &str) -> String {
    let mut shown = Bounded(String::new());
    if let Ok(rust) = rustc_demangle::try_demangle(symbol) {
        return write!(shown, "{rust:#}").map_or_else(|_| symbol.to_string(), |()| shown.0);
    }
    // Part of a function that the compiler moved away: `_Z3foov.cold`.
    let (base, suffix) = symbol.find('.').map_or((symbol, ""), |at| symbol.split_at(at));
    let plain = || symbol.to_string();
    if !base.starts_with("_Z") {
        return plain();
    }
    let options = cpp_demangle::DemangleOptions::new().no_params().no_return_type();
    let parsed = cpp_demangle::Symbol::new(base.as_bytes());
    let done = parsed.is_ok_and(|name| name.structured_demangle(&mut shown, &options).is_ok());
    if done { shown.0 + suffix } else { plain() }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Names of C++ and Rust become readable, others stay.
    #[test]
    fn names_are_demangled() {
        for (symbol, want) in [
            ("memcpy", "memcpy"),
            ("_ZN4x26510primitivesE", "x265::primitives"),
            ("_Z3addii.cold", "add.cold"),
            ("_ZN4core3fmt5Write9write_fmt17h0123456789abcdefE", "core::fmt::Write::write_fmt"),
            ("_Zrubbish", "_Zrubbish"),
        ] {
            assert_eq!(demangle(symbol), want);
        }
    }
}
