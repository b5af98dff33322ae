// SPDX-License-Identifier: MIT OR Apache-2.0
//! What happens to a file of the corpus.
//!
//! Bytes: single ones, numbers of 1 to 8 bytes at the limits of their types, pieces cut out,
//! doubled, moved in from another file of the corpus, the end cut off. Texts also: a number or word
//! replaced by another of the same corpus or by one that is hard to digest, lines doubled, dropped
//! and exchanged.

use fastrand::Rng;

/// Numbers at which types and sums end.
const NUMBERS: [u64; 16] = [
    0,
    1,
    2,
    0x7f,
    0x80,
    0xff,
    0x1000,
    0x7fff,
    0xffff,
    0x7fff_ffff,
    0x8000_0000,
    0xffff_ffff,
    1 << 47,
    u64::MAX / 2,
    u64::MAX - 0xfff,
    u64::MAX,
];

/// Words that parsers of texts stumble over.
const WORDS: [&str; 30] = [
    "0",
    "-1",
    "1",
    "1e308",
    "1e-320",
    "-0.0",
    "nan",
    "inf",
    "18446744073709551615",
    "18446744073709551616",
    "9223372036854775807",
    "-9223372036854775808",
    "4294967295",
    "4294967296",
    "65536",
    "1024",
    "0.5",
    "\"\"",
    "[]",
    "{}",
    "=",
    "[[",
    "]]",
    "0-1023",
    "0-1023:1/2",
    "\u{0}",
    "\u{fffd}",
    "true",
    "1ns",
    "18446744073s",
];

/// Longest input that is made, bytes: what bounds the time of a case.
const LENGTH_MAX: usize = 4 << 20;

/// Changes a file in one to eight places.
#[must_use]
pub fn mutate(rng: &mut Rng, corpus: &[Vec<u8>], is_text: bool) -> Vec<u8> {
    let mut bytes = corpus[rng.usize(..corpus.len())].clone();
    let other = &corpus[rng.usize(..corpus.len())];
    for _ in 0..=rng.usize(..8) {
        if is_text && rng.u8(..4) > 0 {
            change_text(rng, &mut bytes, other);
        } else {
            change_bytes(rng, &mut bytes, other);
        }
        bytes.truncate(LENGTH_MAX);
    }
    bytes
}

fn change_bytes(rng: &mut Rng, bytes: &mut Vec<u8>, other: &[u8]) {
    let length = bytes.len();
    let at = place(rng, length);
    match rng.u8(..10) {
        0 if length > 0 => bytes[at] = rng.u8(..),
        1 if length > 0 => bytes[at] ^= 1 << rng.u8(..8),
        2..=4 => put_number(rng, bytes, at),
        5 => drop(bytes.drain(at..(at + piece(rng)).min(length))),
        6 => {
            let copy = bytes[at..(at + piece(rng)).min(length)].to_vec();
            let to = place(rng, length);
            bytes.splice(to..to, copy);
        }
        7 => {
            let from = place(rng, other.len());
            let copy = other[from..(from + piece(rng)).min(other.len())].to_vec();
            let end = if rng.bool() { at } else { (at + copy.len()).min(length) };
            bytes.splice(at..end, copy);
        }
        8 => bytes.truncate(rng.usize(..=length)),
        _ => {
            let filler = [0, 0xff, b' ', rng.u8(..)][rng.usize(..4)];
            let end = (at + piece(rng)).min(length);
            bytes[at..end].fill(filler);
        }
    }
}

/// Often in the first part, where headers are.
fn place(rng: &mut Rng, length: usize) -> usize {
    let first = if rng.bool() { length } else { length.min(512) };
    rng.usize(..first.max(1)).min(length)
}

/// Length of a piece: mostly short.
fn piece(rng: &mut Rng) -> usize {
    1 << rng.u8(..14) | rng.usize(..16)
}

/// A number at a limit, or a little beside what was there.
fn put_number(rng: &mut Rng, bytes: &mut [u8], at: usize) {
    let size = 1 << rng.u8(..4);
    let at = if rng.bool() { at & !(size - 1) } else { at };
    let Some(place) = bytes.get_mut(at..at + size) else { return };
    let mut word = [0; 8];
    word[..size].copy_from_slice(place);
    let value = match rng.u8(..3) {
        0 => u64::from_le_bytes(word).wrapping_add_signed(rng.i64(-16..=16)),
        1 => NUMBERS[rng.usize(..NUMBERS.len())].wrapping_add_signed(rng.i64(-2..=2)),
        _ => NUMBERS[rng.usize(..NUMBERS.len())],
    };
    place.copy_from_slice(&value.to_le_bytes()[..size]);
}

fn change_text(rng: &mut Rng, bytes: &mut Vec<u8>, other: &[u8]) {
    match rng.u8(..8) {
        0..=3 => replace_word(rng, bytes, other),
        4 => {
            let words = words(other);
            if !words.is_empty() {
                let (from, to) = words[rng.usize(..words.len())];
                let at = place(rng, bytes.len());
                let word = other[from..to].to_vec();
                bytes.splice(at..at, word);
            }
        }
        _ => change_lines(rng, bytes),
    }
}

fn replace_word(rng: &mut Rng, bytes: &mut Vec<u8>, other: &[u8]) {
    let (ours, theirs) = (words(bytes), words(other));
    if ours.is_empty() {
        return;
    }
    let (from, to) = ours[rng.usize(..ours.len())];
    let word = match rng.bool() && !theirs.is_empty() {
        true => {
            let (from, to) = theirs[rng.usize(..theirs.len())];
            other[from..to].to_vec()
        }
        false => WORDS[rng.usize(..WORDS.len())].as_bytes().to_vec(),
    };
    bytes.splice(from..to, word);
}

/// Letters, digits and points that follow each other: begin and end.
fn words(bytes: &[u8]) -> Vec<(usize, usize)> {
    let is_word = |at: usize| bytes[at].is_ascii_alphanumeric() || matches!(bytes[at], b'.' | b'_');
    let mut words = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let start = at;
        while at < bytes.len() && is_word(at) {
            at += 1;
        }
        if at > start {
            words.push((start, at));
        }
        at += 1;
    }
    words
}

fn change_lines(rng: &mut Rng, bytes: &mut Vec<u8>) {
    let mut lines: Vec<Vec<u8>> = bytes.split(|&byte| byte == b'\n').map(<[u8]>::to_vec).collect();
    let (one, two) = (rng.usize(..lines.len()), rng.usize(..lines.len()));
    match rng.u8(..4) {
        0 => lines.swap(one, two),
        1 => drop(lines.remove(one)),
        2 => lines.insert(two, lines[one].clone()),
        _ => {
            let copies = 1 << rng.u8(..8);
            let line = lines[one].clone();
            lines.splice(two..two, std::iter::repeat_n(line, copies));
        }
    }
    *bytes = lines.join(&b'\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A seed is the whole input, and different seeds change different things.
    #[test]
    fn seeds_decide() {
        let corpus = [b"one = 1\ntwo = 22\n".to_vec(), (0..=255).collect()];
        let of = |seed, is_text| mutate(&mut Rng::with_seed(seed), &corpus, is_text);
        for is_text in [false, true] {
            assert!((0..200).all(|seed| of(seed, is_text) == of(seed, is_text)));
            let different: std::collections::HashSet<_> =
                (0..200).map(|seed| of(seed, is_text)).collect();
            assert!(different.len() > 150, "{}", different.len());
        }
        assert!(mutate(&mut Rng::with_seed(1), &[Vec::new()], true).len() < 1 << 14);
    }
}
