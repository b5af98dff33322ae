// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where a series changes its level.
//!
//! Problem: a licence that is granted, or a clock that returns, is a step in a noisy series; where?
//!
//! Idea: binary segmentation. The best place to split a row of values into two constants is the one
//! that leaves the least sum of squares; with prefix sums, all places cost one pass. A split counts
//! if the two means differ by at least a given amount and by many standard errors; then either side
//! is split again.
//!
//! ```text
//!   gain(k) = n1 * n2 / n * (mean1 - mean2)^2        of a split before k, to be maximised
//!   counts if |mean1 - mean2| >= least  and  gain > (T * sigma)^2
//! ```
//!
//! sigma comes from differences of neighbours (their median over 0.6745 * sqrt 2), which a step
//! hardly touches. T is 6: of several thousand places the best by chance reaches about 4.
//!
//! Outliers are taken out first by a running median, which leaves steps where they are; sigma is
//! that of the values before it.
//!
//! Limits: ramps become stairs; a level of fewer than three values is taken for an outlier.

use crate::stats::median;

/// Standard errors between two levels that are distinguished.
const T: f64 = 6.0;

/// A part of the series with one level.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Segment {
    /// First index.
    pub from: usize,
    /// After the last.
    pub to: usize,
    /// Median of its values.
    pub level: f64,
}

/// Running median of five: steps stay where they are, single and double outliers go.
pub(crate) fn smooth(values: &[f64]) -> Vec<f64> {
    let at = |i: usize| {
        let (from, to) = (i.saturating_sub(2), (i + 3).min(values.len()));
        let mut five = [0.0; 5];
        let window = &mut five[..to - from];
        window.copy_from_slice(&values[from..to]);
        window.sort_unstable_by(f64::total_cmp);
        window[window.len() / 2]
    };
    (0..values.len()).map(at).collect()
}

/// Segments of a series, levels at least `least` apart.
pub fn segments(values: &[f64], least: f64) -> Vec<Segment> {
    let Some(sigma) = noise(values) else { return Vec::new() };
    let values = smooth(values);
    let mut prefix = Vec::with_capacity(values.len() + 1);
    prefix.push(0.0);
    values.iter().for_each(|value| prefix.push(prefix[prefix.len() - 1] + value));
    let mut cuts = vec![0, values.len()];
    cut(&prefix, 0, values.len(), least, sigma, &mut cuts);
    cuts.sort_unstable();
    let level = |from, to| median(&values[from..to]).unwrap_or(0.0);
    cuts.windows(2).map(|w| Segment { from: w[0], to: w[1], level: level(w[0], w[1]) }).collect()
}

fn cut(prefix: &[f64], from: usize, to: usize, least: f64, sigma: f64, cuts: &mut Vec<usize>) {
    let Some((at, step, gain)) = best(prefix, from, to) else { return };
    if step.abs() < least || gain < (T * sigma).powi(2) {
        return;
    }
    cuts.push(at);
    cut(prefix, from, at, least, sigma, cuts);
    cut(prefix, at, to, least, sigma, cuts);
}

/// The best split of a part: place, step, gain. Sides of fewer than two values are no levels.
fn best(prefix: &[f64], from: usize, to: usize) -> Option<(usize, f64, f64)> {
    let mean = |a: usize, b: usize| (prefix[b] - prefix[a]) / (b - a) as f64;
    let split = |at: usize| {
        let step = mean(at, to) - mean(from, at);
        let weight = ((at - from) * (to - at)) as f64 / (to - from) as f64;
        (at, step, weight * step * step)
    };
    (from + 2..(to + 1).saturating_sub(2)).map(split).max_by(|a, b| a.2.total_cmp(&b.2))
}

/// Standard deviation of the values around their levels. A tiny floor stands for the rounding of
/// noiseless series.
fn noise(values: &[f64]) -> Option<f64> {
    let differences: Vec<f64> = values.windows(2).map(|w| (w[1] - w[0]).abs()).collect();
    let floor = 1e-6 * values.iter().fold(0.0f64, |most, value| most.max(value.abs()));
    // 0.6745: the median of |x| of a standard normal distribution.
    Some((median(&differences)? / (0.6745 * std::f64::consts::SQRT_2)).max(floor))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn noisy(random: &mut fastrand::Rng, levels: &[(usize, f64)], sigma: f64) -> Vec<f64> {
        let mut normal = || (0..12).map(|_| random.f64()).sum::<f64>() - 6.0;
        let of = |(n, level): &(usize, f64)| vec![*level; *n];
        levels.iter().flat_map(of).map(|level| level + sigma * normal()).collect()
    }

    /// A throttle, a middle level and the full one, as our own measurements have them: each edge
    /// within two places, in 200 of 200 noisy series.
    #[test]
    fn three_levels_are_found() {
        let mut random = fastrand::Rng::with_seed(3);
        for _ in 0..200 {
            let values = noisy(&mut random, &[(6, 0.3), (250, 0.88), (700, 1.0)], 0.02);
            let found = segments(&values, 0.04);
            let edges: Vec<usize> = found.iter().map(|segment| segment.from).collect();
            assert_eq!(found.len(), 3, "{found:?}");
            assert!(edges[1].abs_diff(6) <= 1 && edges[2].abs_diff(256) <= 8, "{edges:?}");
        }
    }

    /// Noise alone has one level: in 300 series not one step is seen.
    #[test]
    fn noise_has_no_steps() {
        let mut random = fastrand::Rng::with_seed(5);
        for _ in 0..300 {
            let values = noisy(&mut random, &[(1_000, 1.0)], 0.02);
            assert_eq!(segments(&values, 0.0).len(), 1);
        }
    }

    /// Outliers are smoothed away and the step stays.
    #[test]
    fn outliers_are_no_steps() {
        let mut random = fastrand::Rng::with_seed(9);
        let mut values = noisy(&mut random, &[(150, 2.8), (300, 3.0)], 0.005);
        for at in [20, 21, 90, 200, 333] {
            values[at] = 0.1;
        }
        let found = segments(&values, 0.03);
        assert_eq!(found.iter().map(|segment| segment.from).collect::<Vec<_>>(), [0, 150]);
        assert!((found[1].level - 3.0).abs() < 0.01);
    }

    /// Nothing, and a single value, have no steps and no panic.
    #[test]
    fn short_series_are_fine() {
        assert!(segments(&[], 0.1).is_empty() && segments(&[1.0], 0.1).is_empty());
        assert_eq!(segments(&[1.0, 1.0], 0.1).len(), 1);
        assert!(smooth(&[]).is_empty());
    }
}
