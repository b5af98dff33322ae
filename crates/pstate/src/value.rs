// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a setting holds: a short text (sysfs) or a number (a register), in place and `Copy`.

use std::fmt;

/// Longest text: governors have 16 bytes (CPUFREQ_NAME_LEN), frequencies ten digits.
const TEXT_MAX: usize = 28;

/// A setting's value. Numbers are kept as eight bytes, little endian.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct Value {
    len: u32,
    bytes: [u8; TEXT_MAX],
}

impl Value {
    /// No value yet: equal to none that a file can hold.
    pub const NONE: Value = Value { len: u32::MAX, bytes: [0; TEXT_MAX] };

    /// From the text of a file: its first line, without blanks at the ends; cut off where longer.
    pub fn of_text(text: &[u8]) -> Self {
        let line = text.split(|&byte| byte == b'\n' || byte == 0).next().unwrap_or_default();
        let line = line.trim_ascii();
        let kept = &line[..line.len().min(TEXT_MAX)];
        let mut bytes = [0; TEXT_MAX];
        bytes[..kept.len()].copy_from_slice(kept);
        Value { len: kept.len() as u32, bytes }
    }

    /// The text of a number, as sysfs takes it.
    pub fn of_decimal(number: u64) -> Self {
        let mut digits = [0; 20];
        let mut at = digits.len();
        let mut rest = number;
        loop {
            at -= 1;
            digits[at] = b'0' + (rest % 10) as u8;
            rest /= 10;
            if rest == 0 {
                break;
            }
        }
        Value::of_text(&digits[at..])
    }

    /// A register's content.
    pub fn of_register(number: u64) -> Self {
        let mut bytes = [0; TEXT_MAX];
        bytes[..8].copy_from_slice(&number.to_le_bytes());
        Value { len: 8, bytes }
    }

    /// The register's content.
    pub fn register(&self) -> u64 {
        let [a, b, c, d, e, f, g, h, ..] = self.bytes;
        u64::from_le_bytes([a, b, c, d, e, f, g, h])
    }

    /// The text.
    pub fn text(&self) -> &[u8] {
        &self.bytes[..(self.len as usize).min(TEXT_MAX)]
    }

    /// The number that the text is.
    pub fn decimal(&self) -> Option<u64> {
        std::str::from_utf8(self.text()).ok()?.parse().ok()
    }
}

impl fmt::Debug for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", String::from_utf8_lossy(self.text()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Texts and numbers come back as they went in, also at the edges.
    #[test]
    fn values_keep_what_they_are_given() {
        assert_eq!(Value::of_text(b"schedutil\nrest").text(), b"schedutil");
        assert_eq!(Value::of_text(b" 12 ").decimal(), Some(12));
        for number in [0, 9, 10, 3_900_000, u64::MAX] {
            assert_eq!(Value::of_decimal(number).decimal(), Some(number));
            assert_eq!(Value::of_register(number).register(), number);
        }
        assert_eq!(Value::of_text(&[b'x'; 99]).text().len(), TEXT_MAX);
        assert_ne!(Value::NONE, Value::of_text(b""));
    }
}
