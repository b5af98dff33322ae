// SPDX-License-Identifier: MIT OR Apache-2.0
//! Instructions with VEX and EVEX prefix that were decoded before, by their first bytes.
//!
//! **Problem.** [`crate::fast`] leaves everything with these prefixes to iced-x86, and in the
//! libraries that matter most (BLAS, codecs, ciphers) that is most of the code.
//!
//! **Idea.** Hand-written and unrolled kernels use few different instructions again and again. What
//! the scanner wants to know of one follows from its prefix, opcode and ModRM, at most six bytes,
//! and from the length of what ModRM asks for:
//!
//! ```text
//! C5      RvvvvLpp                    opcode  ModRM    4 bytes
//! C4      RXBmmmmm WvvvvLpp           opcode  ModRM    5
//! 62      RXBR0mmm Wvvvv1pp zLLbVaaa  opcode  ModRM    6
//! ```
//!
//! So these bytes are the key of a table, and what iced-x86 said when it met them first is the
//! value.
//!
//! **Registers.** Compilers and generators give the same instruction all sorts of registers, and in
//! most instructions they do not matter. So these are kept, and looked for first, by a key without
//! them: of ModRM only the two highest bits (registers or memory), of vvvv only whether all bits
//! are set, which it has to be where it means nothing; R, B and VEX's X not at all. R', V' and
//! EVEX's X stay: they say whether a register is one of those that have a dirty upper half. An
//! instruction is kept so ([`are_alike`]) if all registers that it names are vectors and none of
//! these bits is part of its opcode.
//!
//! A test compares remembered and decoded instructions for every opcode, with random registers and
//! random bytes after it.
//!
//! **What is not remembered.** Instructions with an index of vectors: whether they are valid
//! depends on the SIB. `vzeroupper`, which has no ModRM. What is no instruction.
//!
//! **Limits.** A key has one place in the table, so two that share it drive each other out: then it
//! is as slow as it was, and a little slower. The table lives as long as the sweeps that a thread
//! does in a row.

use iced_x86::{FlowControl, Instruction, OpKind, Register};

use crate::fast::{WINDOW, operand_length};
use crate::traits::Traits;

/// Places: 32 KiB of memory, which stay in the cache. Half as many are too few for a library, twice
/// as many no faster.
const PLACES: usize = 1 << 11;

/// What is known of an instruction.
#[derive(Clone, Copy, Debug, Default)]
struct Known {
    /// Bytes without ModRM, SIB and displacement.
    length: u32,
    traits: Traits,
}

/// The table.
#[derive(Debug)]
pub(crate) struct Memo {
    places: Box<[(u64, Known); PLACES]>,
}

/// No key, for keys begin with a prefix.
const NOBODY: u64 = 0;

/// Whether the first byte of an instruction of 64-bit code is a VEX or EVEX prefix.
#[inline(always)]
pub(crate) fn has_prefix(first: u8) -> bool {
    matches!(first, 0x62 | 0xc4 | 0xc5)
}

impl Default for Memo {
    fn default() -> Self {
        let places = vec![(NOBODY, Known::default()); PLACES];
        Memo { places: places.try_into().expect("as many") }
    }
}

impl Memo {
    /// Length and traits of the instruction at the begin of the window, which has one of our
    /// prefixes.
    #[inline(always)]
    pub(crate) fn find(&self, window: &[u8; WINDOW]) -> Option<(usize, Traits)> {
        let keys = Keys::of(window);
        let known = self.at(keys.alike()).or_else(|| self.at(keys.alone()))?;
        Some((known.length as usize + keys.operand_length(), known.traits))
    }

    #[inline(always)]
    fn at(&self, key: u64) -> Option<Known> {
        let (found, known) = self.places[place(key)];
        (found == key).then_some(known)
    }

    /// Remembers what iced-x86 said of it.
    pub(crate) fn keep(
        &mut self,
        window: &[u8; WINDOW],
        instruction: &Instruction,
        traits: Traits,
    ) {
        let keys = Keys::of(window);
        // vzeroupper and vzeroall
        let has_no_modrm = keys.map() == 1 && keys.opcode() == 0x77 && window[0] != 0x62;
        let goes_on = traits.matter() || instruction.flow_control() == FlowControl::Next;
        if has_no_modrm || instruction.is_vsib() || instruction.is_invalid() || !goes_on {
            return;
        }
        let key = if are_alike(&keys, instruction) { keys.alike() } else { keys.alone() };
        let length = (instruction.len() - keys.operand_length()) as u32;
        self.places[place(key)] = (key, Known { length, traits });
    }
}

/// Whether this instruction is the same with other registers.
fn are_alike(keys: &Keys, instruction: &Instruction) -> bool {
    let mut registers = (0..instruction.op_count())
        .filter(|&op| instruction.op_kind(op) == OpKind::Register)
        .map(|op| instruction.op_register(op));
    // Groups 12 to 14 have a part of their opcode in ModRM. In maps 5 and above there are
    // instructions whose registers have to differ.
    let is_group = keys.map() == 1 && matches!(keys.opcode(), 0x71..=0x73);
    keys.map() <= 3
        && !is_group
        && registers.clone().count() > 0
        && registers.all(Register::is_vector_register)
}

/// Where an instruction has what, by its prefix.
#[derive(Clone, Copy)]
struct Form {
    /// The bits of prefix and opcode that are part of a key without registers.
    alike: u64,
    /// vvvv.
    vvvv: u64,
    /// Bits before ModRM.
    modrm_at: u32,
}

impl Form {
    /// The one of this prefix. Chosen, and not looked up: the next instruction has to wait for it.
    #[inline(always)]
    fn of(prefix: u8) -> Self {
        match prefix {
            0xc5 => Form { alike: 0xff_07_ff, vvvv: 0x78 << 8, modrm_at: 24 },
            0xc4 => Form { alike: 0xff_87_1f_ff, vvvv: 0x78 << 16, modrm_at: 32 },
            _ => Form { alike: 0xff_ff_87_5f_ff, vvvv: 0x78 << 16, modrm_at: 40 },
        }
    }
}

/// The keys of an instruction.
struct Keys {
    bytes: u64,
    form: Form,
}

impl Keys {
    #[inline(always)]
    fn of(window: &[u8; WINDOW]) -> Self {
        let bytes = u64::from_le_bytes(window[..8].try_into().expect("a window has more"));
        Keys { bytes, form: Form::of(bytes as u8) }
    }

    /// Without registers.
    #[inline(always)]
    fn alike(&self) -> u64 {
        let mode = self.behind() & 0xc0;
        let is_unused = self.bytes & self.form.vvvv == self.form.vvvv;
        self.bytes & self.form.alike | mode << 56 | u64::from(is_unused) << 61
    }

    /// With all of prefix, opcode and ModRM; and a bit that the other keys do not have.
    fn alone(&self) -> u64 {
        self.bytes & (u64::MAX >> (56 - self.form.modrm_at)) | 1 << 60
    }

    /// Bytes of ModRM, SIB and displacement.
    #[inline(always)]
    fn operand_length(&self) -> usize {
        operand_length(self.behind())
    }

    /// ModRM, and what follows it.
    #[inline(always)]
    fn behind(&self) -> u64 {
        self.bytes >> self.form.modrm_at
    }

    fn opcode(&self) -> u8 {
        (self.bytes >> (self.form.modrm_at - 8)) as u8
    }

    /// Number of the table of opcodes.
    fn map(&self) -> u8 {
        match self.bytes as u8 {
            0xc5 => 1,
            0xc4 => (self.bytes >> 8) as u8 & 0x1f,
            _ => (self.bytes >> 8) as u8 & 7,
        }
    }
}

/// Fibonacci hashing (Knuth, vol. 3, 6.4): the upper bits of a product with 2^64 over the golden
/// ratio.
#[inline(always)]
fn place(key: u64) -> usize {
    (key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (u64::BITS - PLACES.trailing_zeros())) as usize
}

#[cfg(test)]
mod tests {
    use iced_x86::{Decoder, DecoderOptions};

    use super::*;
    use crate::facts;

    /// Marsaglia's xorshift64: bytes after the keys.
    struct Random(u64);

    impl Random {
        fn next(&mut self) -> u64 {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            self.0
        }

        /// Two windows that begin with these bytes; every other SIB has no base, or may have none.
        fn windows(&mut self, key: &[u8]) -> [[u8; WINDOW]; 2] {
            [(); 2].map(|()| {
                let mut window = [0; WINDOW];
                window[..8].copy_from_slice(&self.next().to_le_bytes());
                window[8..].copy_from_slice(&self.next().to_le_bytes());
                window[..key.len()].copy_from_slice(key);
                if self.next() & 1 == 0 {
                    window[key.len()] = window[key.len()] & 0xf8 | 5;
                }
                window
            })
        }
    }

    /// What the scanner makes of an instruction; `None`: it is none.
    fn decoded(window: &[u8; WINDOW]) -> (Instruction, Option<(usize, Traits)>) {
        let instruction = Decoder::new(64, window, DecoderOptions::NONE).decode();
        let traits = facts::all()[instruction.code() as usize].traits(&instruction);
        let known = (instruction.len(), traits);
        (instruction, (!instruction.is_invalid()).then_some(known))
    }

    /// Remembers the first of two instructions with one key; then the second is known as iced-x86
    /// would decode it, or not at all. Counts what was remembered.
    fn check(memo: &mut Memo, [first, second]: [[u8; WINDOW]; 2]) -> u32 {
        let (instruction, known) = decoded(&first);
        let Some(known) = known else { return 0 };
        memo.keep(&first, &instruction, known.1);
        let Some(found) = memo.find(&first) else { return 0 };
        assert_eq!(found, known, "{first:02x?}");
        assert_eq!(memo.find(&second), decoded(&second).1, "{first:02x?} {second:02x?}");
        1
    }

    /// The same for instructions with all sorts of registers in the place of the first one's. The
    /// second is known rightly, if it is known; counts those that are.
    fn check_alike(memo: &mut Memo, random: &mut Random, first: [u8; WINDOW]) -> u32 {
        let (instruction, known) = decoded(&first);
        // What is remembered of others is not taken for this one.
        assert!(memo.find(&first).is_none_or(|found| Some(found) == known), "{first:02x?}");
        let Some(known) = known else { return 0 };
        memo.keep(&first, &instruction, known.1);
        let mut second = first;
        let [payload, more, vvvv, modrm, sib, ..] = random.next().to_le_bytes();
        let modrm_at = (Form::of(first[0]).modrm_at / 8) as usize;
        match first[0] {
            0xc5 => second[1] ^= payload & 0xf8,
            0xc4 => (second[1], second[2]) = (first[1] ^ payload & 0xe0, first[2] ^ vvvv & 0x78),
            _ => {
                (second[1], second[2]) = (first[1] ^ payload & 0xf0, first[2] ^ vvvv & 0x78);
                second[3] ^= if more & 1 == 0 { 8 } else { 0 };
            }
        }
        second[modrm_at] ^= modrm & if more & 2 == 0 { 0x3f } else { 0xff };
        second[modrm_at + 1] = sib;
        let Some(found) = memo.find(&second) else { return 0 };
        assert_eq!(Some(found), decoded(&second).1, "{first:02x?} {second:02x?}");
        1
    }

    /// ModRM: registers, memory with and without SIB and displacement, relative to the instruction.
    const MODRM: [u8; 10] = [0x00, 0x04, 0x05, 0x44, 0x84, 0x8c, 0xc0, 0xc1, 0xd1, 0xf9];

    /// Each instruction with VEX prefix, whatever follows its ModRM.
    #[test]
    fn vex_instructions_are_remembered_right() {
        let (mut memo, mut random, mut known) = (Memo::default(), Random(1), 0);
        for payload in 0..=255u8 {
            for opcode in 0..=255 {
                let modrm = MODRM[random.next() as usize % MODRM.len()];
                known += check(&mut memo, random.windows(&[0xc5, payload, opcode, modrm]));
                for map in 1..8 {
                    let first = (random.next() as u8 & 0xe0) | map;
                    let modrm = MODRM[random.next() as usize % MODRM.len()];
                    let key = [0xc4, first, payload, opcode, modrm];
                    known += check(&mut memo, random.windows(&key));
                }
            }
        }
        assert!(known > 20_000, "{known}");
    }

    /// ... with EVEX prefix.
    #[test]
    fn evex_instructions_are_remembered_right() {
        let (mut memo, mut random, mut known) = (Memo::default(), Random(2), 0);
        for map in 1..8 {
            for opcode in 0..=255 {
                for _ in 0..512 {
                    let [first, mut second, mut third, modrm, often, ..] =
                        random.next().to_le_bytes();
                    if often & 3 != 0 {
                        // no further register, no mask: most instructions are valid only so, or
                        // then
                        (second, third) = (second | 0x78, third & 0x60 | 8);
                    }
                    let key = [0x62, first & 0xf0 | map, second | 4, third, opcode, modrm];
                    known += check(&mut memo, random.windows(&key));
                }
            }
        }
        assert!(known > 20_000, "{known}");
    }

    /// Each of them, of all maps, with other registers.
    #[test]
    fn registers_do_not_matter_where_they_are_left_out() {
        let (mut memo, mut random, mut known) = (Memo::default(), Random(3), 0);
        for opcode in 0..=255 {
            for round in 0..8192 {
                let [first, second, third, modrm, often, ..] = random.next().to_le_bytes();
                let (map, second) =
                    (1 + round as u8 % 7, second | if often & 1 == 0 { 0x78 } else { 0 });
                let third = if often & 6 != 0 { third & 0x60 | 8 } else { third };
                let mut window = random.windows(&[])[0];
                let start: &[u8] = match round % 3 {
                    0 => &[0xc5, second, opcode, modrm],
                    1 => &[0xc4, first & 0xe0 | map, second, opcode, modrm],
                    _ => &[0x62, first & 0xf0 | map, second | 4, third, opcode, modrm],
                };
                window[..start.len()].copy_from_slice(start);
                known += check_alike(&mut memo, &mut random, window);
            }
        }
        assert!(known > 50_000, "{known}");
    }

    /// Those whose validity or length does not follow from their key are not remembered.
    #[test]
    fn others_are_not_remembered() {
        let mut memo = Memo::default();
        for bytes in [
            &[0xc5, 0xf8, 0x77][..],                     // vzeroupper
            &[0xc4, 0xe1, 0xf8, 0x77],                   // the same in three bytes
            &[0xc4, 0xe2, 0x75, 0x93, 0x04, 0x91],       // vgatherqps
            &[0x62, 0xf2, 0x7d, 0x49, 0xa0, 0x04, 0x91], // vpscatterdd
        ] {
            let mut window = [0; WINDOW];
            window[..bytes.len()].copy_from_slice(bytes);
            let (instruction, known) = decoded(&window);
            memo.keep(&window, &instruction, known.unwrap().1);
            assert_eq!(memo.find(&window), None, "{bytes:02x?}");
        }
    }
}
