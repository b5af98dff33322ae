// SPDX-License-Identifier: MIT OR Apache-2.0
//! The checksum of a value: wide code, and which licence level it asks for.
//!
//! Sixteen sums run beside each other, each over every sixteenth word of the value; a compiler
//! makes one vector multiplication of them, in 512, 256 or 128 bits, whatever the CPU has. Dense
//! multiplications are heavy code (DIM 2.1), so the level is 2 with AVX-512 and 1 with AVX2.

/// The multiplier of FNV-1a in 32 bits: odd, so that no word is lost.
const PRIME: u32 = 0x0100_0193;
const LANES: usize = 16;
const BLOCK: usize = 4 * LANES;

/// How a value is summed on this CPU.
#[derive(Clone, Copy)]
pub struct Checksum {
    /// The licence level, 0 if the code is not wide.
    pub level: u32,
    sum: fn(&[u8]) -> u64,
}

impl Checksum {
    /// The widest that this CPU has.
    pub fn of_this_cpu() -> Checksum {
        #[cfg(target_arch = "x86_64")]
        {
            if std::arch::is_x86_feature_detected!("avx512f") {
                // SAFETY: the CPU has the instructions.
                return Checksum { level: 2, sum: |value| unsafe { avx512(value) } };
            }
            if std::arch::is_x86_feature_detected!("avx2") {
                // SAFETY: the CPU has the instructions.
                return Checksum { level: 1, sum: |value| unsafe { avx2(value) } };
            }
        }
        Checksum::plain()
    }

    /// With what every CPU has.
    pub fn plain() -> Checksum {
        Checksum { level: 0, sum: lanes }
    }

    /// The checksum of a value, the same on every CPU.
    pub fn of(&self, value: &[u8]) -> u64 {
        (self.sum)(value)
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
fn avx512(value: &[u8]) -> u64 {
    lanes(value)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn avx2(value: &[u8]) -> u64 {
    lanes(value)
}

#[inline(always)]
fn lanes(value: &[u8]) -> u64 {
    let mut sums = [1_u32; LANES];
    let (blocks, rest) = value.as_chunks();
    for block in blocks {
        add(&mut sums, block);
    }
    let mut last = [0; BLOCK];
    last[..rest.len()].copy_from_slice(rest);
    add(&mut sums, &last);
    let len = value.len() as u64;
    sums.iter()
        .fold(len, |all, &sum| all.rotate_left(5).wrapping_mul(u64::from(PRIME)) ^ u64::from(sum))
}

#[inline(always)]
fn add(sums: &mut [u32; LANES], block: &[u8; BLOCK]) {
    for (sum, word) in sums.iter_mut().zip(block.as_chunks().0) {
        *sum = sum.wrapping_mul(PRIME) ^ u32::from_le_bytes(*word);
    }
}
