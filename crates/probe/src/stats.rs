// SPDX-License-Identifier: MIT OR Apache-2.0
//! Medians, their confidence intervals, and the bins of a clock.
//!
//! Problem: repetitions on a machine that others use have outliers (an interrupt, a neighbour) on
//! one side. A mean and its standard error describe none of it.
//!
//! Idea: medians. Their interval comes from order statistics: of n values, the number below the
//! true median is binomial with p = 1/2, whatever the distribution; so the values of rank k and
//! n+1-k enclose it with a probability that depends on n and k alone. k is the largest with at
//! least 95 %.
//!
//! Readings of a counter that advances in steps are another matter: the median of them is one of
//! the steps, and two medians differ by a step or by nothing. What they are off by is as likely up
//! as down, so their mean is right; of those near the median, because of the outliers.
//!
//! Limits: below 6 values no two of them enclose the median so surely; then the interval is that of
//! all values and says less than 95 %. Values are taken as independent of each other.

use report::probe::Estimate;

/// Probability that an interval holds the median.
const CONFIDENCE: f64 = 0.95;

/// Width of a bin of the clock: Intel's CPUs change it in steps of 100 MHz.
pub(crate) const BIN_KHZ: f64 = 100_000.0;

/// Smallest share of repetitions that a bin must have to be a regime of its own. Less, and where
/// the clock never settles the fastest stragglers would be called quiet.
const REGIME_FRAC: f64 = 0.25;

/// The coarsest steps in which a time stamp counter was seen to advance, ns: 26 ticks at 2.6 GHz,
/// on an AMD EPYC of family 25, model 17.
pub(crate) const COUNTER_STEP_NS: f64 = 10.0;
/// A difference of two readings is off by less than a step; a sum of three, as in the meter's
/// calibration, by less than three.
pub(crate) const COUNTER_REACH_NS: f64 = 3.0 * COUNTER_STEP_NS;
/// What is farther from the median than so many times what half of the values are is an outlier: of
/// a normal distribution one value in 23.
const REACH: f64 = 3.0;

/// The median; `None` of nothing.
pub fn median(values: &[f64]) -> Option<f64> {
    quantile(values, 0.5)
}

/// The value below which a share of the values lies, between two neighbours linearly.
pub fn quantile(values: &[f64], share: f64) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    let last = sorted.len().checked_sub(1)?;
    let at = share * last as f64;
    let (low, high) = (sorted[at.floor() as usize], sorted[at.ceil() as usize]);
    Some(low + (high - low) * at.fract())
}

/// How far from its median a value may lie, given how far they all do. At least `least`: where most
/// readings are the same step, those that are another one are no outliers.
pub(crate) fn reach(distances: &[f64], least: f64) -> f64 {
    median(distances).map_or(least, |distance| (REACH * distance).max(least))
}

/// The mean of the values that lie near their median, see [`reach`]. `None` of nothing.
pub fn near_mean(values: &[f64], least: f64) -> Option<f64> {
    let middle = median(values)?;
    let distances: Vec<f64> = values.iter().map(|value| (value - middle).abs()).collect();
    let reach = reach(&distances, least);
    let near = values.iter().filter(|value| (*value - middle).abs() <= reach);
    let (n, sum) = near.fold((0u32, 0.0), |(n, sum), value| (n + 1, sum + value));
    Some(sum / f64::from(n))
}

/// Median and interval; `None` of nothing.
pub fn estimate(values: &[f64]) -> Option<Estimate> {
    let value = median(values)?;
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    let (low, high) = ranks(sorted.len());
    Some(Estimate { value, low: sorted[low], high: sorted[high], n: sorted.len() })
}

/// Ranks, from 0, that enclose the median of n values.
fn ranks(n: usize) -> (usize, usize) {
    // Both tails together may hold 1 - CONFIDENCE. p = P(Binomial(n, 1/2) = k), built up from k = 0
    // by its logarithm, which does not underflow.
    let mut log_p = -(n as f64) * std::f64::consts::LN_2;
    let (mut tail, mut rank) = (0.0, 0);
    for k in 0..n / 2 {
        tail += 2.0 * log_p.exp();
        if tail > 1.0 - CONFIDENCE {
            break;
        }
        rank = k + 1;
        log_p += ((n - k) as f64 / (k + 1) as f64).ln();
    }
    let low = rank.saturating_sub(1);
    (low, n - 1 - low)
}

/// Where the quiet regime's clock lies: the fastest bin that holds a quarter of the values. The
/// clock falls when neighbours work, it does not rise. `None` of nothing.
pub fn quiet_khz(clocks_khz: &[f64]) -> Option<f64> {
    let enough = (clocks_khz.len() as f64 * REGIME_FRAC).ceil() as usize;
    let mut sorted = clocks_khz.to_vec();
    sorted.sort_unstable_by(|a, b| f64::total_cmp(b, a));
    // A window of one bin that slides down, so that a clock on the edge of two bins is one regime.
    let window = |top: f64| -> Vec<f64> {
        sorted.iter().copied().filter(|khz| *khz <= top && *khz > top - BIN_KHZ).collect()
    };
    let found = sorted.iter().map(|top| window(*top)).find(|inside| inside.len() >= enough)?;
    median(&found)
}

/// Whether a clock belongs to the regime around `centre_khz`.
pub fn is_in_bin(khz: f64, centre_khz: f64) -> bool {
    (khz - centre_khz).abs() <= BIN_KHZ / 2.0
}

/// The bin of a clock: its centre.
pub fn bin_khz(khz: f64) -> u32 {
    ((khz / BIN_KHZ).round() * BIN_KHZ) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ranks of the usual tables for the median at 95 %: 6 values enclose it by the extremes, 10 by
    /// the 2nd and 9th, 20 by the 6th and 15th, 100 by the 40th and 61st.
    #[test]
    fn ranks_are_those_of_the_tables() {
        for (n, low, high) in [(6, 1, 6), (10, 2, 9), (20, 6, 15), (100, 40, 61)] {
            assert_eq!(ranks(n), (low - 1, high - 1), "n = {n}");
        }
        assert_eq!(ranks(1), (0, 0));
        assert_eq!(ranks(10_000).0 + ranks(10_000).1, 9_999);
    }

    /// The interval holds the true median in about 95 of 100 samples, with outliers on one side
    /// that a mean would not survive.
    #[test]
    fn intervals_hold_the_truth() {
        let mut random = fastrand::Rng::with_seed(7);
        let mut held = 0;
        for _ in 0..1_000 {
            let one = |_| match random.u8(0..20) {
                0 => 1e6,
                _ => 100.0 + 10.0 * (random.f64() - 0.5),
            };
            let found = estimate(&(0..40).map(one).collect::<Vec<_>>()).unwrap();
            // One in 20 is an outlier above, so the median lies at rank 0.5 / 0.95 of the rest.
            let truth = 95.0 + 10.0 * 0.5 / 0.95;
            held += usize::from(found.low <= truth && truth <= found.high);
        }
        assert!((935..=995).contains(&held), "{held} of 1000");
    }

    /// Readings in steps of 26, however many are the one step or the other, with outliers: the mean
    /// of those near the median lies where the truth does between them.
    #[test]
    fn the_mean_sees_between_steps() {
        for upper in [0, 1, 10, 45, 60, 90, 99, 100] {
            let mut values = vec![676.0; 100 - upper];
            values.extend(vec![702.0; upper]);
            values.extend([3_000.0; 8]);
            let mean = near_mean(&values, 78.0).unwrap();
            let truth = 676.0 + 0.26 * upper as f64;
            assert!((mean - truth).abs() < 1e-9, "{mean} for {truth}");
        }
        assert_eq!((near_mean(&[], 1.0), near_mean(&[5.0], 0.0)), (None, Some(5.0)));
    }

    /// Two regimes: the quiet one is the faster, also when it is the rarer; stray values above are
    /// no regime.
    #[test]
    fn the_quiet_regime_is_found() {
        let mut clocks = vec![2_700_000.0; 70];
        clocks.extend([2_990_000.0; 27]);
        clocks.extend([3_500_000.0; 3]);
        assert_eq!(quiet_khz(&clocks), Some(2_990_000.0));
        assert_eq!(quiet_khz(&[]), None);
        assert!(is_in_bin(3_010_000.0, 2_990_000.0) && !is_in_bin(2_900_000.0, 2_990_000.0));
    }

    /// A clock between two bins is one regime and not two.
    #[test]
    fn an_edge_does_not_split_a_regime() {
        let clocks: Vec<f64> = (0..100).map(|at| 2_945_000.0 + 100.0 * f64::from(at)).collect();
        let centre = quiet_khz(&clocks).unwrap();
        assert!(clocks.iter().all(|khz| is_in_bin(*khz, centre)));
    }
}
