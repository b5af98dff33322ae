// SPDX-License-Identifier: MIT OR Apache-2.0
//! The level that a CPU asks for: by what the last trace held, and how dense heavy code is.
//!
//! Problem: light wide code asks for its level by one instruction, heavy code by its density: about
//! one in two cycles (SYSTOR 2). The CPU file has the density per cycle.
//!
//! Idea: a moving count of heavy instructions among the last [`WINDOW`], which a trace of n
//! instructions fades by n/WINDOW. The class rules of the CPU file give two levels for each class,
//! sparse and dense; the highest of what a trace holds is its demand.
//!
//! | constant | value | why |
//! |---|---|---|
//! | `WINDOW` | 128 | dispatch is limited within some 70 instructions of a wide one (Downs 2020): the core looks about so far |
//! | `REAL_IPC` | 2.5 | this machine executes one instruction per cycle, vector loops of real cores 2 to 3; the density per cycle is compared per instruction |

use cpumodel::{InsnClass, Platform};

/// See the essay.
const WINDOW: u32 = 128;
/// See the essay.
const REAL_IPC: f64 = 2.5;

/// Classes that are counted: all but scalar.
pub(crate) const WIDE: [InsnClass; 5] = [
    InsnClass::Light256,
    InsnClass::Heavy256,
    InsnClass::Light512,
    InsnClass::Heavy512,
    InsnClass::Amx,
];

/// Bits of a count in a [`WideCounts`]. A trace has at most 32 instructions.
const BITS: u32 = 6;

/// How many instructions of each class a trace has.
///
/// ```text
///   31 30 | 29 24 | 23    18 | 17    12 | 11     6 | 5      0
///     0   |  amx  | heavy512 | light512 | heavy256 | light256
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct WideCounts(pub u32);

const _: () = assert!(WIDE.len() as u32 * BITS <= 32);

impl WideCounts {
    /// One instruction of a class; traces add them up.
    #[must_use]
    pub fn one(class: InsnClass) -> Self {
        match WIDE.iter().position(|&wide| wide == class) {
            Some(index) => WideCounts(1 << (index as u32 * BITS)),
            None => WideCounts(0),
        }
    }

    /// The number of instructions of the class `WIDE[index]`.
    #[inline]
    pub(crate) fn of(self, index: usize) -> u32 {
        self.0 >> (index as u32 * BITS) & ((1 << BITS) - 1)
    }

    /// Those of both heavy classes.
    #[inline]
    fn heavy(self) -> u32 {
        self.of(1) + self.of(3)
    }
}

/// Levels that classes ask for.
#[derive(Debug, Clone)]
pub(crate) struct Rules {
    /// By index in `WIDE`: sparse, dense.
    levels: [[u8; 2]; WIDE.len()],
    /// Heavy instructions of the window, times the window, from which code is dense.
    dense: u32,
}

impl Rules {
    pub(crate) fn new(platform: &Platform) -> Self {
        let levels =
            WIDE.map(|class| [0.0, f64::INFINITY].map(|rate| platform.level_of(class, rate)));
        let share = platform.dense_per_cycle / REAL_IPC;
        Rules { levels, dense: (share * f64::from(WINDOW * WINDOW)) as u32 }
    }

    /// The level that a trace asks for.
    fn level(&self, counts: WideCounts, is_dense: bool) -> u8 {
        let held = (0..WIDE.len()).filter(|&index| counts.of(index) > 0);
        held.map(|index| self.levels[index][usize::from(is_dense)]).max().unwrap_or(0)
    }
}

/// Density of heavy code on one CPU.
#[derive(Debug, Clone, Copy, Default)]
pub struct Density {
    /// Heavy instructions of the last `WINDOW`, times `WINDOW`.
    heavy: u32,
}

impl Density {
    /// Whether there was heavy code lately.
    #[inline]
    pub(crate) fn is_zero(self) -> bool {
        self.heavy == 0
    }

    /// A trace of so many instructions was executed; the level that it asks for.
    #[inline]
    pub(crate) fn trace(&mut self, rules: &Rules, counts: WideCounts, insns: u32) -> u8 {
        self.fade(insns);
        if counts.0 == 0 {
            return 0;
        }
        self.heavy += counts.heavy() * WINDOW;
        rules.level(counts, self.heavy >= rules.dense)
    }

    #[inline]
    fn fade(&mut self, insns: u32) {
        self.heavy -= self.heavy * insns.min(WINDOW) / WINDOW;
        // Less than one instruction would never fade by short traces.
        if self.heavy < WINDOW {
            self.heavy = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use cpumodel::CpuModel;

    use super::*;

    fn rules() -> Rules {
        let model = CpuModel::built_in("xeon-gold-6130").unwrap().unwrap();
        Rules::new(&Platform::new(&model))
    }

    /// The level after many traces of ten instructions, of which so many are of a class.
    fn level(class: InsnClass, each_ten: u32) -> u8 {
        let (rules, mut density) = (rules(), Density::default());
        let counts = WideCounts(WideCounts::one(class).0 * each_ten);
        (0..100).map(|_| density.trace(&rules, counts, 10)).last().unwrap()
    }

    /// SYSTOR 2: light code by one instruction, heavy code by density.
    #[test]
    fn rules_of_skylake() {
        assert_eq!(level(InsnClass::Heavy512, 8), 2);
        assert_eq!(level(InsnClass::Heavy512, 1), 1);
        assert_eq!(level(InsnClass::Light512, 10), 1);
        assert_eq!(level(InsnClass::Heavy256, 8), 1);
        assert_eq!(level(InsnClass::Heavy256, 1), 0);
        assert_eq!(level(InsnClass::Light256, 10), 0);
        assert_eq!(level(InsnClass::Scalar, 10), 0);
    }

    /// Dense code ends to be dense within about a window of scalar code.
    #[test]
    fn density_fades() {
        let (rules, mut density) = (rules(), Density::default());
        let dense = WideCounts(WideCounts::one(InsnClass::Heavy512).0 * 8);
        for _ in 0..100 {
            density.trace(&rules, dense, 10);
        }
        for _ in 0..2 * WINDOW / 10 {
            density.trace(&rules, WideCounts(0), 10);
        }
        assert_eq!(density.trace(&rules, WideCounts::one(InsnClass::Heavy512), 10), 1);
    }

    /// In the end nothing is left of it, however short the traces are.
    #[test]
    fn density_ends() {
        let (rules, mut density) = (rules(), Density::default());
        density.trace(&rules, WideCounts::one(InsnClass::Heavy512), 1);
        assert!(!density.is_zero());
        (0..1000).for_each(|_| {
            density.trace(&rules, WideCounts(0), 1);
        });
        assert!(density.is_zero());
    }

    /// A full trace of one class does not spill into the next.
    #[test]
    fn counts_do_not_spill() {
        let full = WideCounts(WideCounts::one(InsnClass::Light256).0 * 32);
        assert_eq!((full.of(0), full.of(1)), (32, 0));
    }
}
