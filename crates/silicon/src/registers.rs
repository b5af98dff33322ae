// SPDX-License-Identifier: MIT OR Apache-2.0
//! Model-specific registers about clocks: what intel_pstate, schedutil and turbostat read, and
//! PERF_CTL, by which they ask for a P-state.
//!
//! Ratios are multiples of 100 MHz. A requested ratio is a ceiling: the core's clock is the lower
//! of it and of the licence level's clock.

use crate::clocks::{Clocks, MIN_RATIO};

const MICROCODE: u32 = 0x8b;
const PLATFORM_INFO: u32 = 0xce;
pub(crate) const MPERF: u32 = 0xe7;
pub(crate) const APERF: u32 = 0xe8;
const PERF_STATUS: u32 = 0x198;
const PERF_CTL: u32 = 0x199;
const TURBO_RATIO_LIMIT: u32 = 0x1ad;
const TURBO_RATIO_LIMIT_CORES: u32 = 0x1ae;

/// From this revision on Linux trusts a Skylake-SP's TSC deadline timer.
const MICROCODE_REVISION: u64 = 0x0200_7006;

/// Buckets of the turbo limits.
const BUCKETS: usize = 8;

/// What the registers show of one CPU at one moment.
pub(crate) struct View<'a> {
    pub(crate) clocks: &'a Clocks,
    /// Core cycles while awake.
    pub(crate) aperf: u64,
    /// Ticks of the time stamp counter while awake.
    pub(crate) mperf: u64,
    /// The requested ratio, 0 if none was.
    pub(crate) ratio: u8,
    /// The ratio that the core runs at.
    pub(crate) current: u8,
}

impl View<'_> {
    /// A register; `None` if it is none of these.
    pub(crate) fn read(&self, register: u32) -> Option<u64> {
        let clocks = self.clocks;
        Some(match register {
            MICROCODE => MICROCODE_REVISION << 32,
            PLATFORM_INFO => u64::from(MIN_RATIO) << 40 | u64::from(clocks.base_ratio()) << 8,
            MPERF => self.mperf,
            APERF => self.aperf,
            PERF_STATUS => u64::from(self.current) << 8,
            PERF_CTL => u64::from(self.ratio) << 8,
            TURBO_RATIO_LIMIT => bytes(buckets(clocks.turbo_ratios()).map(|(_, ratio)| ratio)),
            TURBO_RATIO_LIMIT_CORES => {
                bytes(buckets(clocks.turbo_ratios()).map(|(cores, _)| cores))
            }
            _ => return None,
        })
    }
}

/// The ratio that a write to a register asks for; `None` if it is another register.
pub(crate) fn requested_ratio(clocks: &Clocks, register: u32, value: u64) -> Option<u8> {
    let highest = clocks.max_ratio().max(MIN_RATIO);
    (register == PERF_CTL).then(|| ((value >> 8) as u8).clamp(MIN_RATIO, highest))
}

/// The turbo table as its registers have it: up to so many active cores, this ratio. What is left
/// repeats the last.
fn buckets(by_active: &[u8]) -> [(u8, u8); BUCKETS] {
    let mut found: Vec<(u8, u8)> = Vec::new();
    for (active, &ratio) in by_active.iter().enumerate().skip(1) {
        let bucket = (active.min(255) as u8, ratio);
        let is_full = found.len() == BUCKETS;
        match found.last_mut() {
            Some(last) if last.1 == ratio || is_full => *last = bucket,
            _ => found.push(bucket),
        }
    }
    let last = found.last().copied().unwrap_or((1, MIN_RATIO));
    std::array::from_fn(|k| found.get(k).copied().unwrap_or(last))
}

fn bytes(values: [u8; BUCKETS]) -> u64 {
    u64::from_le_bytes(values)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clocks::tests::gold;

    #[test]
    fn turbo_limits_are_the_cpu_files() {
        let clocks = gold();
        let view = View { clocks: &clocks, aperf: 3, mperf: 2, ratio: 0, current: 28 };
        let limits = view.read(TURBO_RATIO_LIMIT).unwrap().to_le_bytes();
        let cores = view.read(TURBO_RATIO_LIMIT_CORES).unwrap().to_le_bytes();
        assert_eq!(limits, [37, 35, 34, 31, 28, 28, 28, 28]);
        assert_eq!(cores, [2, 4, 8, 12, 16, 16, 16, 16]);
        assert_eq!(view.read(PLATFORM_INFO), Some(8 << 40 | 21 << 8));
        assert_eq!((view.read(APERF), view.read(MPERF)), (Some(3), Some(2)));
        assert_eq!(view.read(PERF_STATUS), Some(28 << 8));
        assert_eq!(view.read(0x10), None);
    }

    #[test]
    fn requests_are_clipped() {
        let clocks = gold();
        assert_eq!(requested_ratio(&clocks, PERF_CTL, 99 << 8), Some(37));
        assert_eq!(requested_ratio(&clocks, PERF_CTL, 1 << 8), Some(8));
        assert_eq!(requested_ratio(&clocks, PERF_CTL, 14 << 8), Some(14));
        assert_eq!(requested_ratio(&clocks, PERF_STATUS, 14 << 8), None);
    }
}
