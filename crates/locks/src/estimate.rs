// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which strategy for sections of this length? (TURBO 12, next steps.)
//!
//! Problem: below its break-even a strategy costs more than it brings, and break-evens lie a factor
//! of 20 apart (TURBO 9: 200 k cycles to migrate, 400 k to delegate, 600 k to boost, 1.5 M to
//! sleep). The length of sections in cycles is rarely known, and it changes.
//!
//! Idea: measure the length, and take the strategy whose time for it is least. A section of length
//! c (at the base frequency) takes under strategy s
//!
//! ```text
//!   T_s(c) = O_s + c / r_s            O_s   what the strategy costs per section
//!                                     r_s   its clock while the section runs, base = 1
//! ```
//!
//! so that two strategies break even at c* = (O_b - O_a) / (1/r_a - 1/r_b). The length is an
//! average that forgets: each sample moves it by an eighth of its distance; until there are eight,
//! it is their mean. A sample under strategy s took c / r_s, so c is the sample times r_s.
//!
//! Hysteresis: a change is made only if the new strategy is the better one for sections a quarter
//! longer *and* for ones a fifth shorter, so a length that wanders by that much around a break-even
//! changes nothing. A strategy that is the best for neither is left for the best at the mean. So is
//! the one that a lock begins with: its first eight samples each take the best at their mean.
//!
//! Limits: the mean is used for all sections, so a lock with two kinds of them gets the strategy of
//! their mean. The costs are those of an idle machine.

/// What a lock can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Strategy {
    /// Waiters spin, clocks stay.
    Spin,
    /// Waiters sleep; the hardware raises the owner's clock.
    Block,
    /// Waiters spin slowly, the owner is boosted.
    Boost,
    /// The owner goes to a boosted core.
    Move,
}

impl Strategy {
    /// All, in the order of their numbers.
    pub const ALL: [Strategy; 4] =
        [Strategy::Spin, Strategy::Block, Strategy::Boost, Strategy::Move];
}

/// A strategy's line.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cost {
    /// Per section, ticks.
    pub overhead_ticks: f64,
    /// Clock while the section runs, as a multiple of the base frequency.
    pub clock_ratio: f64,
}

impl Cost {
    /// The line through what sections of two lengths took; lengths and times in ticks. `None` if
    /// the longer one took no longer.
    pub fn through(short: (f64, f64), long: (f64, f64)) -> Option<Cost> {
        let clock_ratio = (long.0 - short.0) / (long.1 - short.1);
        let overhead_ticks = short.1 - short.0 / clock_ratio;
        (clock_ratio > 0.0 && clock_ratio.is_finite())
            .then_some(Cost { overhead_ticks, clock_ratio })
    }

    fn time(&self, length: f64) -> f64 {
        self.overhead_ticks + length / self.clock_ratio
    }
}

/// The lines of all strategies; `None` where a machine cannot do it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Costs(pub [Option<Cost>; 4]);

impl Costs {
    /// The length from which `b` is better than `a`; `None` if it never is, or always.
    pub fn break_even_ticks(&self, a: Strategy, b: Strategy) -> Option<f64> {
        let (a, b) = (self.0[a as usize]?, self.0[b as usize]?);
        let per_tick = 1.0 / a.clock_ratio - 1.0 / b.clock_ratio;
        let length = (b.overhead_ticks - a.overhead_ticks) / per_tick;
        (per_tick > 0.0 && length > 0.0).then_some(length)
    }

    /// The strategy with the least time.
    pub fn best(&self, length: f64) -> Strategy {
        let of = |s: Strategy| self.0[s as usize].map_or(f64::INFINITY, |cost| cost.time(length));
        let mut best = Strategy::Spin;
        for other in Strategy::ALL {
            if of(other) < of(best) {
                best = other;
            }
        }
        best
    }

    /// The multiple of the base frequency at which sections run.
    pub fn clock_ratio(&self, strategy: Strategy) -> f64 {
        self.0[strategy as usize].map_or(1.0, |cost| cost.clock_ratio)
    }
}

/// Samples until the average forgets and a change has to be sure. From then on a sample weighs the
/// eighth.
const FIRST: u32 = 8;
/// Lengths at which a new strategy must be the better one, relative to the estimate.
const SURE: [f64; 2] = [0.8, 1.25];

/// What is known about one lock's sections.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// Mean length at the base frequency, ticks; 0 before the first sample.
    length: f64,
    /// Samples in it, at most [`FIRST`].
    samples: u32,
    strategy: Strategy,
}

impl Estimate {
    /// Nothing is known: waiters spin.
    pub const fn new() -> Estimate {
        Estimate { length: 0.0, samples: 0, strategy: Strategy::Spin }
    }

    /// What the lock should do.
    pub fn strategy(&self) -> Strategy {
        self.strategy
    }

    /// A section took so long under the current strategy.
    pub fn sample(&mut self, ticks: u64, costs: &Costs) {
        let length = ticks as f64 * costs.clock_ratio(self.strategy);
        let is_first = self.samples < FIRST;
        self.samples = (self.samples + 1).min(FIRST);
        let mean = self.length + (length - self.length) / f64::from(self.samples);
        self.length = mean;
        let near = SURE.map(|factor| costs.best(factor * mean));
        // Among two different answers, a break-even is near, and the strategy stays.
        if is_first || near[0] == near[1] || !near.contains(&self.strategy) {
            self.strategy = costs.best(mean);
        }
    }
}

impl Default for Estimate {
    fn default() -> Self {
        Estimate::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// TURBO 9's machine: 3.1 GHz base, 4.0 GHz turbo; overheads that give its break-evens.
    fn fx() -> Costs {
        let boosted = |overhead_ticks| Some(Cost { overhead_ticks, clock_ratio: 4.0 / 3.1 });
        let spin = Some(Cost { overhead_ticks: 0.0, clock_ratio: 1.0 });
        Costs([spin, boosted(337_500.0), boosted(135_000.0), None])
    }

    #[test]
    fn break_evens_are_where_the_lines_cross() {
        let owner = fx().break_even_ticks(Strategy::Spin, Strategy::Boost).unwrap();
        assert!((owner - 600_000.0).abs() < 1.0, "{owner}");
        let futex = fx().break_even_ticks(Strategy::Spin, Strategy::Block).unwrap();
        assert!((futex - 1_500_000.0).abs() < 1.0, "{futex}");
        assert_eq!(fx().break_even_ticks(Strategy::Boost, Strategy::Spin), None);
        assert_eq!(fx().break_even_ticks(Strategy::Spin, Strategy::Move), None);
        assert_eq!(fx().best(500_000.0), Strategy::Spin);
        assert_eq!(fx().best(700_000.0), Strategy::Boost);
    }

    /// Near the break-even of two strategies a lock that has neither takes one of them.
    #[test]
    fn no_one_is_stuck_with_a_third() {
        let moved = Some(Cost { overhead_ticks: 45_000.0, clock_ratio: 1.25 });
        let costs = Costs([fx().0[0], None, fx().0[2], moved]);
        let even = costs.break_even_ticks(Strategy::Move, Strategy::Boost).unwrap();
        let mut estimate = Estimate::new();
        let mut changes = 0;
        for n in 0..1000 {
            let before = estimate.strategy();
            let length = if n % 2 == 0 { 0.85 * even } else { 1.15 * even };
            estimate.sample((length / costs.clock_ratio(before)) as u64, &costs);
            changes += u32::from(estimate.strategy() != before);
        }
        assert!(matches!(estimate.strategy(), Strategy::Boost | Strategy::Move));
        assert_eq!(changes, 1);
    }

    #[test]
    fn two_measured_lengths_give_a_line() {
        let cost = Cost::through((31.0, 140.0), (310.0, 365.0)).unwrap();
        assert!((cost.clock_ratio - 1.24).abs() < 1e-9);
        assert!((cost.overhead_ticks - 115.0).abs() < 1e-9);
        assert_eq!(Cost::through((31.0, 140.0), (310.0, 140.0)), None);
        assert_eq!(Cost::through((31.0, 140.0), (310.0, 100.0)), None);
    }

    /// Sections that wander around the break-even do not make the lock change its mind; ones that
    /// leave it do, once.
    #[test]
    fn hysteresis_keeps_a_lock_from_flapping() {
        let (costs, mut estimate, mut changes) = (fx(), Estimate::new(), 0);
        let mut feed = |length: f64, estimate: &mut Estimate| {
            let before = estimate.strategy();
            estimate.sample((length / costs.clock_ratio(before)) as u64, &costs);
            changes += u32::from(estimate.strategy() != before);
        };
        for n in 0..1000 {
            let around = if n % 2 == 0 { 450_000.0 } else { 750_000.0 };
            feed(if n < 10 { 450_000.0 } else { around }, &mut estimate);
        }
        assert_eq!(estimate.strategy(), Strategy::Spin);
        for _ in 0..100 {
            feed(2_000_000.0, &mut estimate);
        }
        assert_eq!(estimate.strategy(), Strategy::Boost);
        for n in 0..1000 {
            feed(if n % 2 == 0 { 450_000.0 } else { 750_000.0 }, &mut estimate);
        }
        assert_eq!(estimate.strategy(), Strategy::Boost);
        for _ in 0..100 {
            feed(1_000.0, &mut estimate);
        }
        assert_eq!((estimate.strategy(), changes), (Strategy::Spin, 2));
    }

    /// A sample that was taken at turbo is a longer section than the same time at base.
    #[test]
    fn the_length_is_that_at_the_base_frequency() {
        let mut estimate = Estimate { length: 0.0, samples: 0, strategy: Strategy::Boost };
        estimate.sample(3_100_000, &fx());
        assert!((estimate.length - 4_000_000.0).abs() < 1.0);
    }

    /// A lock knows nothing at first, so its first sections take the best strategy for their mean,
    /// also where a break-even is near (600 k; a fifth below 700 k is on its other side). One of
    /// them that is longer than the others, as the very first one is, weighs no more than they do.
    #[test]
    fn the_first_sections_decide() {
        let learned = |lengths: [f64; 8]| {
            let mut estimate = Estimate::new();
            for length in lengths {
                let ticks = length / fx().clock_ratio(estimate.strategy());
                estimate.sample(ticks as u64, &fx());
            }
            estimate.strategy()
        };
        assert_eq!(learned([700_000.0; 8]), Strategy::Boost);
        assert_eq!(learned([500_000.0; 8]), Strategy::Spin);
        let mut first_is_long = [400_000.0; 8];
        first_is_long[0] = 1_300_000.0;
        assert_eq!(learned(first_is_long), Strategy::Spin);
    }
}
