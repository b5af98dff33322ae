// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a loaded object says of itself in its tables (System V ABI, and the Linux Standard Base's
//! "Symbol Versioning"): which version of a symbol it asks for, and whether it may be unloaded.
//!
//! ```text
//!   DT_SYMTAB[i].name == NAME, undefined     DT_VERSYM[i] = v     DT_VERNEED ... vernaux.other == v -> "OPENSSL_3.0.0"
//! ```

use core::ffi::{CStr, c_char};
use core::ptr::null;

use crate::tables::{
    DT_FLAGS_1, DT_GNU_HASH, DT_STRTAB, DT_SYMTAB, DT_VERNEED, DT_VERSYM, entries, name, place,
};

/// In `DT_FLAGS_1`: the object stays until the process ends (`-z nodelete`).
const DF_1_NODELETE: usize = 8;

/// The highest bit of a version's index says that the symbol is hidden.
const VERSION: u16 = 0x7fff;

#[repr(C)]
struct Need {
    version: u16,
    count: u16,
    file: u32,
    first: u32,
    next: u32,
}

#[repr(C)]
struct NeedVersion {
    hash: u32,
    flags: u16,
    other: u16,
    name: u32,
    next: u32,
}

/// What is known of an object.
struct Tables {
    strings: *const c_char,
    symbols: *const libc::Elf64_Sym,
    /// Symbols that are not defined come before this one.
    first_defined: u32,
    versions: *const u16,
    needs: *const Need,
}

/// The version of `symbol_name` that the object asks for whose dynamic section and first address
/// these are; `None` if it asks for none, or does not refer to the symbol.
///
/// # Safety
/// `dynamic` is null, or that of an object that the dynamic linker has loaded and that stays for
/// the call.
#[inline]
pub unsafe fn version(
    dynamic: *const (),
    base: usize,
    symbol_name: &CStr,
) -> Option<&'static CStr> {
    // SAFETY: the caller's promise: the tables are what the linker itself has used.
    unsafe {
        let tables = tables(dynamic, base)?;
        let is_it = |&i: &u32| {
            let symbol = &*tables.symbols.add(i as usize);
            name(tables.strings, symbol.st_name) == symbol_name
        };
        let symbol = (1..tables.first_defined).find(is_it)?;
        let wanted = *tables.versions.add(symbol as usize) & VERSION;
        named(&tables, wanted)
    }
}

/// Whether the object with this dynamic section is never unloaded.
///
/// # Safety
/// As [`version`].
#[inline]
pub unsafe fn is_pinned(dynamic: *const ()) -> bool {
    // SAFETY: the caller's promise.
    let mut entries = unsafe { entries(dynamic) };
    entries.any(|entry| entry.tag == DT_FLAGS_1 && entry.value & DF_1_NODELETE != 0)
}

/// # Safety
/// As [`version`].
#[inline]
unsafe fn tables(dynamic: *const (), base: usize) -> Option<Tables> {
    let mut tables = Tables {
        strings: null(),
        symbols: null(),
        first_defined: 0,
        versions: null(),
        needs: null(),
    };
    // SAFETY: the caller's promise.
    for entry in unsafe { entries(dynamic) } {
        let at = entry.value;
        match entry.tag {
            DT_STRTAB => tables.strings = place(at, base),
            DT_SYMTAB => tables.symbols = place(at, base),
            // SAFETY: a GNU hash table's second word is the index of its first symbol.
            DT_GNU_HASH => tables.first_defined = unsafe { *place::<u32>(at, base).add(1) },
            DT_VERSYM => tables.versions = place(at, base),
            DT_VERNEED => tables.needs = place(at, base),
            _ => {}
        }
    }
    let complete = !tables.strings.is_null()
        && !tables.symbols.is_null()
        && !tables.versions.is_null()
        && !tables.needs.is_null();
    complete.then_some(tables)
}

/// # Safety
/// As [`version`].
#[inline]
unsafe fn named(tables: &Tables, wanted: u16) -> Option<&'static CStr> {
    let mut need = tables.needs;
    // SAFETY: the linker's lists; a distance of 0 ends them.
    unsafe {
        loop {
            let mut version: *const NeedVersion = need.byte_add((*need).first as usize).cast();
            for _ in 0..(*need).count {
                if (*version).other & VERSION == wanted {
                    return Some(name(tables.strings, (*version).name));
                }
                version = version.byte_add((*version).next as usize);
            }
            if (*need).next == 0 {
                return None;
            }
            need = need.byte_add((*need).next as usize);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// This test is an object that asks glibc for symbols with versions.
    #[test]
    fn this_program_asks_glibc() {
        unsafe extern "C" {
            static _DYNAMIC: [u64; 2];
            static __ehdr_start: u8;
        }
        let (dynamic, base) = ((&raw const _DYNAMIC).cast(), (&raw const __ehdr_start).addr());
        // SAFETY: our own object's.
        let asked = |name| unsafe { version(dynamic, base, name) };
        let found = asked(c"write");
        assert!(found.is_some_and(|version| version.to_bytes().starts_with(b"GLIBC_2.")));
        assert_eq!(asked(c"no_such_symbol"), None);
    }

    #[test]
    fn no_object_asks_for_nothing() {
        // SAFETY: null is allowed.
        assert_eq!(unsafe { version(null(), 0, c"write") }, None);
    }
}
