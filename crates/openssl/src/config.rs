// SPDX-License-Identifier: MIT OR Apache-2.0
//! What `TURBOLANE_OPENSSL` says: `LEVEL[,BYTES]`.

use turbolane::MAX_LEVEL;

/// Calls with fewer bytes open no section; by default all do. Few bytes are wide code too: for a header of 5 bytes
/// OpenSSL's ChaCha20 makes the key of Poly1305, by 512-bit code that asks for level 1 (measured on the
/// dim-silicon machine, docs/experiments/silicon.md).
pub const DEFAULT_BYTES: u32 = 1;

/// Which calls open a section, and of which level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// Licence level, 1..=3.
    pub level: u32,
    /// The least number of bytes, 1..=2^31 - 1.
    pub bytes: u32,
}

/// Reads `LEVEL[,BYTES]`; the error says what is wrong and what would be right.
pub fn parse(text: &str) -> Result<Config, String> {
    let (level, bytes) = match text.split_once(',') {
        Some((level, bytes)) => (level, Some(bytes)),
        None => (text, None),
    };
    let level = number(level)
        .filter(|level| (1..=MAX_LEVEL).contains(level))
        .ok_or_else(|| format!("\"{level}\" is no licence level; give 1, 2 or 3"))?;
    let bytes = match bytes {
        None => DEFAULT_BYTES,
        Some(bytes) => number(bytes)
            .filter(|&bytes| (1..=i32::MAX.unsigned_abs()).contains(&bytes))
            .ok_or_else(|| format!("\"{bytes}\" is no number of bytes; give 1 to 2147483647"))?,
    };
    Ok(Config { level, bytes })
}

/// Digits and nothing else: no sign, no space.
fn number(text: &str) -> Option<u32> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn level_and_bytes() {
        assert_eq!(parse("2"), Ok(Config { level: 2, bytes: DEFAULT_BYTES }));
        assert_eq!(parse("1,1"), Ok(Config { level: 1, bytes: 1 }));
        assert_eq!(parse("3,2147483647"), Ok(Config { level: 3, bytes: 2_147_483_647 }));
    }

    #[test]
    fn nonsense_is_named() {
        for (text, wrong) in [
            ("", "\"\" is no licence level"),
            ("0", "\"0\" is no licence level"),
            ("4", "\"4\" is no licence level"),
            ("+2", "\"+2\" is no licence level"),
            ("2 ", "\"2 \" is no licence level"),
            ("2,", "\"\" is no number of bytes"),
            ("2,0", "\"0\" is no number of bytes"),
            ("2,1k", "\"1k\" is no number of bytes"),
            ("2,2147483648", "\"2147483648\" is no number of bytes"),
            ("2,1,1", "\"1,1\" is no number of bytes"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.starts_with(wrong), "{text}: {error}");
        }
    }
}
