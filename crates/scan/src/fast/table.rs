// SPDX-License-Identifier: MIT OR Apache-2.0
//! The table of lengths and kinds: opcodes of up to three bytes, after each of the prefixes 66, F3
//! and F2.
//!
//! ```text
//! entry, 16 bits:  66 allowed (1) | has ModRM (1) | constant (4) | only (2) | kind (4)
//! ```
//!
//! An opcode that is not in it has the entry 0, which is [`Kind::Slow`].

use super::Kind;

/// What the table says of an opcode.
pub(super) type Entry = u16;

pub(super) const MODRM: Entry = 1 << 10;
const ALLOW_66: Entry = 1 << 11;
/// Only with an operand in memory, or only without.
pub(super) const MEMORY: Entry = 1 << 4;
pub(super) const REGISTER: Entry = 2 << 4;
/// Constants: one byte; four, or two with prefix 66; as large as the operand; for group 3 (F6, F7)
/// the first two, if the instruction is `test`.
pub(super) const IMM8: Entry = 1 << 6;
pub(super) const IMM32: Entry = 2 << 6;
pub(super) const IMM_FULL: Entry = 3 << 6;
pub(super) const TEST8: Entry = 4 << 6;
pub(super) const TEST32: Entry = 5 << 6;
/// ... and for group 11 (C6, C7), whose first member alone is a move.
pub(super) const MOVE8: Entry = 6 << 6;
pub(super) const MOVE32: Entry = 7 << 6;
/// ... and for groups 12 to 14, shifts of vectors by one byte: of words and doublewords, of
/// quadwords, and of those of 128 bits.
pub(super) const SHIFT: Entry = 8 << 6;
pub(super) const SHIFT64: Entry = 9 << 6;
pub(super) const SHIFT128: Entry = 10 << 6;
pub(super) const CONSTANT: Entry = 15 << 6;

const fn fill<const N: usize>(
    mut table: [Entry; 256],
    opcodes: [u8; N],
    kind: Kind,
    form: Entry,
) -> [Entry; 256] {
    let mut i = 0;
    while i < N {
        table[opcodes[i] as usize] = kind as Entry | form;
        i += 1;
    }
    table
}

/// `first` to `last`.
const fn span(
    mut table: [Entry; 256],
    first: u8,
    last: u8,
    kind: Kind,
    form: Entry,
) -> [Entry; 256] {
    let mut opcode = first as usize;
    while opcode <= last as usize {
        table[opcode] = kind as Entry | form;
        opcode += 1;
    }
    table
}

/// Opcodes of one byte.
const fn one() -> [Entry; 256] {
    use Kind::{Address, Branch, Call, Group5, Jump, Plain, Return, Trap};
    const RM: Entry = MODRM | ALLOW_66;
    let mut t = [0; 256];
    // add, or, adc, sbb, and, sub, xor, cmp: four forms with ModRM, two with a constant.
    let mut row = 0;
    while row < 0x40 {
        t = span(t, row, row + 3, Plain, RM);
        t = fill(t, [row + 4], Plain, ALLOW_66 | IMM8);
        t = fill(t, [row + 5], Plain, ALLOW_66 | IMM32);
        row += 8;
    }
    t = span(t, 0x50, 0x5f, Plain, ALLOW_66); // push, pop
    t = fill(t, [0x63], Plain, RM); // movsxd
    t = fill(t, [0x68], Plain, ALLOW_66 | IMM32); // push
    t = fill(t, [0x69], Plain, RM | IMM32); // imul
    t = fill(t, [0x6a], Plain, ALLOW_66 | IMM8); // push
    t = fill(t, [0x6b], Plain, RM | IMM8); // imul
    t = span(t, 0x70, 0x7f, Branch, IMM8);
    t = fill(t, [0x80, 0x83, 0xc0, 0xc1], Plain, RM | IMM8);
    t = fill(t, [0x81], Plain, RM | IMM32);
    t = span(t, 0x84, 0x8b, Plain, RM); // test, xchg, mov
    t = fill(t, [0x8d], Address, RM | MEMORY); // lea
    t = span(t, 0x91, 0x99, Plain, ALLOW_66); // xchg, cdqe, cqo
    t = fill(t, [0x90], Plain, ALLOW_66);
    t = fill(t, [0xa8], Plain, ALLOW_66 | IMM8); // test
    t = fill(t, [0xa9], Plain, ALLOW_66 | IMM32);
    t = span(t, 0xb0, 0xb7, Plain, ALLOW_66 | IMM8); // mov
    t = span(t, 0xb8, 0xbf, Plain, ALLOW_66 | IMM_FULL);
    t = fill(t, [0xc3], Return, 0);
    t = fill(t, [0xc6], Plain, RM | MOVE8);
    t = fill(t, [0xc7], Plain, RM | MOVE32);
    t = fill(t, [0xc9], Plain, ALLOW_66); // leave
    t = fill(t, [0xcc], Trap, 0);
    t = span(t, 0xd0, 0xd3, Plain, RM); // shifts
    t = fill(t, [0xe8], Call, IMM32);
    t = fill(t, [0xe9], Jump, IMM32);
    t = fill(t, [0xeb], Jump, IMM8);
    t = fill(t, [0xf6], Plain, RM | TEST8);
    t = fill(t, [0xf7], Plain, RM | TEST32);
    fill(t, [0xff], Group5, MODRM)
}

/// By row: opcodes of one byte, those after 0F, 0F 38, 0F 3A; each without a prefix, with 66, F3,
/// F2.
#[rustfmt::skip]
pub(super) static TABLE: [[Entry; 256]; 16] = [
    one(),           one_66(),           [0; 256],  [0; 256],
    plain_two(),     two_66(),           two_f3(),  two_f2(),
    behind_38(0),    behind_38(0x66),    [0; 256],  [0; 256],
    behind_3a(0),    behind_3a(0x66),    [0; 256],  [0; 256],
];

/// The same for instructions that are plain or SSE in every form, and whose length needs nothing
/// but lengths; 0 for others. Together with [`OPERAND`] it is what most instructions need, and
/// small enough to stay in the cache:
///
/// ```text
/// 16 bits:  SSE (1) | known (1) | mask of ModRM's length (4) | constant: with REX.W (4) | without (4)
/// ```
pub(super) static QUICK: [u16; 8 * 256] = {
    let mut quick = [0; 8 * 256];
    let mut at = 0;
    while at < 8 * 256 {
        let (row, entry) = (at / 256, TABLE[at / 256][at % 256]);
        let kind = entry & 15;
        let is_simple = kind == Kind::Plain as Entry || kind == Kind::Sse as Entry;
        if is_simple && entry & (MEMORY | REGISTER) == 0 && entry & CONSTANT <= IMM_FULL {
            let narrow = constant(entry, row % 4 == 1, false) as u16;
            let full = constant(entry, row % 4 == 1, true) as u16;
            let modrm = if entry & MODRM != 0 { 15 << 8 } else { 0 };
            let sse = if kind == Kind::Sse as Entry { QUICK_SSE } else { 0 };
            quick[at] = QUICK_KNOWN | sse | modrm | full << 4 | narrow;
        }
        at += 1;
    }
    quick
};

pub(super) const QUICK_KNOWN: u16 = 1 << 12;
pub(super) const QUICK_SSE: u16 = 1 << 13;

/// Length of a regular constant, with prefix 66, with REX.W.
pub(super) const fn constant(entry: Entry, is_66: bool, full: bool) -> usize {
    match entry & CONSTANT {
        IMM8 => 1,
        IMM32 if is_66 && !full => 2,
        IMM32 => 4,
        IMM_FULL if full => 8,
        IMM_FULL if is_66 => 2,
        IMM_FULL => 4,
        _ => 0,
    }
}

/// The opcodes that prefix 66 makes no other instruction of.
const fn one_66() -> [Entry; 256] {
    let mut t = one();
    let mut opcode = 0;
    while opcode < 256 {
        if t[opcode] & ALLOW_66 == 0 {
            t[opcode] = 0;
        }
        opcode += 1;
    }
    t
}

const fn plain_two() -> [Entry; 256] {
    use Kind::{Branch, Cpuid, Plain, Sse, Trap};
    let mut t = general(0);
    t = fill(t, [0x0b], Trap, 0);
    t = span(t, 0x80, 0x8f, Branch, IMM32);
    t = fill(t, [0xa2], Cpuid, 0);
    t = span(t, 0xc8, 0xcf, Plain, 0); // bswap
    t = fill(t, [0x10, 0x11, 0x12, 0x14, 0x15, 0x16, 0x28, 0x29, 0x2e, 0x2f], Sse, MODRM);
    t = fill(t, [0x13, 0x17, 0x2b], Sse, MODRM | MEMORY);
    t = fill(t, [0x50], Sse, MODRM | REGISTER);
    t = span(t, 0x51, 0x5f, Sse, MODRM);
    t = fill(t, [0xc2, 0xc6], Sse, MODRM | IMM8);
    t = fill(t, [0x38, 0x3a], Kind::Third, 0);
    mmx(t)
}

/// Instructions of MMX: vectors of 64 bits.
const fn mmx(mut t: [Entry; 256]) -> [Entry; 256] {
    use Kind::Plain;
    t = span(t, 0x60, 0x6b, Plain, MODRM);
    t = fill(t, [0x6e, 0x6f, 0x74, 0x75, 0x76, 0x7e, 0x7f], Plain, MODRM);
    t = fill(t, [0x70, 0xc4], Plain, MODRM | IMM8);
    t = fill(t, [0x71, 0x72], Plain, MODRM | REGISTER | SHIFT);
    t = fill(t, [0x73], Plain, MODRM | REGISTER | SHIFT64);
    t = fill(t, [0x77], Plain, 0); // emms
    t = fill(t, [0xc5], Plain, MODRM | IMM8 | REGISTER);
    t = span(t, 0xd1, 0xd5, Plain, MODRM);
    t = fill(t, [0xd7, 0xf7], Plain, MODRM | REGISTER);
    t = span(t, 0xd8, 0xe5, Plain, MODRM);
    t = fill(t, [0xe7], Plain, MODRM | MEMORY);
    t = span(t, 0xe8, 0xef, Plain, MODRM);
    t = span(t, 0xf1, 0xf6, Plain, MODRM);
    span(t, 0xf8, 0xfe, Plain, MODRM)
}

/// SSSE3 and SSE4.
const fn behind_38(prefix: u8) -> [Entry; 256] {
    let t = [0; 256];
    if prefix == 0 {
        let t = span(t, 0x00, 0x0b, Kind::Plain, MODRM);
        return span(t, 0x1c, 0x1e, Kind::Plain, MODRM);
    }
    let t = span(t, 0x00, 0x0b, Kind::Sse, MODRM);
    let t = fill(t, [0x10, 0x14, 0x15, 0x17, 0x1c, 0x1d, 0x1e], Kind::Sse, MODRM);
    let t = span(t, 0x20, 0x25, Kind::Sse, MODRM);
    let t = fill(t, [0x28, 0x29, 0x2b], Kind::Sse, MODRM);
    let t = fill(t, [0x2a], Kind::Sse, MODRM | MEMORY);
    let t = span(t, 0x30, 0x35, Kind::Sse, MODRM);
    let t = span(t, 0x37, 0x41, Kind::Sse, MODRM);
    span(t, 0xdb, 0xdf, Kind::Sse, MODRM) // AES
}

const fn behind_3a(prefix: u8) -> [Entry; 256] {
    let t = [0; 256];
    if prefix == 0 {
        return fill(t, [0x0f], Kind::Plain, MODRM | IMM8);
    }
    let t = span(t, 0x08, 0x0f, Kind::Sse, MODRM | IMM8);
    let t = span(t, 0x14, 0x17, Kind::Sse, MODRM | IMM8);
    let t = fill(t, [0x20, 0x21, 0x22, 0x40, 0x41, 0x42, 0x44, 0xdf], Kind::Sse, MODRM | IMM8);
    span(t, 0x60, 0x63, Kind::Sse, MODRM | IMM8)
}

/// Integer instructions, which prefix 66 makes 16 bits wide.
const fn general(form: Entry) -> [Entry; 256] {
    use Kind::Plain;
    let mut t = [0; 256];
    t = span(t, 0x40, 0x4f, Plain, form | MODRM); // cmov
    t = span(t, 0x90, 0x9f, Plain, form | MODRM); // set
    t = fill(t, [0x1f], Plain, form | MODRM); // nop
    t = fill(t, [0xa3, 0xa5, 0xab, 0xad, 0xaf, 0xb3, 0xbb], Plain, form | MODRM);
    t = fill(t, [0xa4, 0xac], Plain, form | MODRM | IMM8); // shld, shrd
    t = fill(t, [0xb0, 0xb1, 0xb6, 0xb7, 0xbc, 0xbd], Plain, form | MODRM);
    fill(t, [0xbe, 0xbf, 0xc0, 0xc1], Plain, form | MODRM) // movsx, xadd
}

const fn two_66() -> [Entry; 256] {
    use Kind::Sse;
    let mut t = general(0);
    t = fill(t, [0x10, 0x11, 0x14, 0x15, 0x28, 0x29, 0x2e, 0x2f, 0x51], Sse, MODRM);
    t = fill(t, [0x12, 0x13, 0x16, 0x17, 0x2b, 0xe7], Sse, MODRM | MEMORY);
    t = fill(t, [0x50, 0xd7], Sse, MODRM | REGISTER);
    t = span(t, 0x54, 0x6f, Sse, MODRM);
    t = fill(t, [0x70, 0xc2, 0xc4, 0xc6], Sse, MODRM | IMM8);
    t = fill(t, [0x71, 0x72], Sse, MODRM | REGISTER | SHIFT);
    t = fill(t, [0x73], Sse, MODRM | REGISTER | SHIFT128);
    t = fill(t, [0x38, 0x3a], Kind::Third, 0);
    t = fill(t, [0xc5], Sse, MODRM | IMM8 | REGISTER);
    t = fill(t, [0x74, 0x75, 0x76, 0x7c, 0x7d, 0x7e, 0x7f], Sse, MODRM);
    t = span(t, 0xd0, 0xd6, Sse, MODRM);
    t = span(t, 0xd8, 0xe6, Sse, MODRM);
    t = span(t, 0xe8, 0xef, Sse, MODRM);
    t = span(t, 0xf1, 0xf6, Sse, MODRM);
    span(t, 0xf8, 0xfe, Sse, MODRM)
}

const fn two_f3() -> [Entry; 256] {
    use Kind::Sse;
    let mut t = [0; 256];
    t = fill(t, [0xb8, 0xbc, 0xbd], Kind::Plain, MODRM); // popcnt, tzcnt, lzcnt
    t = fill(t, [0x10, 0x11, 0x12, 0x16, 0x2a, 0x51, 0x52, 0x53], Sse, MODRM);
    t = fill(t, [0x2c, 0x2d], Sse, MODRM | REGISTER); // from memory, it names no xmm register
    t = span(t, 0x58, 0x5f, Sse, MODRM);
    t = fill(t, [0x6f, 0x7e, 0x7f, 0xe6], Sse, MODRM);
    fill(t, [0x70, 0xc2], Sse, MODRM | IMM8)
}

const fn two_f2() -> [Entry; 256] {
    use Kind::Sse;
    let mut t = [0; 256];
    t = fill(t, [0x10, 0x11, 0x12, 0x2a, 0x51, 0x58, 0x59, 0x5a], Sse, MODRM);
    t = fill(t, [0xf0], Sse, MODRM | MEMORY); // lddqu
    t = fill(t, [0x2c, 0x2d], Sse, MODRM | REGISTER);
    t = fill(t, [0x5c, 0x5d, 0x5e, 0x5f, 0x7c, 0x7d, 0xd0, 0xe6], Sse, MODRM);
    fill(t, [0x70, 0xc2], Sse, MODRM | IMM8)
}

/// Bytes of ModRM, SIB and displacement, by ModRM and the lowest three bits of the byte after it: a
/// SIB without base register has four bytes of displacement.
pub(super) static OPERAND: [u8; 8 * 256] = {
    let mut t = [0; 8 * 256];
    let mut at = 0;
    while at < 8 * 256 {
        let (modrm, base) = (at % 256, at / 256);
        let has_sib = modrm & 7 == 4 && modrm < 0xc0;
        let displacement = match modrm >> 6 {
            0 if modrm & 7 == 5 || has_sib && base == 5 => 4,
            0 | 3 => 0,
            1 => 1,
            _ => 4,
        };
        t[at] = 1 + has_sib as u8 + displacement;
        at += 1;
    }
    t
};
