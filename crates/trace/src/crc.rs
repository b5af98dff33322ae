// SPDX-License-Identifier: MIT OR Apache-2.0
//! The check sum of blocks: CRC-32 of IEEE 802.3 (as zip and PNG have it), polynomial 0xEDB88320
//! reflected.
//!
//! Eight bytes a step: what a byte does to the sum when n more bytes follow is a table of its own,
//! and the sum of all is their exclusive or ("slicing by 8"). Byte by byte it would be a sixth of
//! what a recorder takes.

/// By the number of bytes that follow, then by the byte.
static TABLES: [[u32; 256]; 8] = tables();

const fn tables() -> [[u32; 256]; 8] {
    let mut tables = [[0; 256]; 8];
    let mut at = 0;
    while at < 256 {
        let mut value = at as u32;
        let mut bit = 0;
        while bit < 8 {
            value = if value & 1 == 1 { value >> 1 ^ 0xedb8_8320 } else { value >> 1 };
            bit += 1;
        }
        tables[0][at] = value;
        at += 1;
    }
    let mut behind = 1;
    while behind < 8 {
        at = 0;
        while at < 256 {
            let value = tables[behind - 1][at];
            tables[behind][at] = tables[0][(value & 0xff) as usize] ^ value >> 8;
            at += 1;
        }
        behind += 1;
    }
    tables
}

/// The check sum of these parts, one after the other.
pub(crate) fn crc32(parts: &[&[u8]]) -> u32 {
    !parts.iter().fold(!0, |sum, part| add(sum, part))
}

fn add(sum: u32, part: &[u8]) -> u32 {
    let (eights, rest) = part.as_chunks::<8>();
    let sum = eights.iter().fold(sum, |sum, eight| {
        let bytes = (u64::from_le_bytes(*eight) ^ u64::from(sum)).to_le_bytes();
        let of = |at: usize| TABLES[7 - at][usize::from(bytes[at])];
        of(0) ^ of(1) ^ of(2) ^ of(3) ^ of(4) ^ of(5) ^ of(6) ^ of(7)
    });
    rest.iter().fold(sum, |sum, byte| TABLES[0][usize::from(sum as u8 ^ byte)] ^ sum >> 8)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The check value that the standard's catalogues give.
    #[test]
    fn has_the_known_value() {
        assert_eq!(crc32(&[b"1234", b"56789"]), 0xcbf4_3926);
        assert_eq!(crc32(&[]), 0);
    }

    /// However the bytes are cut into parts, the sum is that of the definition, bit by bit.
    #[test]
    fn eight_at_a_time_is_one_at_a_time() {
        let bytes: Vec<u8> = (0..100u32).map(|at| (at * at * 7) as u8).collect();
        for end in 0..bytes.len() {
            let bits = bytes[..end].iter().fold(!0u32, |sum, byte| {
                (0..8).fold(sum ^ u32::from(*byte), |sum, _| (sum >> 1) ^ ((sum & 1) * 0xedb8_8320))
            });
            for cut in [0, end / 3, end] {
                assert_eq!(crc32(&[&bytes[..cut], &bytes[cut..end]]), !bits, "{cut} of {end}");
            }
        }
    }
}
