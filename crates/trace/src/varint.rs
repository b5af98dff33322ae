// SPDX-License-Identifier: MIT OR Apache-2.0
//! Numbers of as many bytes as they need: seven bits a byte, the lowest first, the eighth bit says
//! that more follow. Signed ones fold their sign into bit 0 ("zigzag"), so that small negative
//! numbers are short too.

/// Longest form, bytes: 64 bits by seven.
const MAX_BYTES: usize = 10;

/// Appends a number.
///
/// A recorder does this some millions of times a second. So up to eight bytes are put together in a
/// register, and there is room for all eight of them before their number is known.
pub(crate) fn put(out: &mut Vec<u8>, mut value: u64) {
    let (mut form, mut nr_bytes) = (0, 0);
    while value >= 0x80 {
        form |= (value & 0x7f | 0x80) << (8 * nr_bytes);
        value >>= 7;
        nr_bytes += 1;
        if nr_bytes == 8 {
            out.extend_from_slice(&form.to_le_bytes());
            (form, nr_bytes) = (0, 0);
        }
    }
    form |= value << (8 * nr_bytes);
    let end = out.len() + nr_bytes + 1;
    out.extend_from_slice(&form.to_le_bytes());
    out.truncate(end);
}

/// Appends a signed number.
pub(crate) fn put_signed(out: &mut Vec<u8>, value: i64) {
    put(out, (value << 1 ^ value >> 63) as u64);
}

/// Appends bytes with their number.
pub(crate) fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// The bytes that are not read yet. Every function returns `None` where they end too early or make
/// no sense, and never reads past them.
pub(crate) struct Bytes<'a> {
    rest: &'a [u8],
}

impl<'a> Bytes<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Bytes { rest: bytes }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    pub(crate) fn byte(&mut self) -> Option<u8> {
        let (&first, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(first)
    }

    pub(crate) fn number(&mut self) -> Option<u64> {
        let mut value = 0u64;
        for at in 0..MAX_BYTES {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            if at == MAX_BYTES - 1 && bits > 1 {
                return None;
            }
            value |= bits << (7 * at);
            if byte < 0x80 {
                return Some(value);
            }
        }
        None
    }

    /// A number that fits its field.
    pub(crate) fn small<T: TryFrom<u64>>(&mut self) -> Option<T> {
        T::try_from(self.number()?).ok()
    }

    pub(crate) fn signed(&mut self) -> Option<i64> {
        let folded = self.number()?;
        Some((folded >> 1) as i64 ^ -((folded & 1) as i64))
    }

    pub(crate) fn bytes(&mut self) -> Option<&'a [u8]> {
        let length = self.small::<usize>()?;
        let (bytes, rest) = self.rest.split_at_checked(length)?;
        self.rest = rest;
        Some(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Every number comes back, and cut off is not a number.
        #[test]
        fn numbers_come_back(value: u64, signed: i64) {
            let mut out = Vec::new();
            put(&mut out, value);
            let first = out.len();
            put_signed(&mut out, signed);
            let mut bytes = Bytes::new(&out);
            prop_assert_eq!(bytes.number(), Some(value));
            prop_assert_eq!(bytes.signed(), Some(signed));
            prop_assert!(bytes.is_empty());
            prop_assert_eq!(Bytes::new(&out[..first - 1]).number(), None);
        }
    }

    /// Numbers around the ends of a byte have the documented bytes; one of more than 64 bits is
    /// refused.
    #[test]
    fn numbers_have_their_form() {
        for (value, form) in [(0, &[0][..]), (127, &[0x7f]), (128, &[0x80, 1]), (300, &[0xac, 2])] {
            let mut out = Vec::new();
            put(&mut out, value);
            assert_eq!(out, form);
        }
        let mut out = Vec::new();
        put_signed(&mut out, -1);
        assert_eq!(out, [1]);
        assert_eq!(Bytes::new(&[0xff; 10]).number(), None);
        assert_eq!(Bytes::new(&[0xff; 11]).number(), None);
    }
}
