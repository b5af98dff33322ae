// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sets of CPUs as bitmaps that are no longer than the machine.
//!
//! Problem: a scheduler searches CPUs several times per event. `cpumodel::CpuSet` always has 1,024
//! bits, which is 16 words for the 64 CPUs of a common server.
//!
//! Idea: a slice of words as long as the machine needs, and searches over the intersection of up
//! to three of them that allocate nothing.

/// A set of CPUs of one machine. All masks of a machine have the same number of words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mask {
    words: Box<[u64]>,
}

impl Mask {
    /// The empty set, for CPUs 0 to `nr_cpus` - 1.
    pub fn empty(nr_cpus: usize) -> Self {
        Mask { words: vec![0; nr_cpus.div_ceil(64)].into() }
    }

    /// All CPUs.
    pub fn full(nr_cpus: usize) -> Self {
        Mask::of(nr_cpus, 0..nr_cpus)
    }

    /// The given CPUs.
    pub fn of(nr_cpus: usize, cpus: impl IntoIterator<Item = usize>) -> Self {
        let mut mask = Mask::empty(nr_cpus);
        for cpu in cpus {
            mask.set(cpu);
        }
        mask
    }

    /// Add a CPU.
    #[inline]
    pub fn set(&mut self, cpu: usize) {
        self.words[cpu / 64] |= 1 << (cpu % 64);
    }

    /// Remove a CPU.
    #[inline]
    pub fn clear(&mut self, cpu: usize) {
        self.words[cpu / 64] &= !(1 << (cpu % 64));
    }

    /// Whether it is in the set.
    #[inline]
    pub fn has(&self, cpu: usize) -> bool {
        self.words[cpu / 64] >> (cpu % 64) & 1 == 1
    }

    /// Number of CPUs.
    pub fn len(&self) -> usize {
        self.words.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// True if there is none.
    pub fn is_empty(&self) -> bool {
        self.words.iter().all(|&word| word == 0)
    }

    /// Whether the two share a CPU.
    #[inline]
    pub fn intersects(&self, other: &Mask) -> bool {
        self.words.iter().zip(&other.words).any(|(a, b)| a & b != 0)
    }

    /// Whether all of this set is in the other.
    pub fn is_subset(&self, other: &Mask) -> bool {
        self.words.iter().zip(&other.words).all(|(a, b)| a & !b == 0)
    }

    /// What both hold.
    pub fn and(&self, other: &Mask) -> Mask {
        Mask { words: self.words.iter().zip(&other.words).map(|(a, b)| a & b).collect() }
    }

    /// The lowest CPU that both hold.
    #[inline]
    pub fn first_common(&self, other: &Mask) -> Option<usize> {
        for (i, (a, b)) in self.words.iter().zip(&other.words).enumerate() {
            if a & b != 0 {
                return Some(i * 64 + (a & b).trailing_zeros() as usize);
            }
        }
        None
    }

    /// The first CPU at or after `from` that this set and `other` hold, and `third` if there is
    /// one; begins again at 0 when the end is reached. `from` is one of the machine's.
    #[inline]
    pub fn next_common(&self, other: &Mask, third: Option<&Mask>, from: usize) -> Option<usize> {
        let nr = self.words.len();
        let and = |i: usize| self.words[i] & other.words[i] & third.map_or(!0, |m| m.words[i]);
        let (start, bit) = (from / 64, from % 64);
        let first = and(start);
        let head = first & (!0 << bit);
        if head != 0 {
            return Some(start * 64 + head.trailing_zeros() as usize);
        }
        for i in (start + 1..nr).chain(0..start) {
            let word = and(i);
            if word != 0 {
                return Some(i * 64 + word.trailing_zeros() as usize);
            }
        }
        (first != 0).then(|| start * 64 + first.trailing_zeros() as usize)
    }

    /// The CPUs, ascending.
    pub fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        self.words.iter().enumerate().flat_map(|(i, &word)| {
            let mut left = word;
            std::iter::from_fn(move || {
                (left != 0).then(|| {
                    let bit = left.trailing_zeros() as usize;
                    left &= left - 1;
                    i * 64 + bit
                })
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        /// Searches agree with those over ordered sets, from any start.
        #[test]
        fn searches_agree_with_sets(
            nr in 1usize..200,
            a in prop::collection::btree_set(0usize..200, 0..40),
            b in prop::collection::btree_set(0usize..200, 0..40),
            c in prop::collection::btree_set(0usize..200, 0..150),
            from in 0usize..200,
        ) {
            let within = |s: &BTreeSet<usize>| -> BTreeSet<usize> {
                s.iter().copied().filter(|&x| x < nr).collect()
            };
            let (a, b, c, from) = (within(&a), within(&b), within(&c), from % nr);
            let mask = |s: &BTreeSet<usize>| Mask::of(nr, s.iter().copied());
            let both: BTreeSet<usize> = a.intersection(&b).copied().collect();
            let all: BTreeSet<usize> = both.intersection(&c).copied().collect();
            let next = |s: &BTreeSet<usize>| s.range(from..).next().or(s.first()).copied();
            prop_assert_eq!(mask(&a).first_common(&mask(&b)), both.first().copied());
            prop_assert_eq!(mask(&a).next_common(&mask(&b), None, from), next(&both));
            prop_assert_eq!(mask(&a).next_common(&mask(&b), Some(&mask(&c)), from), next(&all));
            prop_assert_eq!(mask(&a).intersects(&mask(&b)), !both.is_empty());
            prop_assert!(mask(&a).iter().eq(a.iter().copied()));
            prop_assert_eq!(mask(&a).and(&mask(&b)), mask(&both));
            prop_assert_eq!(mask(&a).is_subset(&mask(&b)), a.is_subset(&b));
            prop_assert_eq!(mask(&a).len(), a.len());
        }
    }
}
