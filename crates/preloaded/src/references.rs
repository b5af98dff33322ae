// SPDX-License-Identifier: MIT OR Apache-2.0
//! The places of a loaded object that the dynamic linker fills with functions' addresses, the
//! entries of its global offset table (System V ABI, AMD64, 4.4.1 and 5.2).
//!
//! ```text
//!   call f@PLT -> jmp *entry      R_X86_64_JUMP_SLOT  the function, or, until the first call, the
//!                                                     object's own code that looks it up
//!   call *entry, lea              R_X86_64_GLOB_DAT   the function
//! ```

use core::ffi::{CStr, c_char};
use core::ptr::null;
use core::sync::atomic::AtomicUsize;

use crate::tables::{
    DT_JMPREL, DT_PLTRELSZ, DT_RELA, DT_RELASZ, DT_STRTAB, DT_SYMTAB, entries, name, place,
};

const R_X86_64_GLOB_DAT: u32 = 6;
const R_X86_64_JUMP_SLOT: u32 = 7;
const STT_OBJECT: u8 = 1;
const STT_TLS: u8 = 6;

#[repr(C)]
struct Rela {
    offset: usize,
    /// Symbol << 32 | type.
    info: u64,
    addend: i64,
}

/// One entry.
pub struct Reference<'a> {
    /// Where it is.
    pub entry: &'a AtomicUsize,
    /// The function's name.
    pub name: &'a CStr,
    /// Whether the linker may look the function up at the first call.
    pub is_lazy: bool,
    /// Where the object itself has a function of this name.
    pub own: Option<usize>,
}

/// Hands all entries for functions to `f`, of the object with this dynamic section and first
/// address.
///
/// # Safety
/// `dynamic` is null, or that of an object that the dynamic linker has loaded and that stays for
/// the call.
#[inline]
pub unsafe fn each(dynamic: *const (), base: usize, mut f: impl FnMut(Reference<'_>)) {
    let mut strings: *const c_char = null();
    let mut symbols: *const libc::Elf64_Sym = null();
    let (mut lazy, mut lazy_bytes, mut others, mut others_bytes) = (null(), 0, null(), 0);
    // SAFETY: the caller's promise.
    for entry in unsafe { entries(dynamic) } {
        match entry.tag {
            DT_STRTAB => strings = place(entry.value, base),
            DT_SYMTAB => symbols = place(entry.value, base),
            DT_JMPREL => lazy = place::<Rela>(entry.value, base),
            DT_PLTRELSZ => lazy_bytes = entry.value,
            DT_RELA => others = place::<Rela>(entry.value, base),
            DT_RELASZ => others_bytes = entry.value,
            _ => {}
        }
    }
    if strings.is_null() || symbols.is_null() {
        return;
    }
    for (table, bytes) in [(lazy, lazy_bytes), (others, others_bytes)] {
        let count = if table.is_null() { 0 } else { bytes / size_of::<Rela>() };
        for i in 0..count {
            // SAFETY: within the table, by its length; symbol and name are the linker's own.
            unsafe {
                let rela = &*table.add(i);
                let kind = rela.info as u32;
                let symbol = &*symbols.add((rela.info >> 32) as usize);
                let holds_data = matches!(symbol.st_info & 15, STT_OBJECT | STT_TLS);
                if !matches!(kind, R_X86_64_GLOB_DAT | R_X86_64_JUMP_SLOT) || holds_data {
                    continue;
                }
                let entry: *const AtomicUsize =
                    core::ptr::with_exposed_provenance(base + rela.offset);
                let own = (symbol.st_shndx != 0).then(|| base + symbol.st_value as usize);
                let name = name(strings, symbol.st_name);
                let is_lazy = kind == R_X86_64_JUMP_SLOT;
                f(Reference { entry: &*entry, name, is_lazy, own });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::sync::atomic::Ordering;

    /// This test is an object that calls functions of glibc, by way of such entries.
    #[test]
    fn this_program_calls_glibc() {
        unsafe extern "C" {
            static _DYNAMIC: [u64; 2];
            static __ehdr_start: u8;
        }
        let (dynamic, base) = ((&raw const _DYNAMIC).cast(), (&raw const __ehdr_start).addr());
        let mut found = 0;
        // SAFETY: our own object's.
        unsafe {
            each(dynamic, base, |reference| {
                if reference.name == c"write" {
                    found = reference.entry.load(Ordering::Relaxed);
                    assert_eq!(reference.own, None);
                }
            });
            assert_eq!(found, libc::dlsym(libc::RTLD_DEFAULT, c"write".as_ptr()).addr());
            each(core::ptr::null(), 0, |_| panic!("no object has no entries"));
        }
    }
}
