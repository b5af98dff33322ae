// SPDX-License-Identifier: MIT OR Apache-2.0
//! The open sections of a thread, packed into one word.
//!
//! Problem: sections nest, an inner one may ask for more than the outer one, and its end must
//! bring the outer one's level back; on a path that is allowed a nanosecond.
//!
//! Idea: a stack of 2-bit entries in a `u64`. An entry holds not the level asked for but the
//! *effective* one, the maximum of all sections open at that point, so that the top is the answer
//! and closing is a shift. No entry is 0, so 0 is the empty stack and no depth counter is needed.
//!
//! Limits: 32 sections deep, levels 1 to 3. Opening one more fails and changes nothing.

use crate::Error;

/// Highest licence level a section can have.
pub const MAX_LEVEL: u32 = 3;

/// Sections a thread can have open at once.
pub const MAX_DEPTH: u32 = u64::BITS / ENTRY_BITS;

const ENTRY_BITS: u32 = 2;
const ENTRY: u64 = (1 << ENTRY_BITS) - 1;

const _: () = assert!(MAX_LEVEL as u64 <= ENTRY);

/// The stack; innermost section in the lowest bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Nesting(u64);

impl Nesting {
    pub const EMPTY: Nesting = Nesting(0);

    /// The highest level of all open sections, 0 if there is none.
    #[inline]
    pub fn level(self) -> u32 {
        (self.0 & ENTRY) as u32
    }

    /// True if exactly one section is open.
    #[inline]
    pub fn is_outermost(self) -> bool {
        (1..=ENTRY).contains(&self.0)
    }

    /// The stack with one more section.
    #[inline]
    pub fn open(self, level: u32) -> Result<Self, Error> {
        if level.wrapping_sub(1) >= MAX_LEVEL {
            return Err(Error::InvalidLevel);
        }
        if self.0 >> (u64::BITS - ENTRY_BITS) != 0 {
            return Err(Error::TooDeep);
        }
        Ok(Nesting(self.0 << ENTRY_BITS | u64::from(level.max(self.level()))))
    }

    /// The stack without its innermost section.
    #[inline]
    pub fn close(self) -> Result<Self, Error> {
        if self.0 == 0 {
            return Err(Error::NotOpen);
        }
        Ok(Nesting(self.0 >> ENTRY_BITS))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::vec::Vec;

    /// The same in the obvious form: a list of levels, the maximum by looking at all of them.
    #[derive(Default)]
    struct Model(Vec<u32>);

    impl Model {
        fn open(&mut self, level: u32) -> Result<(), Error> {
            if level == 0 || level > MAX_LEVEL {
                return Err(Error::InvalidLevel);
            }
            if self.0.len() == MAX_DEPTH as usize {
                return Err(Error::TooDeep);
            }
            self.0.push(level);
            Ok(())
        }

        fn close(&mut self) -> Result<(), Error> {
            self.0.pop().map(drop).ok_or(Error::NotOpen)
        }

        fn level(&self) -> u32 {
            self.0.iter().copied().max().unwrap_or(0)
        }
    }

    proptest! {
        /// Any sequence of begins (of valid and invalid levels) and ends behaves as a list of
        /// levels would. Begins are three times as likely, so that the bound is reached.
        #[test]
        fn behaves_as_a_list(steps in prop::collection::vec(
            prop_oneof![3 => (0u32..6).prop_map(Some), 1 => Just(None)], 0..200,
        )) {
            let (mut nesting, mut model) = (Nesting::EMPTY, Model::default());
            for step in steps {
                let next = match step {
                    Some(level) => nesting.open(level),
                    None => nesting.close(),
                };
                let expected = match step {
                    Some(level) => model.open(level),
                    None => model.close(),
                };
                prop_assert_eq!(next.map(drop), expected);
                nesting = next.unwrap_or(nesting);
                prop_assert_eq!(nesting.level(), model.level());
                prop_assert_eq!(nesting.is_outermost(), model.0.len() == 1);
            }
        }
    }

    /// The bound is exact: 32 open, the 33rd is refused, all 32 can be closed.
    #[test]
    fn depth_bound_is_exact() {
        let mut nesting = Nesting::EMPTY;
        for _ in 0..MAX_DEPTH {
            nesting = nesting.open(1).unwrap();
        }
        assert_eq!(nesting.open(1), Err(Error::TooDeep));
        for _ in 0..MAX_DEPTH {
            nesting = nesting.close().unwrap();
        }
        assert_eq!(nesting, Nesting::EMPTY);
        assert_eq!(nesting.close(), Err(Error::NotOpen));
    }
}
