// SPDX-License-Identifier: MIT OR Apache-2.0
//! The break-even time of a change of the clock (DIM 4.3).
//!
//! Problem: raising the clock costs a halt, and lowering it again a throttle and a halt. For a
//! short while it does not pay.
//!
//! Idea: it pays from the time t on at which as much work is done in both cases,
//!
//! ```text
//!   p_low * t = p_high * (t - t_o)      so      t = t_o / (1 - p_low / p_high)
//! ```
//!
//! with the performance p at either clock (here the clock itself; `timeline.rs` has the work for
//! which that is not so) and t_o the cost of both changes, as CPU time. It depends on the step and,
//! because clocks do, on the number of active cores, while Intel's timeout does not.
//!
//! Limits: DIM 4.2 counts the error of taking the clock for the performance: at most 5.9 % for the
//! programs there, below 1 % for nginx.

use cpumodel::Platform;
use report::dvfs::Step;

use crate::Core;

/// Break-even time of raising the clock from level `low` to level `high` (numbers grow as clocks
/// fall), ns; `None` if that brings nothing.
pub fn break_even_ns(core: &Core, low: u8, high: u8) -> Option<f64> {
    let lost_frac = 1.0 - core.clock_ratio(low, high);
    (lost_frac > 0.0).then(|| core.round_trip_ns(high, low) / lost_frac)
}

/// Every step of a machine: all pairs of levels, for each range of active cores with clocks of
/// its own.
pub fn steps(platform: &Platform) -> Vec<Step> {
    let mut steps = Vec::new();
    for (active_from, active_to) in ranges(platform) {
        let core = Core::new(platform, active_from);
        let nr_levels = core.nr_levels() as u8;
        let pairs = (1..nr_levels).flat_map(|low| (0..low).rev().map(move |high| (low, high)));
        steps.extend(pairs.map(|(low, high)| Step {
            active_from,
            active_to,
            low_level: low,
            high_level: high,
            low_khz: core.clock_khz[low as usize],
            high_khz: core.clock_khz[high as usize],
            lower_cost_ns: core.lower_cost_ns(high, low),
            raise_cost_ns: core.raise_cost_ns(),
            break_even_ns: break_even_ns(&core, low, high),
        }));
    }
    steps
}

/// Ranges of active cores with the same clocks at every level.
fn ranges(platform: &Platform) -> Vec<(usize, usize)> {
    let clocks = |active: usize| -> Vec<u32> {
        (0..platform.nr_levels() as u8).map(|level| platform.clock_khz(level, active)).collect()
    };
    let mut ranges: Vec<(usize, usize)> = Vec::new();
    for active in 1..=platform.nr_cores {
        match ranges.last_mut() {
            Some((from, to)) if clocks(*from) == clocks(active) => *to = active,
            _ => ranges.push((active, active)),
        }
    }
    ranges
}

#[cfg(test)]
mod tests {
    use cpumodel::CpuModel;

    use super::*;

    fn gold_6130() -> Platform {
        Platform::new(&CpuModel::built_in("xeon-gold-6130").unwrap().unwrap())
    }

    fn between(platform: &Platform, active: usize) -> f64 {
        break_even_ns(&Core::new(platform, active), 1, 0).unwrap()
    }

    /// DIM 4.3 and Figure 6, levels 1 and 0: about 1000 us with few active cores ("frequency swing
    /// of only 100 MHz"), 150 to 190 us with more than eight.
    #[test]
    fn figure_6_comes_out() {
        let platform = gold_6130();
        for active in 1..=3 {
            let us = between(&platform, active) / 1e3;
            assert!((900.0..1100.0).contains(&us), "{active} cores: {us} us");
        }
        for active in 9..=16 {
            let us = between(&platform, active) / 1e3;
            assert!((150.0..=190.0).contains(&us), "{active} cores: {us} us");
        }
    }

    /// DIM 4.1: a change from level 0 to 1 costs 17 us on the mean, one upwards 10 us.
    #[test]
    fn changes_cost_what_was_measured() {
        let platform = gold_6130();
        let down = |active| Core::new(&platform, active).lower_cost_ns(0, 1) / 1e3;
        let mean = (1..=16).map(down).sum::<f64>() / 16.0;
        assert!((mean - 17.0).abs() < 0.5, "{mean}");
        assert_eq!(Core::new(&platform, 1).raise_cost_ns(), 10_000.0);
    }

    /// The definition: after the break-even time, both choices do the same work.
    #[test]
    fn both_ways_do_the_same_work() {
        for step in steps(&gold_6130()) {
            let t = step.break_even_ns.unwrap();
            let low = f64::from(step.low_khz) * t;
            let overhead = step.lower_cost_ns + step.raise_cost_ns;
            let high = f64::from(step.high_khz) * (t - overhead);
            assert!((low / high - 1.0).abs() < 1e-12, "{step:?}");
        }
    }

    /// The larger the step of the clock, the sooner it pays; and equal clocks never pay.
    #[test]
    fn larger_steps_pay_sooner() {
        let mut core = Core::new(&gold_6130(), 16);
        core.clock_khz = vec![3_000_000, 2_700_000, 2_000_000, 2_000_000];
        let t = |low, high| break_even_ns(&core, low, high);
        assert!(t(2, 0).unwrap() < t(1, 0).unwrap());
        assert!(t(2, 1).unwrap() < t(1, 0).unwrap());
        assert_eq!(t(3, 2), None);
    }

    /// Ranges are those of the turbo table: five buckets of Table 1, three pairs of levels.
    #[test]
    fn ranges_follow_the_table() {
        let steps = steps(&gold_6130());
        let mut ranges: Vec<_> = steps.iter().map(|s| (s.active_from, s.active_to)).collect();
        assert_eq!(ranges.len(), 15);
        ranges.dedup();
        assert_eq!(ranges, [(1, 2), (3, 4), (5, 8), (9, 12), (13, 16)]);
    }
}
