// SPDX-License-Identifier: MIT OR Apache-2.0
//! Two groups of runs: are they different, by how much, and if there is no verdict, how many runs
//! are needed for one.
//!
//! Problem: run times have long tails, and ten runs are many. A test that takes them for normal
//! finds differences between a program and itself.
//!
//! Idea: the rank-sum test of Wilcoxon, Mann and Whitney with its exact distribution, and the
//! interval of Hodges and Lehmann that belongs to it: of all ratios b/a between the two groups, the
//! median is the effect, and those of rank k from either end enclose it. k comes from the null
//! distribution of U, the number of pairs with b < a, counted by Mann and Whitney's recurrence
//!
//! ```text
//!   N(u; n, m) = N(u - m; n - 1, m) + N(u; n, m - 1)      P(U <= k - 1) <= 2.5 %
//! ```
//!
//! With more than 100 runs of either kind the counts would leave the range of a double (C(1030,
//! 515) is 10^308), and the normal approximation that Mann and Whitney give for large groups has
//! the same result: z = 1.96 standard deviations below the mean of U, with half a step because it
//! is an integer. At 100 runs of each kind both give the same k.
//!
//! ```text
//!   k = floor(n m / 2 - z sqrt(n m (n + m + 1) / 12) + 1/2)
//! ```
//!
//! An interval that leaves out 1 is a difference; so a program compared with itself is called
//! different in at most 5 of 100 comparisons, whatever its times are distributed like. An interval
//! inside of the margin is no difference that matters. Anything else is not enough runs: the width
//! falls with the square root of their number.
//!
//! Limits: runs must be independent (random order, nothing kept between them), and their number
//! fixed before: a user who looks and runs on until it is different will find a difference.

/// Runs of each kind with which an exact interval of 95 % exists: 1 / C(8, 4) is 1.4 %.
pub const LEAST_RUNS: usize = 4;

/// Both tails together.
const ERROR: f64 = 0.05;

/// What a standard normal value exceeds with probability `ERROR` / 2.
const NORMAL_QUANTILE: f64 = 1.959_964;

/// Runs of either kind up to which the exact distribution is counted: a few ms in time.
const MOST_EXACT: usize = 100;

/// What a comparison found.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Comparison {
    /// Median of b over a.
    pub ratio: f64,
    /// The interval of 95 %.
    pub low: f64,
    /// See `low`.
    pub high: f64,
    /// What it means.
    pub verdict: Verdict,
}

/// What a comparison means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// b is better.
    Better,
    /// b is worse.
    Worse,
    /// A difference larger than the margin is ruled out.
    Same,
    /// About so many runs of each kind are needed for a verdict.
    NotEnough {
        /// How many.
        runs: usize,
    },
}

/// How to compare two groups of these sizes. The rank depends on nothing else, so that several
/// values of the same runs share it.
#[derive(Clone, Copy, Debug)]
pub struct RankTest {
    sizes: (usize, usize),
    rank: usize,
}

impl RankTest {
    /// For n runs of a and m of b. `None` with fewer than [`LEAST_RUNS`] of either.
    pub fn new(n: usize, m: usize) -> Option<RankTest> {
        if n.min(m) < LEAST_RUNS {
            return None;
        }
        let rank = if n.max(m) <= MOST_EXACT { exact_rank(n, m) } else { normal_rank(n, m) };
        Some(RankTest { sizes: (n, m), rank: rank? })
    }

    /// Compares positive values, with smaller ones being better if so said. `margin_frac`: the
    /// smallest difference that matters. `None` if there are not as many as was said, or with a
    /// value that is not positive.
    pub fn compare(
        &self,
        a: &[f64],
        b: &[f64],
        smaller_is_better: bool,
        margin_frac: f64,
    ) -> Option<Comparison> {
        let usable = |values: &[f64]| values.iter().all(|value| value.is_finite() && *value > 0.0);
        if self.sizes != (a.len(), b.len()) || !usable(a) || !usable(b) {
            return None;
        }
        let mut ratios: Vec<f64> = b.iter().flat_map(|b| a.iter().map(move |a| b / a)).collect();
        ratios.sort_unstable_by(f64::total_cmp);
        let (low, high) = (ratios[self.rank - 1], ratios[ratios.len() - self.rank]);
        let ratio = crate::stats::median(&ratios)?;
        let verdict = match () {
            () if low > 1.0 || high < 1.0 => {
                if (ratio < 1.0) == smaller_is_better {
                    Verdict::Better
                } else {
                    Verdict::Worse
                }
            }
            () if low >= 1.0 - margin_frac && high <= 1.0 + margin_frac => Verdict::Same,
            () => {
                let half_frac = (high - low) / 2.0;
                let times = (half_frac / margin_frac.max(1e-6)).powi(2).max(1.0);
                let least = a.len().min(b.len());
                let runs = (least as f64 * times).ceil() as usize;
                Verdict::NotEnough { runs: runs.max(least + 1) }
            }
        };
        Some(Comparison { ratio, low, high, verdict })
    }
}

/// One comparison, by [`RankTest`].
pub fn compare(
    a: &[f64],
    b: &[f64],
    smaller_is_better: bool,
    margin_frac: f64,
) -> Option<Comparison> {
    RankTest::new(a.len(), b.len())?.compare(a, b, smaller_is_better, margin_frac)
}

/// The largest k with P(U <= k - 1) <= ERROR / 2; `None` if there is none.
fn exact_rank(n: usize, m: usize) -> Option<usize> {
    let counts = counts(n, m);
    let all: f64 = counts.iter().sum();
    let mut below = 0.0;
    let fits = counts.iter().take_while(|count| {
        below += *count / all;
        below <= ERROR / 2.0
    });
    let rank = fits.count();
    (rank > 0).then_some(rank)
}

/// The same by the normal approximation.
fn normal_rank(n: usize, m: usize) -> Option<usize> {
    let (n, m) = (n as f64, m as f64);
    let deviation = (n * m * (n + m + 1.0) / 12.0).sqrt();
    let rank = (n * m / 2.0 - NORMAL_QUANTILE * deviation + 0.5).floor();
    (rank >= 1.0).then_some(rank as usize)
}

/// How many orders of n and m values have each U, 0 to n*m. By adding one value at a time: with i
/// of the first kind and j of the second, the largest is either of the first kind, and larger than
/// all j of the second, or it is of the second.
fn counts(n: usize, m: usize) -> Vec<f64> {
    // table[j]: counts for the current i and j.
    let mut table: Vec<Vec<f64>> = vec![vec![1.0]; m + 1];
    for i in 1..=n {
        let mut next: Vec<Vec<f64>> = vec![vec![1.0]];
        for j in 1..=m {
            let mut counts = vec![0.0; i * j + 1];
            for (u, count) in table[j].iter().enumerate() {
                counts[u + j] += count;
            }
            for (u, count) in next[j - 1].iter().enumerate() {
                counts[u] += count;
            }
            next.push(counts);
        }
        table = next;
    }
    table.pop().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The null distribution is that of the tables: 252 orders of 5 and 5, of which 1, 1, 2, 3 have
    /// U = 0 to 3; critical values of the two-sided 5 % test (Mann and Whitney 1947).
    #[test]
    fn the_null_distribution_is_exact() {
        let five = counts(5, 5);
        assert_eq!(five.iter().sum::<f64>(), 252.0);
        assert_eq!(five[..4], [1.0, 1.0, 2.0, 3.0]);
        for (n, critical) in [(4, 0), (5, 2), (8, 13), (10, 23), (20, 127)] {
            assert_eq!(exact_rank(n, n), Some(critical + 1), "n = {n}");
        }
        assert_eq!(exact_rank(3, 3), None);
    }

    /// Where the exact distribution ends, the normal one takes over without a step; with unequal
    /// groups it is at most one rank of thousands off, to the careful side.
    #[test]
    fn the_normal_approximation_continues_it() {
        assert_eq!(exact_rank(100, 100), normal_rank(100, 100));
        for (n, m) in [(100, 60), (70, 90)] {
            let (exact, normal) = (exact_rank(n, m).unwrap(), normal_rank(n, m).unwrap());
            assert!(normal == exact || normal + 1 == exact, "{n} and {m}: {exact}, {normal}");
        }
        assert_eq!(RankTest::new(101, LEAST_RUNS - 1).map(|test| test.rank), None);
    }

    /// As many runs as the command line takes are compared: a gain of 1 % is found, an interval is
    /// narrow, and a program compared with itself is the same.
    #[test]
    fn a_thousand_runs_are_compared() {
        let mut random = fastrand::Rng::with_seed(3);
        let (a, b) = (runs(&mut random, 1000, 10.0), runs(&mut random, 1000, 9.9));
        let test = RankTest::new(1000, 1000).unwrap();
        let found = test.compare(&a, &b, true, 0.01).unwrap();
        assert_eq!(found.verdict, Verdict::Better);
        assert!(found.low <= 0.99 && 0.99 <= found.high && found.high - found.low < 0.01);
        assert_eq!(test.compare(&a, &a, true, 0.01).unwrap().verdict, Verdict::Same);
        assert_eq!(test.compare(&a[1..], &b, true, 0.01), None, "other sizes than were said");
    }

    /// Run times as they are: a base, noise to one side, now and then a long one.
    fn runs(random: &mut fastrand::Rng, n: usize, base: f64) -> Vec<f64> {
        let mut one = || {
            let tail = if random.u8(0..10) == 0 { 0.3 * random.f64() } else { 0.0 };
            base * (1.0 - 0.02 * (1.0 - random.f64()).ln() + tail)
        };
        (0..n).map(|_| one()).collect()
    }

    /// A program compared with itself is called different in at most 5 of 100 comparisons, for each
    /// number of runs; and in some, else the test could not find anything.
    #[test]
    fn false_positives_are_rare() {
        let mut random = fastrand::Rng::with_seed(2);
        for n in [4, 6, 10, 20] {
            let different = |_| {
                let (a, b) = (runs(&mut random, n, 10.0), runs(&mut random, n, 10.0));
                let found = compare(&a, &b, true, 0.01).unwrap().verdict;
                usize::from(matches!(found, Verdict::Better | Verdict::Worse))
            };
            let found: usize = (0..600).map(different).sum();
            assert!((3..=34).contains(&found), "{found} of 600 with {n} runs");
        }
    }

    /// A gain of 5 % is found with twenty runs in nearly all cases, and its interval holds it in 95
    /// %.
    #[test]
    fn a_gain_is_found() {
        let mut random = fastrand::Rng::with_seed(8);
        let (mut better, mut held) = (0, 0);
        for _ in 0..300 {
            let (a, b) = (runs(&mut random, 20, 10.0), runs(&mut random, 20, 9.5));
            let found = compare(&a, &b, true, 0.01).unwrap();
            better += usize::from(found.verdict == Verdict::Better);
            held += usize::from(found.low <= 0.95 && 0.95 <= found.high);
        }
        assert!(better >= 270, "{better} of 300");
        assert!((275..=298).contains(&held), "{held} of 300");
        let (a, b) = (runs(&mut random, 20, 10.0), runs(&mut random, 20, 11.0));
        assert_eq!(compare(&a, &b, true, 0.01).unwrap().verdict, Verdict::Worse);
        assert_eq!(compare(&a, &b, false, 0.01).unwrap().verdict, Verdict::Better);
    }

    /// Without a verdict it says how many runs would give one, more than there are; what is the
    /// same within the margin says so; too few runs and values that are no times give nothing.
    #[test]
    fn honest_answers() {
        let spread = [10.0, 12.0, 9.0, 14.0, 10.5, 9.2, 13.0, 11.0];
        match compare(&spread, &spread, true, 0.01).unwrap().verdict {
            Verdict::NotEnough { runs } => assert!(runs > 100, "{runs}"),
            other => panic!("{other:?}"),
        }
        let tight: Vec<f64> = (0..10).map(|at| 10.0 + 0.001 * f64::from(at)).collect();
        assert_eq!(compare(&tight, &tight, true, 0.01).unwrap().verdict, Verdict::Same);
        assert_eq!(compare(&tight[..3], &tight, true, 0.01), None);
        assert_eq!(compare(&[0.0; 5], &tight, true, 0.01), None);
    }
}
