// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sets of offsets in a function, one bit for each byte, and which number an offset has among them.
//!
//! A set of instructions takes an eighth of its code. Whether an instruction begins at a branch's
//! target, and which one it is, are then two loads; in a list of offsets they are a search.

/// A set of offsets. It grows with its greatest member.
#[derive(Debug, Default)]
pub(crate) struct Bits {
    words: Vec<u64>,
}

/// Words by which a set grows at least: 2 KiB of code.
const GROWTH: usize = 32;

impl Bits {
    pub(crate) fn clear(&mut self) {
        self.words.clear();
    }

    #[inline(always)]
    pub(crate) fn insert(&mut self, offset: u32) {
        let word = (offset / 64) as usize;
        match self.words.get_mut(word) {
            Some(word) => *word |= 1 << (offset % 64),
            None => self.insert_beyond(offset),
        }
    }

    #[cold]
    fn insert_beyond(&mut self, offset: u32) {
        let word = (offset / 64) as usize;
        self.words.resize(word + GROWTH, 0);
        self.words[word] = 1 << (offset % 64);
    }

    pub(crate) fn contains(&self, offset: u32) -> bool {
        let word = self.words.get((offset / 64) as usize).copied().unwrap_or(0);
        word >> (offset % 64) & 1 == 1
    }

    /// Its members, ascending.
    pub(crate) fn iter(&self) -> impl Iterator<Item = u32> {
        let each = |(number, &word): (usize, &u64)| {
            let mut rest = word;
            std::iter::from_fn(move || {
                let bit = rest.trailing_zeros();
                rest &= rest.wrapping_sub(1);
                (bit < u64::BITS).then_some(64 * number as u32 + bit)
            })
        };
        self.words.iter().enumerate().flat_map(each)
    }

    /// To be asked for numbers; the set must not change any more.
    pub(crate) fn ranks(&self) -> Ranks<'_> {
        let mut sum = 0;
        let count = |word: &u64| {
            let before = sum;
            sum += word.count_ones();
            before
        };
        let before = self.words.iter().map(count).collect();
        Ranks { words: &self.words, before, len: sum }
    }
}

/// How many members a set has before each of its words.
pub(crate) struct Ranks<'a> {
    words: &'a [u64],
    before: Vec<u32>,
    len: u32,
}

impl Ranks<'_> {
    /// Number of members.
    pub(crate) fn len(&self) -> u32 {
        self.len
    }

    /// Number of members before this offset.
    pub(crate) fn of(&self, offset: u32) -> u32 {
        let word = (offset / 64) as usize;
        let Some(before) = self.before.get(word) else { return self.len };
        before + (self.words[word] & ((1 << (offset % 64)) - 1)).count_ones()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// It is a set of numbers, and knows how many of them are less than another.
        #[test]
        fn as_a_set_of_numbers(
            members in prop::collection::btree_set(0u32..20_000, 0..300),
            others in prop::collection::vec(0u32..30_000, 50),
        ) {
            let mut bits = Bits::default();
            bits.insert(7);
            bits.clear();
            members.iter().for_each(|&member| bits.insert(member));
            prop_assert_eq!(bits.iter().collect::<BTreeSet<_>>(), members.clone());
            prop_assert!(bits.iter().is_sorted());
            let ranks = bits.ranks();
            prop_assert_eq!(ranks.len() as usize, members.len());
            for other in others.into_iter().chain(members.iter().copied()) {
                prop_assert_eq!(bits.contains(other), members.contains(&other));
                prop_assert_eq!(ranks.of(other) as usize, members.range(..other).count());
            }
        }
    }
}
