// SPDX-License-Identifier: MIT OR Apache-2.0
//! Numbers in environment variables.

/// Digits and nothing else: no sign, no space.
#[inline]
pub fn number(text: &[u8]) -> Option<u32> {
    let digit = |byte: u8| byte.is_ascii_digit().then(|| u32::from(byte - b'0'));
    let append = |number: u32, &byte: &u8| number.checked_mul(10)?.checked_add(digit(byte)?);
    if text.is_empty() { None } else { text.iter().try_fold(0, append) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_a_number() {
        assert_eq!(number(b"0"), Some(0));
        assert_eq!(number(b"4294967295"), Some(u32::MAX));
        for text in ["", "+1", "1 ", "-1", "4294967296"] {
            assert_eq!(number(text.as_bytes()), None, "{text}");
        }
    }
}
