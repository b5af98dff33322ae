// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which functions need no decoding, because no byte of them can begin anything that matters.
//!
//! **Problem.** Nine of ten functions of most libraries have nothing wide, and most of the time
//! would go into showing that.
//!
//! **Idea.** A wide instruction has a VEX, EVEX or XOP prefix, whose bytes determine its length;
//! `cpuid` and `xgetbv` have opcodes of their own; and a call, jump or `lea` that leads into a gap
//! has its distance after its opcode. If none of these patterns is found at any byte, whether or
//! not an instruction begins there, the function holds no such instruction. So skipping it changes
//! nothing: a test compares the patterns with iced-x86 for every prefix and opcode, another one
//! complete libraries with and without.
//!
//! **Two steps.** The first two bytes of the patterns are looked for at 32 places at a time
//! ([`candidates`]), which leaves one place of eight or ten. There the complete pattern is
//! compared, and a branch's target looked up. Bytes that fit a pattern of a prefix are decoded by
//! iced-x86, from the prefix on, to be sure.
//!
//! ```text
//! C5      RvvvvLpp                    wide if L
//! C4, 8F  RXBmmmmm WvvvvLpp opcode    wide if L; tiles have L = 0 and map 2
//! 62      RXBR0mmm Wvvvv1pp zLLbVaaa  wide if LL is not 00, or b (rounding: LL is the mode)
//! 0F A2, 0F 01 D0                     cpuid, xgetbv
//! E8, E9, 0F 8x, C7 F8, 8D xx...101   call, jmp, jcc, xbegin, lea: followed by 32 bits of distance
//! ```

use iced_x86::Decoder;

use crate::facts;
use crate::recover::Gaps;
use crate::sweep::{Code, Wanted};

/// Places that are looked at together: two vectors of SSE2, which each x86-64 CPU has.
const BLOCK: usize = 32;

/// Whether a function of 64-bit code, `range` of `code`, has to be decoded.
pub(crate) fn needs_decoding(
    decoder: &mut Decoder<'_>,
    code: Code<'_>,
    (start, end): (usize, usize),
    gaps: &Gaps,
) -> bool {
    let bytes = &code.bytes[start..end];
    for at in (0..bytes.len()).step_by(BLOCK) {
        // In place: a block that has just been copied to memory can be read only when it has
        // arrived.
        let left = &code.bytes[start + at..];
        let mut found =
            left.first_chunk().map_or_else(|| candidates(&last_block(left)), candidates);
        while found != 0 {
            let place = at + found.trailing_zeros() as usize;
            found &= found - 1;
            if place < bytes.len() && matters_here(decoder, code, (start + place, end), gaps) {
                return true;
            }
        }
    }
    has_near_target(bytes, code.address.wrapping_add(start as u64), gaps)
}

/// The last bytes of some code, of which there are too few for a block, and zeros.
fn last_block(bytes: &[u8]) -> [u8; BLOCK + 1] {
    let mut block = [0; BLOCK + 1];
    block[..bytes.len()].copy_from_slice(bytes);
    block
}

/// One bit for each place, from the lowest: whether a pattern may begin there.
#[inline(always)]
fn candidates(block: &[u8; BLOCK + 1]) -> u32 {
    let mut candidates = [0; BLOCK];
    for (at, candidate) in candidates.iter_mut().enumerate() {
        *candidate = u8::from(may_begin(block[at], block[at + 1]));
    }
    // The product moves the lowest bits of eight bytes into its highest byte, in their order.
    let bits =
        |eight: &[u8; 8]| u64::from_le_bytes(*eight).wrapping_mul(0x0102_0408_1020_4080) >> 56;
    let (eights, _) = candidates.as_chunks();
    eights.iter().rev().fold(0, |all, eight| all << 8 | bits(eight) as u32)
}

/// Whether a pattern may begin with these two bytes. Without a branch, so that the compiler
/// compares vectors.
#[inline(always)]
fn may_begin(first: u8, second: u8) -> bool {
    let vex = (first == 0xc5) & (second & 4 != 0) | (first == 0xc4) & (second & 0x18 == 0);
    let others = (first == 0x62) | (first == 0x8f);
    let question = (first == 0x0f) & ((second == 0xa2) | (second == 0x01));
    let call = first & 0xfe == 0xe8;
    let jcc = (first == 0x0f) & (second & 0xf0 == 0x80);
    let lea = (first == 0x8d) & (second & 0xc7 == 5);
    let xbegin = (first == 0xc7) & (second == 0xf8);
    vex | others | question | call | jcc | lea | xbegin
}

/// Whether an instruction that matters may begin at the first of these bytes. What is cut off is
/// none.
#[inline]
fn matters_here(
    decoder: &mut Decoder<'_>,
    code: Code<'_>,
    (at, end): (usize, usize),
    gaps: &Gaps,
) -> bool {
    let bytes = &code.bytes[at..end];
    match bytes[0] {
        0x62 | 0x8f | 0xc4 | 0xc5 => matters(bytes) && is_wide(decoder, at),
        0x0f if matters(bytes) => true,
        _ => leads_into(gaps, code.address.wrapping_add(at as u64), bytes),
    }
}

/// Whether iced-x86 takes the bytes at this prefix for a wide instruction. Prefixes that may be
/// before it change neither length nor validity.
fn is_wide(decoder: &mut Decoder<'_>, at: usize) -> bool {
    if decoder.set_position(at).is_err() {
        return true;
    }
    facts::all()[decoder.decode().code() as usize].is_wide()
}

/// Whether the bytes may be an instruction that matters itself.
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

/// Whether the bytes at this address may be a branch or `lea` that leads into a gap. What is cut
/// off leads nowhere.
fn leads_into(gaps: &Gaps, address: u64, bytes: &[u8]) -> bool {
    let (opcode, distance) = match *bytes {
        [0xe8 | 0xe9, a, b, c, d, ..] => (1, [a, b, c, d]),
        [0x0f, 0x80..=0x8f, a, b, c, d, ..] | [0xc7, 0xf8, a, b, c, d, ..] => (2, [a, b, c, d]),
        [0x8d, modrm, a, b, c, d, ..] if modrm & 0xc7 == 5 => (2, [a, b, c, d]),
        _ => return false,
    };
    let distance = i32::from_le_bytes(distance);
    gaps.wants(address.wrapping_add(opcode + 4).wrapping_add_signed(distance.into()))
}

/// The same for branches with 8 bits of distance, which leave a function near its ends only.
fn has_near_target(bytes: &[u8], address: u64, gaps: &Gaps) -> bool {
    const REACH: usize = 130;
    let (from, to) = (REACH as u64, (bytes.len() + REACH) as u64);
    if !gaps.touch(address.saturating_sub(from), address.saturating_add(to)) {
        return false;
    }
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
    use crate::traits::kind;

    /// Whether iced-x86 says that it matters here.
    fn is_needed(bytes: &[u8]) -> bool {
        let instruction = Decoder::new(64, bytes, DecoderOptions::NONE).decode();
        let traits = facts::all()[instruction.code() as usize].traits(&instruction);
        traits.is_wide() || traits.has(kind::CPUID | kind::XGETBV)
    }

    fn check(bytes: &[u8]) -> u32 {
        let needed = is_needed(bytes);
        assert!(
            !needed || matters(bytes) && candidates(&last_block(bytes)) & 1 == 1,
            "{bytes:02x?}"
        );
        u32::from(needed)
    }

    /// The same of two bytes, as the essay at the head says it.
    fn expected(first: u8, second: u8) -> bool {
        match (first, second) {
            (0xc5, payload) => payload & 4 != 0,
            (0xc4, map) => map & 0x1f <= 7,
            (0x62 | 0x8f | 0xe8 | 0xe9, _) => true,
            (0x0f, 0xa2 | 0x01 | 0x80..=0x8f) | (0xc7, 0xf8) => true,
            (0x8d, modrm) => modrm >> 6 == 0 && modrm & 7 == 5,
            _ => false,
        }
    }

    /// Each pair of bytes is marked if it may begin a pattern, at its place, and nothing else is.
    #[test]
    fn candidates_are_where_patterns_may_begin() {
        for pair in 0..=u16::MAX {
            let [first, second] = pair.to_le_bytes();
            let place = usize::from(first.wrapping_mul(31).wrapping_add(second)) % BLOCK;
            let mut bytes = [0x90; BLOCK + 1];
            (bytes[place], bytes[place + 1]) = (first, second);
            let candidate = |at: usize| u32::from(expected(bytes[at], bytes[at + 1])) << at;
            let all: u32 = (0..BLOCK).map(candidate).sum();
            assert_eq!(candidates(&bytes), all, "{first:02x} {second:02x} at {place}");
        }
    }

    /// A branch of 8 bits that leaves a function for a gap is seen, wherever it is and however far
    /// it leads.
    #[test]
    fn near_targets_are_seen() {
        const LENGTH: usize = 300;
        let (start, end) = (0x1000, 0x1000 + LENGTH as u64);
        let gaps = Gaps::new(vec![(start - 0x100, start), (end, end + 0x100)]);
        for place in 0..LENGTH - 1 {
            for distance in -128..=127i8 {
                let mut bytes = [0x90; LENGTH];
                (bytes[place], bytes[place + 1]) = (0xeb, distance as u8);
                let leaves = |at: usize| {
                    let target = at as i64 + 2 + i64::from(bytes[at + 1] as i8);
                    let is_branch = matches!(bytes[at], 0x70..=0x7f | 0xe0..=0xe3 | 0xeb);
                    is_branch && !(0..LENGTH as i64).contains(&target)
                };
                let expected = leaves(place) || place + 2 < LENGTH && leaves(place + 1);
                let found = has_near_target(&bytes, start, &gaps);
                assert_eq!(found, expected, "{distance} at {place}");
            }
        }
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
