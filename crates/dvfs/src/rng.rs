// SPDX-License-Identifier: MIT OR Apache-2.0
//! Chance that is the same everywhere: splitmix64 (Steele, Lea, Flood 2014), and an exponential
//! shape without a logarithm, whose last bit may differ between systems.

/// A source of numbers.
#[derive(Clone, Debug)]
pub(crate) struct Rng {
    state: u64,
}

impl Rng {
    pub(crate) fn new(seed: u64) -> Self {
        Rng { state: seed }
    }

    pub(crate) fn next_u64(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    /// In [0, 1).
    pub(crate) fn unit(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
    }

    /// From `least` to `most`, both included.
    pub(crate) fn between(&mut self, least: u64, most: u64) -> u64 {
        let span = most - least;
        match span.checked_add(1) {
            Some(span) => least + ((u128::from(self.next_u64()) * u128::from(span)) >> 64) as u64,
            None => self.next_u64(),
        }
    }

    /// In [0, 1] with the density e^x / (e - 1).
    ///
    /// By von Neumann's comparison (1951): of uniform numbers drawn until one is larger than the
    /// last, the first has a falling run of odd length with probability e^-u, since a run is at
    /// least k + 1 long with probability u^k / k!. So accepted, u has the density e^-u, and 1 - u
    /// the wanted one.
    pub(crate) fn exp_unit(&mut self) -> f64 {
        loop {
            let first = self.unit();
            let (mut last, mut odd) = (first, true);
            loop {
                let next = self.unit();
                if next > last {
                    break;
                }
                (last, odd) = (next, !odd);
            }
            if odd {
                return 1.0 - first;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// First outputs of the reference for the seed 1234567, as its test vectors are published.
    #[test]
    fn agrees_with_the_reference() {
        let mut rng = Rng::new(1_234_567);
        let first: Vec<u64> = (0..3).map(|_| rng.next_u64()).collect();
        assert_eq!(
            first,
            [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]
        );
    }

    /// The exponential shape has its distribution: P(x <= a) = (e^a - 1) / (e - 1).
    #[test]
    fn the_shape_is_exponential() {
        let mut rng = Rng::new(3);
        let n = 200_000;
        let mut below = [0u32; 10];
        for _ in 0..n {
            let x = rng.exp_unit();
            assert!((0.0..=1.0).contains(&x));
            (1..=10).filter(|&k| x <= f64::from(k) / 10.0).for_each(|k| below[k as usize - 1] += 1);
        }
        for (k, count) in (1..=10).zip(below) {
            let wanted = (f64::exp(f64::from(k) / 10.0) - 1.0) / (std::f64::consts::E - 1.0);
            assert!((f64::from(count) / f64::from(n) - wanted).abs() < 0.004, "{k}");
        }
    }
}
