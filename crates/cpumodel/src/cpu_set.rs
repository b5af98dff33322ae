// SPDX-License-Identifier: MIT OR Apache-2.0
//! A set of CPUs as a fixed bitmap: `Copy`, no allocation, set operations word by word.

use std::fmt;
use std::ops::{BitAnd, BitOr, Sub};

/// Number of CPUs a set can name: 0..=1023, as glibc's `cpu_set_t`.
pub const MAX_CPUS: usize = 1024;

const WORD_BITS: usize = 64;
const WORDS: usize = MAX_CPUS / WORD_BITS;

/// A set of logical CPUs, numbered as Linux does.
///
/// Written and read in Linux's list format, see the [`std::str::FromStr`] implementation:
///
/// ```
/// let cpus: cpumodel::CpuSet = "0-3,8".parse().unwrap();
/// assert_eq!(cpus.len(), 5);
/// assert_eq!(cpus.to_string(), "0-3,8");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct CpuSet {
    words: [u64; WORDS],
}

impl CpuSet {
    /// The set with no CPU.
    pub const EMPTY: CpuSet = CpuSet { words: [0; WORDS] };

    /// The set with no CPU.
    pub fn new() -> Self {
        Self::EMPTY
    }

    /// CPUs 0 to `count` - 1. Panics if `count` exceeds [`MAX_CPUS`].
    pub fn first(count: usize) -> Self {
        assert!(count <= MAX_CPUS, "{count} CPUs exceed {MAX_CPUS}");
        (0..count).collect()
    }

    /// The CPUs of a bitmap as [`CpuSet::words`] has it. Words that are missing are empty, those
    /// beyond [`MAX_CPUS`] are left out.
    pub fn of_words(words: impl IntoIterator<Item = u64>) -> Self {
        let mut set = Self::EMPTY;
        set.words.iter_mut().zip(words).for_each(|(to, word)| *to = word);
        set
    }

    /// Adds `cpu`; true if it was not there. Panics if `cpu` is not below [`MAX_CPUS`]: numbers
    /// from outside go through the parser, which refuses them.
    pub fn insert(&mut self, cpu: usize) -> bool {
        assert!(cpu < MAX_CPUS, "CPU {cpu} exceeds {}", MAX_CPUS - 1);
        let was_there = self.contains(cpu);
        self.words[cpu / WORD_BITS] |= 1 << (cpu % WORD_BITS);
        !was_there
    }

    /// Takes `cpu` out; true if it was there.
    pub fn remove(&mut self, cpu: usize) -> bool {
        let was_there = self.contains(cpu);
        if was_there {
            self.words[cpu / WORD_BITS] &= !(1 << (cpu % WORD_BITS));
        }
        was_there
    }

    /// True if `cpu` is in the set; false for any number that no set can hold.
    pub fn contains(&self, cpu: usize) -> bool {
        cpu < MAX_CPUS && self.words[cpu / WORD_BITS] >> (cpu % WORD_BITS) & 1 == 1
    }

    /// Number of CPUs.
    pub fn len(&self) -> usize {
        self.words.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// True if there is no CPU.
    pub fn is_empty(&self) -> bool {
        self.words.iter().all(|&word| word == 0)
    }

    /// The lowest CPU.
    pub fn lowest(&self) -> Option<usize> {
        self.iter().next()
    }

    /// The highest CPU.
    pub fn highest(&self) -> Option<usize> {
        let (index, word) = self.words.iter().enumerate().rfind(|(_, word)| **word != 0)?;
        Some(index * WORD_BITS + WORD_BITS - 1 - word.leading_zeros() as usize)
    }

    /// True if every CPU of this set is in `other`.
    pub fn is_subset(&self, other: &CpuSet) -> bool {
        (*self - *other).is_empty()
    }

    /// True if the two sets share a CPU.
    pub fn intersects(&self, other: &CpuSet) -> bool {
        !(*self & *other).is_empty()
    }

    /// The CPUs, ascending.
    pub fn iter(&self) -> Iter {
        Iter { words: self.words, index: 0 }
    }

    /// The bitmap, CPU 0 in bit 0 of word 0: the layout of `cpu_set_t` and of kernel bitmaps.
    pub fn words(&self) -> &[u64] {
        &self.words
    }

    /// The maximal runs of consecutive CPUs, ascending, as (first, last).
    pub(crate) fn ranges(&self) -> Vec<(usize, usize)> {
        let mut ranges: Vec<(usize, usize)> = Vec::new();
        for cpu in self.iter() {
            match ranges.last_mut() {
                Some((_, last)) if *last + 1 == cpu => *last = cpu,
                _ => ranges.push((cpu, cpu)),
            }
        }
        ranges
    }

    fn zip_with(self, other: CpuSet, op: impl Fn(u64, u64) -> u64) -> CpuSet {
        CpuSet { words: std::array::from_fn(|i| op(self.words[i], other.words[i])) }
    }
}

impl BitOr for CpuSet {
    type Output = CpuSet;
    fn bitor(self, other: CpuSet) -> CpuSet {
        self.zip_with(other, |a, b| a | b)
    }
}

impl BitAnd for CpuSet {
    type Output = CpuSet;
    fn bitand(self, other: CpuSet) -> CpuSet {
        self.zip_with(other, |a, b| a & b)
    }
}

impl Sub for CpuSet {
    type Output = CpuSet;
    fn sub(self, other: CpuSet) -> CpuSet {
        self.zip_with(other, |a, b| a & !b)
    }
}

impl FromIterator<usize> for CpuSet {
    fn from_iter<I: IntoIterator<Item = usize>>(cpus: I) -> Self {
        let mut set = CpuSet::new();
        set.extend(cpus);
        set
    }
}

impl Extend<usize> for CpuSet {
    fn extend<I: IntoIterator<Item = usize>>(&mut self, cpus: I) {
        for cpu in cpus {
            self.insert(cpu);
        }
    }
}

impl IntoIterator for &CpuSet {
    type Item = usize;
    type IntoIter = Iter;
    fn into_iter(self) -> Iter {
        self.iter()
    }
}

impl fmt::Debug for CpuSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CpuSet({self})")
    }
}

/// The CPUs of a set, ascending; made by [`CpuSet::iter`].
#[derive(Clone, Debug)]
pub struct Iter {
    words: [u64; WORDS],
    index: usize,
}

impl Iterator for Iter {
    type Item = usize;

    fn next(&mut self) -> Option<usize> {
        while self.index < WORDS {
            let word = &mut self.words[self.index];
            if *word != 0 {
                let bit = word.trailing_zeros() as usize;
                *word &= *word - 1;
                return Some(self.index * WORD_BITS + bit);
            }
            self.index += 1;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn cpus() -> impl Strategy<Value = BTreeSet<usize>> {
        proptest::collection::btree_set(0..MAX_CPUS, 0..60)
    }

    fn set(cpus: &BTreeSet<usize>) -> CpuSet {
        cpus.iter().copied().collect()
    }

    proptest! {
        /// A set behaves as the standard library's set of numbers does.
        #[test]
        fn agrees_with_a_btree_set(a in cpus(), b in cpus(), probe in 0..MAX_CPUS) {
            let (sa, sb) = (set(&a), set(&b));
            prop_assert_eq!(sa.len(), a.len());
            prop_assert_eq!(sa.is_empty(), a.is_empty());
            prop_assert_eq!(sa.contains(probe), a.contains(&probe));
            prop_assert_eq!(sa.lowest(), a.first().copied());
            prop_assert_eq!(sa.highest(), a.last().copied());
            prop_assert_eq!(sa.is_subset(&sb), a.is_subset(&b));
            prop_assert_eq!(sa.intersects(&sb), !a.is_disjoint(&b));
            prop_assert!(sa.iter().eq(a.iter().copied()));
            prop_assert!((sa | sb).iter().eq(a.union(&b).copied()));
            prop_assert!((sa & sb).iter().eq(a.intersection(&b).copied()));
            prop_assert!((sa - sb).iter().eq(a.difference(&b).copied()));
        }

        /// Insert and remove report whether they changed the set, and undo each other.
        #[test]
        fn insert_then_remove_restores(a in cpus(), cpu in 0..MAX_CPUS) {
            let mut changed = set(&a);
            prop_assert_eq!(changed.insert(cpu), !a.contains(&cpu));
            prop_assert!(!changed.insert(cpu));
            prop_assert!(changed.remove(cpu));
            prop_assert!(!changed.remove(cpu));
            prop_assert_eq!(changed, set(&a) - std::iter::once(cpu).collect());
        }
    }

    /// Numbers beyond the bitmap are no members and do not panic when asked for.
    #[test]
    fn contains_is_false_beyond_the_bitmap() {
        let all = CpuSet::first(MAX_CPUS);
        assert!(all.contains(MAX_CPUS - 1));
        assert!(!all.contains(MAX_CPUS));
        assert_eq!(all.len(), MAX_CPUS);
    }

    /// A number from inside the program that no set can hold is a bug, not a silent no-op.
    #[test]
    #[should_panic(expected = "CPU 1024 exceeds 1023")]
    fn insert_beyond_the_bitmap_fails() {
        CpuSet::new().insert(MAX_CPUS);
    }
}
