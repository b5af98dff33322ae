// SPDX-License-Identifier: MIT OR Apache-2.0
//! The dynamic section of a loaded object (System V ABI).

use core::ffi::{CStr, c_char};

const DT_NULL: i64 = 0;
pub(crate) const DT_PLTRELSZ: i64 = 2;
pub(crate) const DT_STRTAB: i64 = 5;
pub(crate) const DT_SYMTAB: i64 = 6;
pub(crate) const DT_RELA: i64 = 7;
pub(crate) const DT_RELASZ: i64 = 8;
pub(crate) const DT_JMPREL: i64 = 23;
pub(crate) const DT_FLAGS_1: i64 = 0x6fff_fffb;
pub(crate) const DT_GNU_HASH: i64 = 0x6fff_fef5;
pub(crate) const DT_VERSYM: i64 = 0x6fff_fff0;
pub(crate) const DT_VERNEED: i64 = 0x6fff_fffe;

/// An entry.
#[repr(C)]
pub(crate) struct Dynamic {
    pub tag: i64,
    /// A number, or a place: see [`place`].
    pub value: usize,
}

/// The entries; none if there is no section.
///
/// # Safety
/// `dynamic` is null, or that of an object that the dynamic linker has loaded and that stays for
/// the call.
#[inline]
pub(crate) unsafe fn entries(dynamic: *const ()) -> impl Iterator<Item = &'static Dynamic> {
    let first: *const Dynamic = dynamic.cast();
    // SAFETY: the section ends in DT_NULL, and no one looks further.
    (0..)
        .map_while(move |i| unsafe { first.as_ref().map(|_| &*first.add(i)) })
        .take_while(|entry| entry.tag != DT_NULL)
}

/// The place that an entry's value is, for an object whose first address is `base`: glibc replaces
/// most offsets by addresses, but not all.
#[inline]
pub(crate) fn place<T>(value: usize, base: usize) -> *const T {
    let address = if value < base { base + value } else { value };
    core::ptr::with_exposed_provenance(address)
}

/// A name in a table of strings.
///
/// # Safety
/// `strings` is a loaded object's table, and `offset` from one of its other tables.
#[inline]
pub(crate) unsafe fn name(strings: *const c_char, offset: u32) -> &'static CStr {
    // SAFETY: the caller's promise.
    unsafe { CStr::from_ptr(strings.add(offset as usize)) }
}
