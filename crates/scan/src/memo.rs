// SPDX-License-Identifier: MIT OR Apache-2.0
//! Instructions with VEX and EVEX prefix that were decoded before, by their first bytes.
//!
//! **Problem.** [`crate::fast`] leaves everything with these prefixes to iced-x86, and in the libraries that
//! matter most (BLAS, codecs, ciphers) that is most of the code.
//!
//! **Idea.** Hand-written and unrolled kernels use few different instructions again and again. What the scanner
//! wants to know of one follows from its prefix, opcode and ModRM alone, at most six bytes:
//!
//! ```text
//! C5      RvvvvLpp                    opcode  ModRM    4 bytes
//! C4      RXBmmmmm WvvvvLpp           opcode  ModRM    5
//! 62      RXBR0mmm Wvvvv1pp zLLbVaaa  opcode  ModRM    6
//! ```
//!
//! So these bytes are the key of a table, and what iced-x86 said when it met them first is the value. What
//! stands behind them adds to the length only: a SIB without base register has four bytes of displacement. A
//! test compares remembered and decoded instructions for random bytes behind every key.
//!
//! **What is not remembered.** Instructions with an index of vectors: whether they are valid depends on the
//! SIB. `vzeroupper`, which has no ModRM. What is no instruction.
//!
//! **Limits.** A key has one place in the table, so two that share it drive each other out: then it is as slow as
//! it was, and a little slower. The table lives as long as the sweep of a task.

use iced_x86::{FlowControl, Instruction};

use crate::fast::WINDOW;
use crate::sweep::Event;

/// Places: the keys of 128 KiB of code, which is a task, fit in mostly; 64 KiB of memory, so that they stay in the
/// cache.
const PLACES: usize = 1 << 11;

/// An instruction as it is remembered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Known {
    /// Bytes, with those that a SIB without base adds.
    pub(crate) length: u8,
    /// What the analysis needs, with a number of the instruction to be filled in; `None`: nothing.
    pub(crate) event: Option<Event>,
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
        Memo { places: Box::new([(NOBODY, Known { length: 0, event: None }); PLACES]) }
    }
}

impl Memo {
    /// What is known of the instruction at the begin of the window, which has one of our prefixes.
    #[inline(always)]
    pub(crate) fn find(&self, window: &[u8; WINDOW]) -> Option<Known> {
        let (key, no_base) = key(window);
        let (found, known) = self.places[place(key)];
        (found == key).then(|| Known { length: known.length + no_base, ..known })
    }

    /// Remembers what iced-x86 said of it.
    pub(crate) fn keep(
        &mut self,
        window: &[u8; WINDOW],
        instruction: &Instruction,
        event: Option<Event>,
    ) {
        let (key, no_base) = key(window);
        // vzeroupper and vzeroall, in the map 0F of VEX
        let has_no_modrm = match window[0] {
            0xc5 => window[2] == 0x77,
            0xc4 => window[1] & 0x1f == 1 && window[3] == 0x77,
            _ => false,
        };
        let goes_on = event.is_some() || instruction.flow_control() == FlowControl::Next;
        if has_no_modrm || instruction.is_vsib() || instruction.is_invalid() || !goes_on {
            return;
        }
        let length = instruction.len() as u8 - no_base;
        self.places[place(key)] = (key, Known { length, event });
    }
}

/// The key, and how many bytes a SIB adds to the length that belongs to it.
#[inline(always)]
fn key(window: &[u8; WINDOW]) -> (u64, u8) {
    let bytes = u64::from_le_bytes(window[..8].try_into().expect("a window has more"));
    // Of C4 and C5 bit 0 is the difference, of 62 bit 7 of the prefix.
    let is_evex = u32::from(bytes as u8 == 0x62);
    let is_short = u32::from(bytes as u8 == 0xc5);
    let modrm_at = 8 * (4 + is_evex - is_short);
    let modrm = (bytes >> modrm_at) as u8;
    let sib = (bytes >> (modrm_at + 8)) as u8;
    let no_base = (modrm & 0xc7 == 4) & (sib & 7 == 5);
    (bytes & (u64::MAX >> (56 - modrm_at)), 4 * u8::from(no_base))
}

/// Fibonacci hashing (Knuth, vol. 3, 6.4): the upper bits of a product with 2^64 over the golden ratio.
#[inline(always)]
fn place(key: u64) -> usize {
    (key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (u64::BITS - PLACES.trailing_zeros())) as usize
}

#[cfg(test)]
mod tests {
    use iced_x86::{Decoder, DecoderOptions};

    use super::*;
    use crate::facts;
    use crate::sweep::event;

    /// Marsaglia's xorshift64: bytes behind the keys.
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
    fn decoded(window: &[u8; WINDOW]) -> (Instruction, Option<Known>) {
        let instruction = Decoder::new(64, window, DecoderOptions::NONE).decode();
        let facts = &facts::all()[instruction.code() as usize];
        let event = facts.matters().then(|| event(0, facts, &instruction));
        let known = Known { length: instruction.len() as u8, event };
        (instruction, (!instruction.is_invalid()).then_some(known))
    }

    /// Remembers the first of two instructions with one key; then the second is known as iced-x86 would
    /// decode it, or not at all. Counts what was remembered.
    fn check(memo: &mut Memo, [first, second]: [[u8; WINDOW]; 2]) -> u32 {
        let (instruction, known) = decoded(&first);
        let Some(known) = known else { return 0 };
        memo.keep(&first, &instruction, known.event);
        let Some(found) = memo.find(&first) else { return 0 };
        assert_eq!(found, known, "{first:02x?}");
        assert_eq!(memo.find(&second), decoded(&second).1, "{first:02x?} {second:02x?}");
        1
    }

    /// ModRM: registers, memory with and without SIB and displacement, relative to the instruction.
    const MODRM: [u8; 10] = [0x00, 0x04, 0x05, 0x44, 0x84, 0x8c, 0xc0, 0xc1, 0xd1, 0xf9];

    /// Each instruction with VEX prefix, whatever stands behind its ModRM.
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
                        // no further register, no mask: most instructions are valid only so, or then
                        (second, third) = (second | 0x78, third & 0x60 | 8);
                    }
                    let key = [0x62, first & 0xf0 | map, second | 4, third, opcode, modrm];
                    known += check(&mut memo, random.windows(&key));
                }
            }
        }
        assert!(known > 20_000, "{known}");
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
            memo.keep(&window, &instruction, known.unwrap().event);
            assert_eq!(memo.find(&window), None, "{bytes:02x?}");
        }
    }
}
