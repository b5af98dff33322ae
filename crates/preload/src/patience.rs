// SPDX-License-Identifier: MIT OR Apache-2.0
//! How long a thread is waited for before it is boosted.
//!
//! A boost pays if it lasts long enough (TURBO 7: sections of 190 us). If a thread is
//! boosted once it has been waited for that long, the cost is at most twice the best possible one,
//! as DIM 4.3 derives it for levels. Each mutex and barrier learns from there, beginning at a
//! quarter of that time: if a boost has lasted for half of it, the next one comes after half the
//! wait, down to a sixteenth; if not, after twice the wait, up to all of it.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// After so many waits in a row that were brief, only one of so many is watched.
const BRIEF: u32 = 64;
const WATCHED: u32 = 8;

/// Of one mutex or barrier.
pub(crate) struct Patience {
    /// ns, 0 = nothing was learned.
    after_ns: AtomicU64,
    /// Waits in a row that were over before anyone was boosted.
    brief: AtomicU32,
}

impl Patience {
    pub const fn new() -> Self {
        Patience { after_ns: AtomicU64::new(0), brief: AtomicU32::new(0) }
    }

    /// What was learned was of another one.
    pub fn forget(&self) {
        self.after_ns.store(0, Ordering::Relaxed);
        self.brief.store(0, Ordering::Relaxed);
    }

    /// Whether the wait of this number is watched at all.
    pub fn watches(&self, number: u32) -> bool {
        self.brief.load(Ordering::Relaxed) < BRIEF || number.is_multiple_of(WATCHED)
    }

    /// A wait was over before anyone was boosted.
    pub fn was_brief(&self) {
        if self.brief.load(Ordering::Relaxed) < BRIEF {
            self.brief.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// A wait was long enough for a boost.
    pub fn was_long(&self) {
        self.brief.store(0, Ordering::Relaxed);
    }

    /// After which wait he is boosted, if a boost pays from `most_ns` on, ns.
    pub fn after_ns(&self, most_ns: u64) -> u64 {
        match self.after_ns.load(Ordering::Relaxed) {
            0 => most_ns / 4,
            learned => learned,
        }
    }

    /// A boost has lasted for so long.
    pub fn learn(&self, most_ns: u64, boosted_ns: u64) {
        let before_ns = self.after_ns(most_ns);
        let after_ns = match boosted_ns >= most_ns / 2 {
            true => (before_ns / 2).max(most_ns / 16),
            false => (before_ns * 2).min(most_ns),
        };
        self.after_ns.store(after_ns, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn boosts_that_last_come_sooner() {
        let patience = Patience::new();
        assert_eq!(patience.after_ns(160), 40);
        let after_boosts = |boosted_ns, times| {
            (0..times).for_each(|_| patience.learn(160, boosted_ns));
            patience.after_ns(160)
        };
        assert_eq!(after_boosts(80, 1), 20);
        assert_eq!(after_boosts(80, 9), 10);
        assert_eq!(after_boosts(79, 1), 20);
        assert_eq!(after_boosts(79, 9), 160);
    }

    #[test]
    fn where_all_waits_are_brief_few_are_watched() {
        let patience = Patience::new();
        let nr_watched = || (0..640).filter(|number| patience.watches(*number)).count();
        let after_brief = |nr| {
            (0..nr).for_each(|_| patience.was_brief());
            nr_watched()
        };
        assert_eq!(after_brief(63), 640);
        assert_eq!(after_brief(1), 80);
        assert_eq!(after_brief(1000), 80);
        patience.was_long();
        assert_eq!(nr_watched(), 640);
    }
}
