// SPDX-License-Identifier: MIT OR Apache-2.0
//! Distribution of times, in little space: 128 buckets per doubling, so that a percentile is off by
//! less than 1 %; 0 to 2^64 ns.

/// Bits of the mantissa that distinguish buckets.
const FINE_BITS: u32 = 7;

/// A histogram of nanoseconds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Histogram {
    buckets: Vec<u64>,
    count: u64,
    sum_ns: u128,
    max_ns: u64,
}

fn bucket_of(ns: u64) -> usize {
    let fine = 1 << FINE_BITS;
    if ns < fine {
        return ns as usize;
    }
    let exponent = 63 - ns.leading_zeros();
    let shift = exponent - FINE_BITS;
    ((u64::from(shift + 1) << FINE_BITS) + (ns >> shift) - fine) as usize
}

/// The middle of a bucket.
fn value_of(bucket: usize) -> u64 {
    let fine = 1usize << FINE_BITS;
    if bucket < 2 * fine {
        return bucket as u64;
    }
    let shift = bucket / fine - 1;
    let least = ((bucket % fine + fine) as u64) << shift;
    least + (1 << shift) / 2
}

impl Histogram {
    /// Add one.
    #[inline]
    pub fn add(&mut self, ns: u64) {
        let bucket = bucket_of(ns);
        if bucket >= self.buckets.len() {
            self.buckets.resize(bucket + 1, 0);
        }
        self.buckets[bucket] += 1;
        self.count += 1;
        self.sum_ns += u128::from(ns);
        self.max_ns = self.max_ns.max(ns);
    }

    /// How many were added.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Their mean; `None` if there are none.
    pub fn mean_ns(&self) -> Option<u64> {
        (self.count > 0).then(|| (self.sum_ns / u128::from(self.count)) as u64)
    }

    /// The longest.
    pub fn max_ns(&self) -> Option<u64> {
        (self.count > 0).then_some(self.max_ns)
    }

    /// The time that so many percent do not exceed; `None` if there are none.
    pub fn percentile_ns(&self, percent: f64) -> Option<u64> {
        let rank = (percent / 100.0 * self.count as f64).ceil().max(1.0) as u64;
        let mut seen = 0;
        let bucket = self.buckets.iter().position(|&n| {
            seen += n;
            seen >= rank
        })?;
        Some(value_of(bucket).min(self.max_ns))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// A percentile is within 1 % of that of the sorted times.
        #[test]
        fn percentiles_are_close(
            mut times in prop::collection::vec(0u64..1 << 40, 1..300),
            percent in 1u32..=100,
        ) {
            let mut histogram = Histogram::default();
            times.iter().for_each(|&ns| histogram.add(ns));
            times.sort_unstable();
            let rank = (f64::from(percent) / 100.0 * times.len() as f64).ceil() as usize;
            let exact = times[rank - 1] as f64;
            let found = histogram.percentile_ns(f64::from(percent)).unwrap() as f64;
            prop_assert!((found - exact).abs() <= exact * 0.01, "{found} for {exact}");
            prop_assert_eq!(histogram.max_ns(), times.last().copied());
        }
    }

    /// Nothing has no percentile.
    #[test]
    fn nothing_has_no_percentile() {
        assert_eq!(Histogram::default().percentile_ns(50.0), None);
        assert_eq!(Histogram::default().mean_ns(), None);
    }
}
