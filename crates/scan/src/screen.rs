// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which functions need no decoding, because no byte of them can begin anything that matters.
//!
//! **Problem.** Nine of ten functions of most libraries have nothing wide, and most of the time would go
//! into showing that.
//!
//! **Idea.** A wide instruction has a VEX, EVEX or XOP prefix, whose bytes say its length; `cpuid` and
//! `xgetbv` have opcodes of their own; and a call, jump or `lea` that leads into a gap ends with the
//! distance to it. Where none of these patterns is found at any byte, whether or not an instruction
//! begins there, the function holds no such instruction. So skipping it changes nothing: a test compares
//! the patterns with iced-x86 for every prefix and opcode, another one whole libraries with and without.
//! Bytes that fit a pattern of a prefix are decoded by iced-x86, from the prefix on, to be sure.
//!
//! ```text
//! C5      RvvvvLpp                    wide if L
//! C4, 8F  RXBmmmmm WvvvvLpp opcode    wide if L; tiles have L = 0 and map 2
//! 62      RXBR0mmm Wvvvv1pp zLLbVaaa  wide if LL is not 00, or b (rounding: LL is the mode)
//! ```

use iced_x86::Decoder;
use memchr::memmem::Finder;
use memchr::{memchr_iter, memchr3_iter};

use crate::facts::{self, Facts, Width, kind};
use crate::recover::Gaps;
use crate::sweep::{Code, Wanted};

/// Looks for patterns. One for many functions: making it costs more than a short search.
pub(crate) struct Screen {
    cpuid: Finder<'static>,
    xgetbv: Finder<'static>,
    facts: &'static [Facts],
}

impl Screen {
    pub(crate) fn new() -> Self {
        Screen {
            cpuid: Finder::new(&[0x0f, 0xa2]),
            xgetbv: Finder::new(&[0x0f, 0x01, 0xd0]),
            facts: facts::all(),
        }
    }

    /// Whether a function of 64-bit code, `range` of `code`, has to be decoded.
    pub(crate) fn needs_decoding(
        &self,
        decoder: &mut Decoder<'_>,
        code: Code<'_>,
        (start, end): (usize, usize),
        gaps: &Gaps,
    ) -> bool {
        let bytes = &code.bytes[start..end];
        self.cpuid.find(bytes).is_some()
            || self.xgetbv.find(bytes).is_some()
            || memchr3_iter(0x62, 0xc4, 0xc5, bytes)
                .chain(memchr_iter(0x8f, bytes))
                .any(|at| matters(&bytes[at..]) && self.is_wide(decoder, start + at))
            || has_target(bytes, code.address.wrapping_add(start as u64), gaps)
    }

    /// Whether iced-x86 takes the bytes at this prefix for a wide instruction. Prefixes that may stand
    /// before it change neither length nor validity.
    fn is_wide(&self, decoder: &mut Decoder<'_>, at: usize) -> bool {
        if decoder.set_position(at).is_err() {
            return true;
        }
        let code = decoder.decode().code();
        let facts = &self.facts[code as usize];
        facts.length >= Width::Ymm || facts.kinds & kind::TILE != 0
    }
}

/// Whether the bytes may be an instruction that matters. What is cut off is none.
pub(crate) fn matters(bytes: &[u8]) -> bool {
    match *bytes {
        [0x0f, 0xa2, ..] | [0x0f, 0x01, 0xd0, ..] => true,
        [0xc5, payload, _, ..] => payload & 4 != 0,
        [0xc4, map, payload, opcode, ..] => {
            let is_tile = map & 0x1f == 2 && matches!(opcode, 0x40..=0x7f);
            let is_known = matches!(map & 0x1f, 1..=7);
            is_tile || is_known && payload & 4 != 0
        }
        [0x8f, map, payload, _, ..] => map & 0x1f >= 8 && payload & 4 != 0,
        [0x62, first, second, third, _, ..] => {
            first & 8 == 0 && first & 7 != 0 && second & 4 != 0 && third & 0x70 != 0
        }
        _ => false,
    }
}

/// Whether a branch or `lea` may lead into a gap: behind its opcode stands the distance from its end.
fn has_target(bytes: &[u8], address: u64, gaps: &Gaps) -> bool {
    let Some((first, span)) = gaps.span() else { return false };
    // Modulo 2^32 first, which is quick and misses none; then exactly.
    let skew = address.wrapping_add(4).wrapping_sub(first) as u32;
    let mut windows = bytes.windows(4).enumerate();
    let far = windows.any(|(at, window)| {
        let distance = u32::from_le_bytes(window.try_into().expect("a window of four"));
        let from_first = distance.wrapping_add(skew).wrapping_add(at as u32);
        u64::from(from_first) < span && is_distance(&bytes[..at]) && {
            let end = address.wrapping_add(at as u64 + 4);
            gaps.wants(end.wrapping_add_signed((distance as i32).into()))
        }
    });
    far || has_near_target(bytes, address, gaps)
}

/// Whether 32 bits of distance may follow these bytes: `call`, `jmp`, `jcc`, `lea`, `xbegin`.
fn is_distance(before: &[u8]) -> bool {
    match *before {
        [.., 0xe8 | 0xe9] | [.., 0x0f, 0x80..=0x8f] | [.., 0xc7, 0xf8] => true,
        [.., 0x8d, modrm] => modrm & 0xc7 == 5,
        _ => false,
    }
}

/// The same for branches with 8 bits of distance, which leave a function near its ends only.
fn has_near_target(bytes: &[u8], address: u64, gaps: &Gaps) -> bool {
    const REACH: usize = 130;
    let tail = bytes.len().saturating_sub(REACH);
    let near_ends = (1..bytes.len().min(REACH)).chain(tail.max(REACH)..bytes.len());
    near_ends.into_iter().any(|at| {
        matches!(bytes[at - 1], 0x70..=0x7f | 0xe0..=0xe3 | 0xeb) && {
            let offset = at as i64 + 1 + i64::from(bytes[at] as i8);
            let leaves = offset < 0 || offset >= bytes.len() as i64;
            leaves && gaps.wants(address.wrapping_add_signed(offset))
        }
    })
}

#[cfg(test)]
mod tests {
    use iced_x86::DecoderOptions;

    use super::*;

    /// Whether iced-x86 says that it matters here.
    fn is_needed(bytes: &[u8]) -> bool {
        let instruction = Decoder::new(64, bytes, DecoderOptions::NONE).decode();
        let facts = &facts::all()[instruction.code() as usize];
        facts.length >= Width::Ymm || facts.kinds & (kind::TILE | kind::CPUID | kind::XGETBV) != 0
    }

    fn check(bytes: &[u8]) -> u32 {
        let needed = is_needed(bytes);
        assert!(!needed || matters(bytes), "{bytes:02x?}");
        u32::from(needed)
    }

    /// Every wide instruction with VEX or XOP prefix fits a pattern.
    #[test]
    fn no_vex_instruction_is_missed() {
        let mut wide = 0;
        for payload in 0..=255 {
            for opcode in 0..=255 {
                for modrm in [0x00, 0x04, 0xc1, 0xe1, 0xd1] {
                    let rest = [modrm, 0x08, 0, 0, 0, 0, 0];
                    wide += check(&[&[0xc5, payload, opcode], &rest[..]].concat());
                    for map in [1, 2, 3, 5, 6, 7, 8, 9, 10] {
                        for first in [0xc4, 0x8f] {
                            wide +=
                                check(&[&[first, 0xe0 | map, payload, opcode], &rest[..]].concat());
                        }
                    }
                }
            }
        }
        assert!(wide > 10_000, "{wide}");
    }

    /// ... with EVEX prefix.
    #[test]
    fn no_evex_instruction_is_missed() {
        let mut wide = 0;
        for map in 0..8 {
            for second in [0x7c, 0x7d, 0x7e, 0x7f, 0xfc, 0xfd, 0xfe, 0xff, 0x74, 0xf5] {
                for third in 0..=255 {
                    for opcode in 0..=255 {
                        let modrm = if third & 1 == 0 { 0xc1 } else { 0x04 };
                        let bytes = [0x62, 0xf0 | map, second, third, opcode, modrm, 8, 0, 0, 0, 0];
                        wide += check(&bytes);
                    }
                }
            }
        }
        assert!(wide > 50_000, "{wide}");
    }

    /// ... and what is asked of the CPU.
    #[test]
    fn questions_fit() {
        assert_eq!(check(&[0x0f, 0xa2]) + check(&[0x0f, 0x01, 0xd0]), 2);
        assert!(!matters(&[0x0f, 0xa3, 0xc0]) && !matters(&[0xc5]) && !matters(&[]));
    }
}
