// SPDX-License-Identifier: MIT OR Apache-2.0
//! What an xz file unpacks to, without unpacking it.
//!
//! **Problem.** The library that unpacks `.gnu_debugdata` keeps all of a block in memory, some
//! times over, before it hands out the first byte. So a bound on what it writes bounds nothing: 327
//! kB took 4.2 GB.
//!
//! **Idea.** LZMA2 is cut into chunks of at most 2 MiB, and each says in its first bytes how long
//! it is packed and unpacked. The decoder goes by these sizes, so their sum is known after a walk
//! from chunk to chunk. Sizes in headers and in the index of the file are not used: nothing has to
//! agree with them until it is too late.
//!
//! ```text
//! stream  12 bytes: magic, flags (byte 7: which check each block has)
//! block   header of 4 (n + 1) bytes, n its first byte; byte 1: flags, of which bits 1..0 are filters - 1
//!         chunk ...  00      end
//!                    01, 02  u16 length - 1, bytes
//!                    80..ff  bits 4..0 and u16: length - 1; u16 packed length - 1; from c0 on a byte of properties
//!         zeros up to a multiple of 4, then the check
//! index   begins with 00
//! ```
//!
//! Source: "The .xz File Format", 1.2.1, sections 2 to 4. Big endian in chunks.
//!
//! **Limits.** One filter, LZMA2: each one before it could multiply what comes out. Linkers and
//! strip write no others.

/// Bytes of the header of the file.
const STREAM_HEADER: usize = 12;
/// Bytes of a check, by its number: none, CRC-32, CRC-64, SHA-256; others are not in use.
const CHECKS: [(u8, usize); 4] = [(0, 0), (1, 4), (4, 8), (10, 32)];

/// Bytes that the file unpacks to; `None` if it is not in order.
pub(crate) fn unpacked_bytes(file: &[u8]) -> Option<u64> {
    let check = *file.get(7)? & 15;
    let (_, check_bytes) = CHECKS.into_iter().find(|(number, _)| *number == check)?;
    let mut rest = Rest { file, at: STREAM_HEADER };
    let mut sum = 0;
    loop {
        let begin = rest.at;
        let words = rest.byte()?;
        if words == 0 {
            return Some(sum);
        }
        let has_one_filter = rest.byte()? & 3 == 0;
        rest.at = begin + 4 * (usize::from(words) + 1);
        while let Some(bytes) = rest.chunk()? {
            sum += bytes;
        }
        rest.at = rest.at.next_multiple_of(4) + check_bytes;
        if !has_one_filter {
            return None;
        }
    }
}

struct Rest<'a> {
    file: &'a [u8],
    at: usize,
}

impl Rest<'_> {
    fn byte(&mut self) -> Option<u8> {
        let byte = *self.file.get(self.at)?;
        self.at += 1;
        Some(byte)
    }

    fn pair(&mut self) -> Option<u64> {
        Some(u64::from(self.byte()?) << 8 | u64::from(self.byte()?))
    }

    /// Passes over a chunk, and returns what it unpacks to; `Some(None)` is the end of them.
    fn chunk(&mut self) -> Option<Option<u64>> {
        let control = self.byte()?;
        let (unpacked, packed) = match control {
            0 => return Some(None),
            1 | 2 => {
                let bytes = self.pair()? + 1;
                (bytes, bytes)
            }
            0x80.. => {
                let unpacked = (u64::from(control & 0x1f) << 16 | self.pair()?) + 1;
                let packed = self.pair()? + 1;
                (unpacked, packed + u64::from(control >= 0xc0))
            }
            _ => return None,
        };
        self.at = self.at.checked_add(packed as usize)?;
        Some(Some(unpacked))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// The sum is what really comes out, whatever the data.
        #[test]
        fn sizes_are_those_that_come_out(
            data in prop::collection::vec(any::<u8>(), 0..200_000),
            cut in any::<prop::sample::Index>(),
        ) {
            let mut packed = Vec::new();
            lzma_rs::xz_compress(&mut &data[..], &mut packed).unwrap();
            prop_assert_eq!(unpacked_bytes(&packed), Some(data.len() as u64));
            // Cut off anywhere: an answer, or none.
            _ = unpacked_bytes(&packed[..cut.index(packed.len())]);
        }
    }

    /// A second filter is refused, and so is a chunk of no known kind.
    #[test]
    fn unusual_files_fail() {
        let mut packed = Vec::new();
        lzma_rs::xz_compress(&mut &b"text"[..], &mut packed).unwrap();
        let first_chunk = STREAM_HEADER + 4 * (usize::from(packed[STREAM_HEADER]) + 1);
        let with = |at: usize, byte: u8| {
            let mut changed = packed.clone();
            changed[at] = byte;
            unpacked_bytes(&changed)
        };
        assert_eq!(with(STREAM_HEADER + 1, packed[STREAM_HEADER + 1] | 1), None);
        assert_eq!(with(first_chunk, 0x40), None);
        assert_eq!(with(7, 2), None);
        assert_eq!(unpacked_bytes(b""), None);
    }
}
