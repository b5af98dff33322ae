// SPDX-License-Identifier: MIT OR Apache-2.0
//! Lengths of the commonest instructions, without a full decoder.
//!
//! **Problem.** iced-x86 decodes 125 to 195 MB of code a second here; most of that is spent on
//! instructions of which the scanner only needs to know where the next one begins.
//!
//! **Idea.** In 64-bit code the opcode alone determines, for the common instructions without VEX or
//! EVEX prefix, whether a ModRM byte and how large a constant follow. A table has this. Whatever is
//! not in it, has another prefix than 66, REX, F2 or F3 in their usual places, or is wrong in some
//! form, is left to iced-x86 ([`Kind::Slow`]); so is everything with VEX, EVEX or XOP.
//!
//! **Why this is exact.** The result is one of few properties of the opcode bytes, prefixes, ModRM
//! and SIB, and a test tries every combination of them against iced-x86: same length, same kind.

mod table;

use table::*;

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
    /// The opcode goes on with a third byte (0F 38, 0F 3A).
    Third,
}

const KINDS: [Kind; 13] = [
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
    Kind::Third,
];

/// An instruction's length and kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Step {
    /// In bytes; of no meaning if it is [`Kind::Slow`].
    pub(crate) length: usize,
    pub(crate) kind: Kind,
    /// Of [`Kind::Branch`], `Jump`, `Call` and `Address`: the target relative to the next
    /// instruction.
    pub(crate) target: i32,
}

/// One that is not known.
pub(crate) const SLOW: Step = Step { length: 0, kind: Kind::Slow, target: 0 };

/// Bytes that there have to be from the begin of an instruction: as many as the longest has, and
/// one more.
pub(crate) const WINDOW: usize = 16;

/// Bytes of ModRM, SIB and displacement, where ModRM is the lowest of these bytes.
#[inline(always)]
pub(crate) fn operand_length(bytes: u64) -> usize {
    usize::from(OPERAND[bytes as usize % OPERAND.len()])
}

/// An instruction up to its opcode.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Opcode {
    /// Place in the tables.
    place: usize,
    /// Bytes up to and with the opcode.
    length: usize,
    /// It has REX.W.
    full: bool,
    /// What follows it.
    rest: u64,
}

/// Finds the opcode of the instruction that begins the window of 64-bit code.
///
/// From here to the length of what is simple there is no branch except the prefixes, which are rare
/// or come in rows: lengths of instructions are as good as random, and a branch that is guessed
/// wrong costs more than all of this. All bytes come from one load.
#[inline(always)]
pub(crate) fn opcode(window: &[u8; WINDOW]) -> Opcode {
    let bytes = u64::from_le_bytes(window[..8].try_into().expect("a window has more"));
    let (prefix_row, prefix_bits) = match bytes as u8 {
        0x66 => (1, 8),
        0xf3 => (2, 8),
        0xf2 => (3, 8),
        _ => (0, 0),
    };
    let bytes = bytes >> prefix_bits;
    let rex_bits = 8 * u32::from(bytes as u8 & 0xf0 == 0x40);
    let full = bytes as u8 & 0xf8 == 0x48;
    let bytes = bytes >> rex_bits;
    let is_two = bytes as u8 == 0x0f;
    let two_bits = 8 * u32::from(is_two);
    let bytes = bytes >> two_bits;
    let row = prefix_row + 4 * usize::from(is_two);
    Opcode {
        place: 256 * row + usize::from(bytes as u8),
        length: ((prefix_bits + rex_bits + two_bits) / 8 + 1) as usize,
        full,
        rest: bytes >> 8,
    }
}

impl Opcode {
    /// Length, and whether it is SSE and not plain, of an instruction that needs no closer look.
    #[inline(always)]
    pub(crate) fn simple(&self) -> Option<(usize, bool)> {
        let quick = QUICK[self.place % QUICK.len()];
        let constant = usize::from(quick >> (4 * u32::from(self.full)) & 15);
        let operand = operand_length(self.rest) & usize::from(quick >> 8 & 15);
        let length = self.length + operand + constant;
        (quick & QUICK_KNOWN != 0).then_some((length, quick & QUICK_SSE != 0))
    }

    /// Length and kind of it.
    pub(crate) fn step(&self) -> Step {
        let entry = self.entry();
        match KINDS[usize::from(entry & 15) % KINDS.len()] {
            Kind::Slow => SLOW,
            Kind::Third => {
                let map = if self.place % 256 == 0x38 { 2 } else { 3 };
                let row = 4 * map + self.place / 256 % 4;
                let place = 256 * row + usize::from(self.rest as u8);
                let third =
                    Opcode { place, length: self.length + 1, rest: self.rest >> 8, ..*self };
                third.finish(third.entry())
            }
            kind @ (Kind::Branch | Kind::Jump | Kind::Call) if entry & CONSTANT == IMM8 => {
                Step { length: self.length + 1, kind, target: (self.rest as i8).into() }
            }
            kind @ (Kind::Branch | Kind::Jump | Kind::Call) => {
                Step { length: self.length + 4, kind, target: self.rest as i32 }
            }
            _ => self.finish(entry),
        }
    }

    fn entry(&self) -> Entry {
        TABLE[self.place / 256][self.place % 256]
    }

    /// What the entry says of an instruction that may have ModRM.
    fn finish(&self, entry: Entry) -> Step {
        let mut kind = KINDS[usize::from(entry & 15) % KINDS.len()];
        let modrm = self.rest as u8;
        let refused = if modrm >= 0xc0 { MEMORY } else { REGISTER };
        if kind == Kind::Slow || entry & MODRM != 0 && entry & refused != 0 {
            return SLOW;
        }
        let has_modrm = usize::from(entry & MODRM != 0);
        let is_66 = self.place / 256 % 4 == 1;
        let regular = |class: Entry| constant(class, is_66, self.full);
        let reg = modrm >> 3 & 7;
        let constant = match entry & CONSTANT {
            TEST8 | TEST32 if reg >= 2 => 0,
            TEST8 if reg == 0 => 1,
            TEST32 if reg == 0 => regular(IMM32),
            MOVE8 if reg == 0 => 1,
            MOVE32 if reg == 0 => regular(IMM32),
            SHIFT if matches!(reg, 2 | 4 | 6) => 1,
            SHIFT64 if matches!(reg, 2 | 6) => 1,
            SHIFT128 if matches!(reg, 2 | 3 | 6 | 7) => 1,
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
            Kind::Address => target = (self.rest >> 8) as i32,
            _ => {}
        }
        let length = self.length + operand_length(self.rest) * has_modrm + constant;
        Step { length, kind, target }
    }
}

#[cfg(test)]
mod tests;
