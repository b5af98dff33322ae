// SPDX-License-Identifier: MIT OR Apache-2.0
//! Time, frequency and work as different types.
//!
//! Problem: a licence model mixes nanoseconds of the wall, cycles of a core whose clock changes,
//! and frequencies. A sum of the wrong two compiles as long as all are `u64`.
//!
//! Idea: three types, and the only conversion from one to another needs a frequency:
//!
//! ```text
//!   cycles = time * frequency        Khz::cycles_in(Ns) -> Cycles
//!   time   = cycles / frequency      Khz::time_for(Cycles) -> Ns, rounded up
//! ```
//!
//! Rounding: a time is rounded up, so that work is never finished before it is done, and cycles
//! are rounded down. Limits: `u64` ns are 584 years; a product of the two goes through `u128`.

use std::fmt;
use std::ops::{Add, AddAssign, Sub};

/// Nanoseconds of wall time, or a point on a clock that begins at 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ns(pub u64);

/// A frequency in kHz; never 0 where it divides.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Khz(pub u32);

/// Core clock cycles.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cycles(pub u64);

impl Ns {
    /// The end of time.
    pub const MAX: Ns = Ns(u64::MAX);

    /// The time between two points, 0 if `earlier` is not earlier.
    pub const fn since(self, earlier: Ns) -> Ns {
        Ns(self.0.saturating_sub(earlier.0))
    }

    /// As seconds, for rates and tables.
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e9
    }
}

impl Khz {
    /// From MHz.
    pub const fn of_mega(mega: u32) -> Khz {
        Khz(mega * 1_000)
    }

    /// Cycles that pass in `time`, rounded down.
    pub fn cycles_in(self, time: Ns) -> Cycles {
        Cycles((u128::from(time.0) * u128::from(self.0) / 1_000_000) as u64)
    }

    /// Time that `work` takes, rounded up; never ends at 0 kHz.
    pub fn time_for(self, work: Cycles) -> Ns {
        if self.0 == 0 {
            return Ns::MAX;
        }
        Ns((u128::from(work.0) * 1_000_000).div_ceil(u128::from(self.0)) as u64)
    }

    /// As MHz, for tables.
    pub fn as_mhz_f64(self) -> f64 {
        f64::from(self.0) / 1e3
    }
}

/// Sums and differences within one type.
macro_rules! additive {
    ($($unit:ident)*) => { $(
        impl Add for $unit {
            type Output = $unit;
            fn add(self, other: $unit) -> $unit {
                $unit(self.0 + other.0)
            }
        }
        impl AddAssign for $unit {
            fn add_assign(&mut self, other: $unit) {
                self.0 += other.0;
            }
        }
        impl Sub for $unit {
            type Output = $unit;
            fn sub(self, other: $unit) -> $unit {
                $unit(self.0 - other.0)
            }
        }
        impl std::iter::Sum for $unit {
            fn sum<I: Iterator<Item = $unit>>(all: I) -> $unit {
                all.fold($unit(0), |sum, one| sum + one)
            }
        }
    )* };
}
additive!(Ns Cycles);

impl fmt::Display for Ns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            0..10_000 => write!(f, "{} ns", self.0),
            10_000..10_000_000 => write!(f, "{:.1} us", self.0 as f64 / 1e3),
            10_000_000..10_000_000_000 => write!(f, "{:.1} ms", self.0 as f64 / 1e6),
            _ => write!(f, "{:.1} s", self.0 as f64 / 1e9),
        }
    }
}

impl fmt::Display for Khz {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.0} MHz", self.as_mhz_f64())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// 2.8 GHz is 2.8 cycles a nanosecond; a part of a nanosecond counts whole.
    #[test]
    fn a_frequency_converts() {
        let clock = Khz::of_mega(2_800);
        assert_eq!(clock.cycles_in(Ns(1_000)), Cycles(2_800));
        assert_eq!(clock.time_for(Cycles(2_801)), Ns(1_001));
        assert_eq!(Khz(0).time_for(Cycles(1)), Ns::MAX);
    }

    proptest! {
        /// Work is never done before its time: the cycles of the time it takes are enough.
        #[test]
        fn time_is_enough_for_the_work(khz in 1u32..10_000_000, work in 0u64..1 << 50) {
            let clock = Khz(khz);
            let time = clock.time_for(Cycles(work));
            prop_assert!(clock.cycles_in(time) >= Cycles(work));
            prop_assert!(time == Ns(0) || clock.cycles_in(Ns(time.0 - 1)) < Cycles(work));
        }
    }
}
