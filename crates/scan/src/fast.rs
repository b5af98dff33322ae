// SPDX-License-Identifier: MIT OR Apache-2.0
//! Lengths of the commonest instructions, without a full decoder.
//!
//! **Problem.** iced-x86 decodes 125 to 195 MB of code a second here; most of that is spent on
//! instructions of which the scanner only needs to know where the next one begins.
//!
//! **Idea.** In 64-bit code the opcode alone tells, for the common instructions without VEX or EVEX
//! prefix, whether a ModRM byte and how large a constant follow. A table holds that. Whatever is not in
//! it, has another prefix than 66, REX, F2 or F3 in their usual places, or is wrong in some form, is
//! left to iced-x86 ([`Kind::Slow`]); so is everything with VEX, EVEX or XOP.
//!
//! **Why this is exact.** The result is one of few properties of the opcode bytes, prefixes, ModRM and
//! SIB, and a test tries every combination of them against iced-x86: same length, same kind.
//!
//! ```text
//! entry, 16 bits:  kind (4) | only (2) | constant (3) | has ModRM (1) | 66 allowed (1)
//! ```

/// What kind of instruction it is, as far as the scanner cares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kind {
    /// Not known here.
    Slow,
    /// None of the others.
    Plain,
    /// Legacy SSE with an xmm register.
    Sse,
    /// Conditional branch.
    Branch,
    /// Unconditional jump to an address.
    Jump,
    /// Call of an address.
    Call,
    /// Return.
    Return,
    /// Jump through a register or memory.
    IndirectJump,
    /// `lea` of an address relative to the instruction.
    Address,
    /// `int3`, `ud2`.
    Trap,
    /// `cpuid`.
    Cpuid,
    /// Group 5 (FF): increments, calls, jumps, pushes.
    Group5,
}

const KINDS: [Kind; 12] = [
    Kind::Slow,
    Kind::Plain,
    Kind::Sse,
    Kind::Branch,
    Kind::Jump,
    Kind::Call,
    Kind::Return,
    Kind::IndirectJump,
    Kind::Address,
    Kind::Trap,
    Kind::Cpuid,
    Kind::Group5,
];

/// An instruction's length and kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Step {
    /// In bytes; of no meaning if it is [`Kind::Slow`].
    pub(crate) length: usize,
    pub(crate) kind: Kind,
    /// Of [`Kind::Branch`], `Jump`, `Call` and `Address`: the target relative to the next instruction.
    pub(crate) target: i32,
}

const SLOW: Step = Step { length: 0, kind: Kind::Slow, target: 0 };

/// Bytes that [`decode`] may look at.
pub(crate) const WINDOW: usize = 16;

type Entry = u16;

const MODRM: Entry = 1 << 9;
const ALLOW_66: Entry = 1 << 10;
/// Plain or SSE, and its length does not depend on more than lengths.
const SIMPLE: Entry = 1 << 11;
/// Only with an operand in memory, or only without.
const MEMORY: Entry = 1 << 4;
const REGISTER: Entry = 2 << 4;
/// Constants: one byte; four, or two with prefix 66; as large as the operand; for group 3 (F6, F7)
/// the first two, if the instruction is `test`.
const IMM8: Entry = 1 << 6;
const IMM32: Entry = 2 << 6;
const IMM_FULL: Entry = 3 << 6;
const TEST8: Entry = 4 << 6;
const TEST32: Entry = 5 << 6;
/// ... and for group 11 (C6, C7), whose first member alone is a move.
const MOVE8: Entry = 6 << 6;
const MOVE32: Entry = 7 << 6;
const CONSTANT: Entry = 7 << 6;

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

/// By row: opcodes of one byte, then those behind 0F; each without a prefix, with 66, F3, F2.
static TABLE: [[Entry; 256]; 8] = {
    let rows = [one(), one_66(), [0; 256], [0; 256], plain_two(), two_66(), two_f3(), two_f2()];
    let mut table = rows;
    let mut row = 0;
    while row < 8 {
        let mut opcode = 0;
        while opcode < 256 {
            table[row][opcode] = with_class(rows[row][opcode]);
            opcode += 1;
        }
        row += 1;
    }
    table
};

/// Marks what needs no look at anything but lengths.
const fn with_class(entry: Entry) -> Entry {
    let kind = entry & 15;
    let is_simple = kind == Kind::Plain as Entry || kind == Kind::Sse as Entry;
    let is_regular = entry & (MEMORY | REGISTER) == 0 && entry & CONSTANT <= IMM_FULL;
    if is_simple && is_regular { entry | SIMPLE } else { entry }
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
    fill(t, [0xc2, 0xc6], Sse, MODRM | IMM8)
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
    t = fill(t, [0x2c, 0x2d], Sse, MODRM | REGISTER);
    t = fill(t, [0x5c, 0x5d, 0x5e, 0x5f, 0x7c, 0x7d, 0xd0, 0xe6], Sse, MODRM);
    fill(t, [0x70, 0xc2], Sse, MODRM | IMM8)
}

/// Bytes of ModRM, SIB and displacement, by ModRM; a SIB may add four (see [`operand_length`]).
static OPERAND: [u8; 256] = {
    let mut t = [0; 256];
    let mut modrm = 0;
    while modrm < 256 {
        let sib = (modrm & 7 == 4 && modrm < 0xc0) as u8;
        t[modrm] = match modrm >> 6 {
            0 if modrm & 7 == 5 => 5,
            0 | 3 => 1 + sib,
            1 => 2 + sib,
            _ => 5 + sib,
        };
        modrm += 1;
    }
    t
};

/// Length of ModRM, SIB and displacement; 0 if there is no ModRM.
#[inline(always)]
fn operand_length(entry: Entry, modrm: u8, sib: u8) -> usize {
    let length = usize::from(OPERAND[usize::from(modrm)]);
    // A SIB without base register has four bytes of displacement instead.
    let no_base = (modrm & 0xc7 == 4) & (sib & 7 == 5);
    (length + 4 * usize::from(no_base)) * usize::from(entry & MODRM != 0)
}

/// Lengths of regular constants, four bits each, from the lowest: none, IMM8, IMM32, IMM_FULL; for
/// neither prefix 66 nor REX.W, for 66 alone, for REX.W.
const CONSTANTS: u64 = 0x8410_2210_4410;

/// Length and kind of the instruction that begins the window of 64-bit code.
///
/// There is no branch up to the kind of the entry: lengths of instructions are as good as random, and a
/// branch that is guessed wrong costs more than all of this. All bytes come from one load.
#[inline(always)]
pub(crate) fn decode(window: &[u8; WINDOW]) -> Step {
    let bytes = u64::from_le_bytes(window[..8].try_into().expect("a window has more"));
    let first = bytes as u8;
    let (is_66, is_f3, is_f2) = (first == 0x66, first == 0xf3, first == 0xf2);
    let row = usize::from(is_66) + 2 * usize::from(is_f3) + 3 * usize::from(is_f2);
    let has_prefix = u32::from(is_66 | is_f3 | is_f2);
    let bytes = bytes >> (8 * has_prefix);
    let has_rex = u32::from(bytes as u8 & 0xf0 == 0x40);
    let full = has_rex as usize & (bytes >> 3) as usize;
    let bytes = bytes >> (8 * has_rex);
    let is_two = u32::from(bytes as u8 == 0x0f);
    let bytes = bytes >> (8 * is_two);
    let entry = TABLE[row + 4 * is_two as usize][usize::from(bytes as u8)];
    let operand = (has_prefix + has_rex + is_two + 1) as usize;
    let length = operand + operand_length(entry, (bytes >> 8) as u8, (bytes >> 16) as u8);
    let mode = (usize::from(is_66) & !full) + 2 * full;
    if entry & SIMPLE != 0 {
        let constant = CONSTANTS >> (16 * mode + 4 * usize::from(entry >> 6 & 3)) & 15;
        let kind = if entry & 15 == Kind::Sse as Entry { Kind::Sse } else { Kind::Plain };
        return Step { length: length + constant as usize, kind, target: 0 };
    }
    finish(window, (operand, length), entry, mode)
}

/// The same where more than lengths matter.
fn finish(window: &[u8; WINDOW], (operand, at): (usize, usize), entry: Entry, mode: usize) -> Step {
    let mut kind = KINDS[usize::from(entry & 15).min(KINDS.len() - 1)];
    let modrm = window[operand & 15];
    let refused = if modrm >= 0xc0 { MEMORY } else { REGISTER };
    if kind == Kind::Slow || entry & MODRM != 0 && entry & refused != 0 {
        return SLOW;
    }
    let regular =
        |class: Entry| (CONSTANTS >> (16 * mode + 4 * usize::from(class >> 6 & 3)) & 15) as usize;
    let reg = modrm >> 3 & 7;
    let constant = match entry & CONSTANT {
        TEST8 | TEST32 if reg >= 2 => 0,
        TEST8 if reg == 0 => 1,
        TEST32 if reg == 0 => regular(IMM32),
        MOVE8 if reg == 0 => 1,
        MOVE32 if reg == 0 => regular(IMM32),
        class if class <= IMM_FULL => regular(class),
        _ => return SLOW,
    };
    let mut target = 0;
    match kind {
        Kind::Group5 => {
            kind = match reg {
                0 | 1 | 2 | 6 => Kind::Plain,
                4 => Kind::IndirectJump,
                _ => return SLOW,
            };
        }
        Kind::Address if modrm & 0xc7 != 5 => kind = Kind::Plain,
        Kind::Address => target = word_at(window, operand + 1),
        Kind::Branch | Kind::Jump | Kind::Call => {
            let byte = window[at & 15] as i8;
            target = if constant == 1 { byte.into() } else { word_at(window, at) };
        }
        _ => {}
    }
    Step { length: at + constant, kind, target }
}

fn word_at(window: &[u8; WINDOW], at: usize) -> i32 {
    let at = at.min(WINDOW - 4); // no instruction that has one is longer
    i32::from_le_bytes(window[at..at + 4].try_into().expect("four of them"))
}

#[cfg(test)]
mod tests;
