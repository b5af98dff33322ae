// SPDX-License-Identifier: MIT OR Apache-2.0
//! Chance that is the same everywhere: a seed gives the same numbers on every machine.
//!
//! xoshiro256++ (Blackman, Vigna 2019), seeded by splitmix64 as its authors say. The logarithm is
//! written out, because the one of the C library may differ in the last bit between systems, and
//! one bit is another run.

/// A source of numbers. Cloning it repeats them.
#[derive(Clone, Debug)]
pub struct Rng {
    state: [u64; 4],
}

impl Rng {
    /// By a seed and a stream: streams of one seed are independent.
    pub fn new(seed: u64, stream: u64) -> Self {
        let mut x = seed ^ stream.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut next = || {
            x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut z = x;
            z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
            z ^ z >> 31
        };
        Rng { state: [next(), next(), next(), next()] }
    }

    /// 64 bits.
    #[inline]
    pub fn next_u64(&mut self) -> u64 {
        let s = &mut self.state;
        let result = s[0].wrapping_add(s[3]).rotate_left(23).wrapping_add(s[0]);
        let t = s[1] << 17;
        s[2] ^= s[0];
        s[3] ^= s[1];
        s[1] ^= s[2];
        s[0] ^= s[3];
        s[2] ^= t;
        s[3] = s[3].rotate_left(45);
        result
    }

    /// A number below `bound`; 0 if it is 0. Biased by less than bound / 2^64.
    #[inline]
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next_u64()) * u128::from(bound)) >> 64) as u64
    }

    /// In (0, 1].
    #[inline]
    pub fn unit(&mut self) -> f64 {
        ((self.next_u64() >> 11) + 1) as f64 * (1.0 / (1u64 << 53) as f64)
    }

    /// One of a distribution.
    #[inline]
    pub fn draw(&mut self, from: &Dist) -> u64 {
        match *from {
            Dist::Fixed(value) => value,
            Dist::Uniform(least, most) => least + self.below(most - least + 1),
            Dist::Exponential(mean) => (-ln(self.unit()) * mean as f64) as u64,
        }
    }
}

/// How a length varies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dist {
    /// Always the same.
    Fixed(u64),
    /// From the first to the second, both included.
    Uniform(u64, u64),
    /// Exponential with this mean.
    Exponential(u64),
}

impl Dist {
    /// Its mean.
    pub fn mean(&self) -> f64 {
        match *self {
            Dist::Fixed(value) => value as f64,
            Dist::Uniform(least, most) => (least as f64 + most as f64) / 2.0,
            Dist::Exponential(mean) => mean as f64,
        }
    }
}

/// Natural logarithm of a normal positive number, to 1e-13: x = m * 2^e with m in [sqrt(1/2),
/// sqrt(2)), ln m = 2 artanh((m - 1) / (m + 1)) as a series.
fn ln(x: f64) -> f64 {
    let bits = x.to_bits();
    let mut exponent = (bits >> 52) as i64 - 1023;
    let mut m = f64::from_bits(bits & ((1 << 52) - 1) | 1023 << 52);
    if m > std::f64::consts::SQRT_2 {
        m /= 2.0;
        exponent += 1;
    }
    let z = (m - 1.0) / (m + 1.0);
    let z2 = z * z;
    let series = (0..8).rev().fold(0.0, |sum, k| sum * z2 + 1.0 / f64::from(2 * k + 1));
    2.0 * z * series + exponent as f64 * std::f64::consts::LN_2
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Published first outputs of xoshiro256++ from the state 1, 2, 3, 4.
    #[test]
    fn agrees_with_the_reference() {
        let mut rng = Rng { state: [1, 2, 3, 4] };
        let first: Vec<u64> = (0..4).map(|_| rng.next_u64()).collect();
        assert_eq!(first, [41943041, 58720359, 3588806011781223, 3591011842654386]);
    }

    /// The logarithm is that of the library except for rounding.
    #[test]
    fn the_logarithm_is_one() {
        for x in [1e-16, 1e-9, 0.1, 0.5, 0.71, 0.9999999, 1.0, 1.5, 3.0] {
            assert!((ln(x) - f64::ln(x)).abs() < 1e-12 * (1.0 + f64::ln(x).abs()), "{x}");
        }
    }

    /// Draws have the mean that the distribution says, within 1 %.
    #[test]
    fn draws_have_their_mean() {
        let mut rng = Rng::new(7, 0);
        for dist in [Dist::Fixed(9), Dist::Uniform(0, 999), Dist::Exponential(100_000)] {
            let n = 200_000;
            let sum: u64 = (0..n).map(|_| rng.draw(&dist)).sum();
            let mean = sum as f64 / f64::from(n);
            assert!((mean / dist.mean() - 1.0).abs() < 0.01, "{dist:?}: {mean}");
        }
    }
}
