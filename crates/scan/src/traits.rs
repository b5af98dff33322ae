// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the analysis has to know of one instruction, in one word.
//!
//! A function of a codec has ten thousand instructions with vectors, and each is kept, counted and
//! looked at several times. So what matters of it is small, and such that a set of instructions is
//! summed up by "or": what has an order (register, level) has one bit for each value, and of a set
//! the highest bit is the maximum.
//!
//! ```text
//! 25      16 15      12 11       8 7       6      4 3      2 1      0
//! kinds      at once    level      dirty   widest   weight   length
//! ```
//!
//! No bit is set for an instruction that does not matter.

use std::ops::BitOrAssign;

use isa::Weight;

/// Length of vectors, or width of a register.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Width {
    /// No vector.
    #[default]
    None,
    /// 128 bits.
    Xmm,
    /// 256 bits.
    Ymm,
    /// 512 bits.
    Zmm,
}

impl Width {
    const ALL: [Width; 4] = [Width::None, Width::Xmm, Width::Ymm, Width::Zmm];
}

/// Kinds that are counted by name; bits.
pub(crate) mod kind {
    /// Scatter.
    pub(crate) const SCATTER: u16 = 1 << 0;
    /// Gather.
    pub(crate) const GATHER: u16 = 1 << 1;
    /// Dot products of bytes and words (AVX512_VNNI, AVX_VNNI and what came after them).
    pub(crate) const VNNI: u16 = 1 << 2;
    /// AMX, all of it.
    pub(crate) const TILE: u16 = 1 << 3;
    /// AMX: multiplies tiles.
    pub(crate) const TILE_MULTIPLY: u16 = 1 << 4;
    /// Legacy SSE with an xmm register.
    pub(crate) const SSE: u16 = 1 << 5;
    /// `vzeroupper`, `vzeroall`.
    pub(crate) const VZERO: u16 = 1 << 6;
    /// Its first operand, a register, is only read.
    pub(crate) const READS_FIRST: u16 = 1 << 7;
    /// `cpuid`.
    pub(crate) const CPUID: u16 = 1 << 8;
    /// `xgetbv`.
    pub(crate) const XGETBV: u16 = 1 << 9;
}

/// Of an instruction, or of several together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Traits(u32);

/// Values of weight and length together: [`Traits::cell`].
pub(crate) const CELLS: usize = 16;

const WIDE: u32 = 2; // Ymm and Zmm are 2 and 3
const WEIGHT: u32 = 2;
const WIDEST: u32 = 4;
const DIRTY: u32 = 1 << 7;
const LEVEL: u32 = 8;
const AT_ONCE: u32 = 12;
const KINDS: u32 = 16;
/// Levels that there is a bit for, above 0.
const LEVELS_MAX: u32 = 4;

impl Traits {
    /// An instruction that does not matter.
    pub(crate) const NONE: Traits = Traits(0);

    /// Length of its vectors, its class's weight, the widest register, the level that it asks for,
    /// and what it is counted as.
    pub(crate) fn new(
        length: Width,
        weight: Option<Weight>,
        widest: Width,
        license_level: u8,
        kinds: u16,
    ) -> Self {
        let level = u32::from(license_level).min(LEVELS_MAX);
        let levels = 1 << level >> 1;
        // Light code of 512 bits, tiles and scatters need no density (classes.toml).
        let is_at_once = weight != Some(Weight::Heavy) || kinds & kind::SCATTER != 0;
        let at_once = if is_at_once { levels } else { 0 };
        let widest = 1 << widest as u32 >> 1;
        let own = length as u32 | weight_number(weight) << WEIGHT | widest << WIDEST;
        Traits(own | levels << LEVEL | at_once << AT_ONCE | u32::from(kinds) << KINDS)
    }

    /// Of a kind and nothing else, with a register of this width.
    pub(crate) const fn of_kind(kind: u16, widest: Width) -> Self {
        Traits((kind as u32) << KINDS | 1 << widest as u32 >> 1 << WIDEST)
    }

    /// The same, leaving a dirty upper half.
    pub(crate) fn dirty(self) -> Self {
        Traits(self.0 | DIRTY)
    }

    /// Whether there is anything that matters.
    #[inline(always)]
    pub(crate) fn matter(self) -> bool {
        self.0 != 0
    }

    /// Vectors of 256 bits and more, and tiles: what coverage is counted in.
    #[inline]
    pub(crate) fn is_wide(self) -> bool {
        self.0 & WIDE != 0 || self.has(kind::TILE)
    }

    /// Any of these kinds.
    #[inline]
    pub(crate) fn has(self, kinds: u16) -> bool {
        self.0 & u32::from(kinds) << KINDS != 0
    }

    /// It leaves a dirty upper half.
    #[inline]
    pub(crate) fn is_dirty(self) -> bool {
        self.0 & DIRTY != 0
    }

    /// Of one instruction: number of its weight and length, the same as [`cell`] gives.
    #[inline(always)]
    pub(crate) fn cell(self) -> usize {
        self.0 as usize % CELLS
    }

    /// Of one instruction: length of its vectors.
    pub(crate) fn length(self) -> Width {
        Width::ALL[self.0 as usize % Width::ALL.len()]
    }

    /// The widest register that is named.
    pub(crate) fn widest(self) -> Width {
        Width::ALL[highest(self.0 >> WIDEST & 7) as usize]
    }

    /// The highest level that is asked for.
    pub(crate) fn license_level(self) -> u8 {
        highest(self.0 >> LEVEL & 15)
    }

    /// The highest level that is asked for without density.
    pub(crate) fn level_at_once(self) -> u8 {
        highest(self.0 >> AT_ONCE & 15)
    }
}

impl BitOrAssign for Traits {
    #[inline(always)]
    fn bitor_assign(&mut self, other: Traits) {
        self.0 |= other.0;
    }
}

/// Number of the highest bit, from 1; 0 if there is none.
fn highest(bits: u32) -> u8 {
    (u32::BITS - bits.leading_zeros()) as u8
}

fn weight_number(weight: Option<Weight>) -> u32 {
    match weight {
        None => 0,
        Some(Weight::Light) => 1,
        Some(Weight::Heavy) => 2,
        Some(Weight::Tile) => 3,
    }
}

/// The number that instructions of this weight and length have.
pub(crate) fn cell(weight: Weight, length: Width) -> usize {
    (length as u32 | weight_number(Some(weight)) << WEIGHT) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each field comes out as it went in, alone and with all others.
    #[test]
    fn fields_do_not_meet() {
        let weights = [None, Some(Weight::Light), Some(Weight::Heavy), Some(Weight::Tile)];
        for (number, length) in Width::ALL.into_iter().enumerate() {
            let (weight, widest) = (weights[(number + 1) % 4], Width::ALL[(number + 2) % 4]);
            for level in 0..=LEVELS_MAX as u8 {
                for kinds in [0, kind::SCATTER, kind::TILE, kind::XGETBV, 0x3ff] {
                    let one = Traits::new(length, weight, widest, level, kinds);
                    assert_eq!((one.length(), one.widest()), (length, widest));
                    assert_eq!(one.license_level(), level);
                    assert_eq!([one.is_dirty(), one.dirty().is_dirty()], [false, true]);
                    let at_once = weight != Some(Weight::Heavy) || kinds & kind::SCATTER != 0;
                    assert_eq!(one.level_at_once(), if at_once { level } else { 0 });
                    assert!((0..10).all(|bit| one.has(1 << bit) == (kinds >> bit & 1 == 1)));
                    assert_eq!(one.is_wide(), length >= Width::Ymm || kinds & kind::TILE != 0);
                    assert!(weight.is_none_or(|weight| one.cell() == cell(weight, length)));
                }
            }
        }
    }

    /// Of several, the greatest register and level are those of the set.
    #[test]
    fn sets_have_maxima() {
        let mut set = Traits::NONE;
        assert!(!set.matter());
        set |= Traits::new(Width::Xmm, Some(Weight::Light), Width::Zmm, 1, 0);
        set |= Traits::new(Width::Xmm, Some(Weight::Heavy), Width::Xmm, 3, kind::VNNI);
        set |= Traits::of_kind(kind::SSE, Width::Xmm);
        assert_eq!((set.widest(), set.license_level(), set.level_at_once()), (Width::Zmm, 3, 1));
        assert!(
            set.has(kind::VNNI) && set.has(kind::SSE) && !set.has(kind::GATHER) && !set.is_wide()
        );
    }

    /// There is a bit for each level that the table knows.
    #[test]
    fn levels_have_bits() {
        for weight in [Weight::Light, Weight::Heavy, Weight::Tile] {
            let level = |bits| isa::table().level(weight, bits);
            assert!(
                [0, 128, 256, 512, 8192].map(level).iter().all(|&level| level <= LEVELS_MAX as u8)
            );
        }
    }
}
