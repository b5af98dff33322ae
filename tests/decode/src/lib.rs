// SPDX-License-Identifier: MIT OR Apache-2.0
//! The trap module's decoder in user space, for its tests.
//!
//! The bytes are handed over at the end of a page with nothing after it, so a
//! read past the last byte kills the test.

mod guarded;

pub use guarded::Guarded;

/// `enum tlt_insn_kind` of kmod/decode.h.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The fault has another reason.
    NotWithheld,
    /// Withheld, and cheap.
    Light,
    /// Withheld, and raises the licence level when it is wide enough.
    Heavy,
    /// XSAVE and its relatives.
    Xsave,
    /// XRSTOR, XRSTORS.
    Xrstor,
    /// XGETBV.
    Xgetbv,
}

/// `struct tlt_insn` of kmod/decode.h.
#[repr(C)]
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Raw {
    kind: u8,
    length: u8,
    license_level: u8,
    reserved: u8,
    width_bits: u16,
    reserved2: u16,
    needs_xcr0: u64,
}

const _: () = assert!(size_of::<Raw>() == 16);

unsafe extern "C" {
    fn tlt_level_ahead(bytes: *const u8, n: u32, withheld: u64) -> u8;
    fn tlt_length(bytes: *const u8, n: u32) -> u32;
    fn tlt_decode(bytes: *const u8, n: u32, withheld: u64, long_mode: bool, out: *mut Raw) -> i32;
}

/// What the decoder says about an instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Insn {
    /// What it is.
    pub kind: Kind,
    /// In bytes; 0 = not measured.
    pub length: u8,
    /// The level it asks for.
    pub license_level: u8,
    /// Of its vectors; 0 = none.
    pub width_bits: u16,
    /// Components of XCR0 that it needs.
    pub needs_xcr0: u64,
}

/// The instruction goes on behind the last byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Truncated;

/// Decodes the first instruction of `bytes`.
///
/// # Errors
/// When it does not end within `bytes`.
///
/// # Panics
/// When the decoder breaks its interface.
pub fn decode(bytes: &[u8], withheld: u64, long_mode: bool) -> Result<Insn, Truncated> {
    let mut raw = Raw { kind: 0xff, reserved: 0xff, ..Raw::default() };
    let n = u32::try_from(bytes.len()).expect("a few bytes");
    // SAFETY: bytes has n readable bytes, and the decoder writes one struct.
    let code = unsafe { tlt_decode(bytes.as_ptr(), n, withheld, long_mode, &raw mut raw) };
    assert_eq!((raw.reserved, raw.reserved2), (0, 0), "all of *out is written");
    if code == -1 {
        assert_eq!(raw, Raw::default(), "a truncated instruction tells nothing");
        return Err(Truncated);
    }
    assert_eq!(code, 0, "the interface knows no other code");
    let kind = match raw.kind {
        0 => Kind::NotWithheld,
        1 => Kind::Light,
        2 => Kind::Heavy,
        3 => Kind::Xsave,
        4 => Kind::Xrstor,
        5 => Kind::Xgetbv,
        other => panic!("no kind {other}"),
    };
    Ok(Insn {
        kind,
        length: raw.length,
        license_level: raw.license_level,
        width_bits: raw.width_bits,
        needs_xcr0: raw.needs_xcr0,
    })
}

/// The highest licence level on the way ahead from the first instruction of 64-bit code.
///
/// # Panics
/// When there is more code than fits 32 bits.
#[must_use]
pub fn level_ahead(code: &[u8], withheld: u64) -> u8 {
    let n = u32::try_from(code.len()).expect("a few bytes");
    // SAFETY: code has n readable bytes.
    unsafe { tlt_level_ahead(code.as_ptr(), n, withheld) }
}

/// Length of the first instruction of 64-bit code; 0 if it is none that is measured.
///
/// # Panics
/// When there is more code than fits 32 bits.
#[must_use]
pub fn length(code: &[u8]) -> usize {
    let n = u32::try_from(code.len()).expect("a few bytes");
    // SAFETY: code has n readable bytes.
    unsafe { tlt_length(code.as_ptr(), n) as usize }
}
