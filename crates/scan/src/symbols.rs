// SPDX-License-Identifier: MIT OR Apache-2.0
//! Names and ranges of functions, from the symbol tables that a file has.
//!
//! A stripped file may carry its symbols compressed, as a small ELF file in `.gnu_debugdata` (Fedora's
//! "mini debug info"). The size that it unpacks to is limited: it comes from the file.

use std::io::{self, Write};

use object::elf::{STB_LOCAL, STT_FUNC, STT_GNU_IFUNC, STT_NOTYPE};
use object::{File, Object, ObjectSection, ObjectSymbol, SymbolFlags};
use report::scan::Source;

/// What `.gnu_debugdata` may unpack to: that of a browser is 20 MB.
const DEBUGDATA_MAX_BYTES: usize = 256 << 20;

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

/// All symbols of a file that may be functions.
pub(crate) fn read(file: &File<'_>, partial: &mut Vec<String>) -> Vec<Symbol> {
    let mut symbols: Vec<Symbol> =
        file.symbols().filter_map(|symbol| of(&symbol, Source::Symtab)).collect();
    symbols.extend(file.dynamic_symbols().filter_map(|symbol| of(&symbol, Source::Dynsym)));
    if let Some(section) = file.section_by_name(".gnu_debugdata") {
        match section.data().map_err(|error| error.to_string()).and_then(unpack) {
            Ok(unpacked) => symbols.extend(from_debugdata(&unpacked)),
            Err(why) => partial.push(format!(".gnu_debugdata cannot be unpacked: {why}")),
        }
    }
    symbols
}

fn of<'a>(symbol: &impl ObjectSymbol<'a>, source: Source) -> Option<Symbol> {
    let SymbolFlags::Elf { st_info, .. } = symbol.flags() else { return None };
    let section = symbol.section_index()?;
    let name = symbol.name().ok().filter(|name| !name.is_empty())?;
    let (kind, binding) = (st_info & 15, st_info >> 4);
    let is_function = match kind {
        STT_FUNC | STT_GNU_IFUNC => true,
        // Functions of assembly may have no type. Their local labels have none either: `name.loop`,
        // and whatever else is not global.
        STT_NOTYPE => binding != STB_LOCAL && !name.contains('.'),
        _ => false,
    };
    let size = if kind == STT_NOTYPE { 0 } else { symbol.size() };
    is_function.then(|| Symbol {
        name: name.into(),
        address: symbol.address(),
        size,
        section: Some(section.0),
        source,
    })
}

fn from_debugdata(unpacked: &[u8]) -> Vec<Symbol> {
    let Ok(file) = File::parse(unpacked) else { return Vec::new() };
    file.symbols().filter_map(|symbol| of(&symbol, Source::Debugdata)).collect()
}

fn unpack(packed: &[u8]) -> Result<Vec<u8>, String> {
    let mut unpacked = Bounded(Vec::new());
    let mut rest = packed;
    lzma_rs::xz_decompress(&mut rest, &mut unpacked).map_err(|error| error.to_string())?;
    Ok(unpacked.0)
}

struct Bounded(Vec<u8>);

impl Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.0.len() + bytes.len() > DEBUGDATA_MAX_BYTES {
            return Err(io::Error::other("it is larger than 256 MiB"));
        }
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A name as people write it, if it is one of C++ or Rust.
pub(crate) fn demangle(symbol: &str) -> String {
    if let Ok(rust) = rustc_demangle::try_demangle(symbol) {
        return format!("{rust:#}");
    }
    // Part of a function that the compiler moved away: `_Z3foov.cold`.
    let (base, suffix) = symbol.find('.').map_or((symbol, ""), |at| symbol.split_at(at));
    let plain = || symbol.to_string();
    if !base.starts_with("_Z") {
        return plain();
    }
    let options = cpp_demangle::DemangleOptions::new().no_params().no_return_type();
    let parsed = cpp_demangle::Symbol::new(base.as_bytes());
    parsed
        .ok()
        .and_then(|name| name.demangle_with_options(&options).ok())
        .map_or_else(plain, |name| format!("{name}{suffix}"))
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
