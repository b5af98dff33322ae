// SPDX-License-Identifier: MIT OR Apache-2.0
//! What `TURBOLANE_OPENSSL` says: `LEVEL[,BYTES]`.

use preloaded::number;
use turbolane_hint::MAX_LEVEL;

/// Calls with fewer bytes open no section; by default all do. Few bytes are wide code too: for a
/// header of 5 bytes OpenSSL's ChaCha20 makes the key of Poly1305, by 512-bit code that asks for
/// level 1 (measured on the dim-silicon machine, docs/experiments/silicon.md).
pub const DEFAULT_BYTES: u32 = 1;

/// Which calls open a section, and of which level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// Licence level, 1..=3.
    pub level: u32,
    /// The least number of bytes, 1..=2^31 - 1.
    pub bytes: u32,
}

/// What is wrong with the variable: the word that is, as it was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Invalid<'a> {
    /// No licence level.
    Level(&'a [u8]),
    /// No number of bytes.
    Bytes(&'a [u8]),
}

impl<'a> Invalid<'a> {
    /// What is wrong, and what would be right: to be written one after the other.
    pub fn message(self) -> [&'a [u8]; 3] {
        match self {
            Invalid::Level(word) => [b"\"", word, b"\" is not a licence level; give 1, 2 or 3"],
            Invalid::Bytes(word) => {
                [b"\"", word, b"\" is not a number of bytes; give 1 to 2147483647"]
            }
        }
    }
}

/// Reads `LEVEL[,BYTES]`.
pub fn parse(text: &[u8]) -> Result<Config, Invalid<'_>> {
    let mut words = text.splitn(2, |byte| *byte == b',');
    let level_word = words.next().unwrap_or_default();
    let level = number(level_word)
        .filter(|level| (1..=MAX_LEVEL).contains(level))
        .ok_or(Invalid::Level(level_word))?;
    let Some(bytes_word) = words.next() else {
        return Ok(Config { level, bytes: DEFAULT_BYTES });
    };
    let bytes = number(bytes_word)
        .filter(|&bytes| (1..=i32::MAX.unsigned_abs()).contains(&bytes))
        .ok_or(Invalid::Bytes(bytes_word))?;
    Ok(Config { level, bytes })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn level_and_bytes() {
        assert_eq!(parse(b"2"), Ok(Config { level: 2, bytes: DEFAULT_BYTES }));
        assert_eq!(parse(b"1,1"), Ok(Config { level: 1, bytes: 1 }));
        assert_eq!(parse(b"3,2147483647"), Ok(Config { level: 3, bytes: 2_147_483_647 }));
    }

    #[test]
    fn nonsense_is_named_fails() {
        for word in ["", "0", "4", "+2", "2 ", "18446744073709551617"] {
            assert_eq!(parse(word.as_bytes()), Err(Invalid::Level(word.as_bytes())));
        }
        for word in ["", "0", "1k", "2147483648", "4294967297", "1,1"] {
            let text = std::format!("2,{word}");
            assert_eq!(parse(text.as_bytes()), Err(Invalid::Bytes(word.as_bytes())));
        }
    }
}
