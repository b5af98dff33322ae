// SPDX-License-Identifier: MIT OR Apache-2.0
//! The frequency meter: which chains can be trusted, what reading the counter costs, how fast it
//! runs.
//!
//! Problem: a chain shows the clock if it takes as many cycles as one believes. A core that folds
//! an addition at rename, or a hypervisor that traps RDTSC, makes nonsense of it without a sign.
//!
//! Idea:
//! - The counter's frequency comes from the kernel's raw monotonic clock over 50 ms.
//! - The reading's cost is what is left when a chain of twice the length is compared with one:
//!   `2 t(n) - t(2n)`. The end of the loop, which mispredicts once per slice, is in it.
//! - Each chain is run between two of the meter's own, some hundred times: a clock that moves moves
//!   both. The ratio of the two clocks is 1 if latencies are as believed; chains within 1 % of each
//!   other agree, and three of different kinds must.
//!
//! Limits: if all chains were wrong by the same factor, only a counter of cycles would show it, if
//! there is one ([`crate::witness`]).

use std::arch::asm;

use report::probe::raw::Chain;

use crate::chain::{CANDIDATES, Candidate, METER_ROUND, meter, prepare};
use crate::rig::ProbeError;
use crate::stats::{COUNTER_REACH_NS, median, near_mean};

/// Chains agree if the clocks they show differ by no more than this (the bar of `./x bench probe`).
const AGREE_FRAC: f64 = 0.01;
/// A chain that shows a clock so much higher is executed faster than its latency.
const FOLDED_FRAC: f64 = 0.05;
/// Chains that must agree.
const LEAST_AGREEING: usize = 3;
/// Calibrations before it is believed that chains disagree.
const ATTEMPTS: usize = 6;
/// Comparisons of each chain: with the median's error of 1 / sqrt(n) of 1 % far below 1 %.
const COMPARISONS: usize = 400;
/// Cycles of a chain in a comparison: about 1 us, as a meter slice.
const CYCLES: u32 = 3_000;
/// How long the counter is compared with the kernel's clock, ns.
const TSC_SPAN_NS: u64 = 50_000_000;

/// The calibrated meter.
#[derive(Clone, Debug)]
pub struct Calibration {
    /// Frequency of the counter.
    pub tsc_khz: f64,
    /// What two readings cost within a slice.
    pub overhead_ticks: f64,
    /// The clock that the chains agreed on.
    pub cycles_per_ns: f64,
    /// All chains.
    pub chains: Vec<Chain>,
}

/// The counter, after everything before it and before everything after it.
#[inline]
pub(crate) fn tsc() -> u64 {
    let (low, high): (u64, u64);
    // SAFETY: reads the counter, which Linux lets every program do unless it was asked not to
    // (prctl PR_SET_TSC), and touches no memory.
    unsafe {
        asm!("lfence", "rdtsc", "lfence", out("rax") low, out("rdx") high, options(nostack));
    }
    high << 32 | low
}

impl Calibration {
    /// Calibrates on the CPU that runs the caller, which must not be moved meanwhile. Again, if
    /// chains disagree: on a busy machine the clock may have moved between two of them.
    pub fn measure() -> Result<Calibration, ProbeError> {
        let again = (1..ATTEMPTS).map(|_| Calibration::attempt()).find(Result::is_ok);
        again.unwrap_or_else(Calibration::attempt)
    }

    fn attempt() -> Result<Calibration, ProbeError> {
        prepare();
        meter(10_000);
        let tsc_khz = tsc_khz();
        let overhead_ticks = overhead_ticks(tsc_khz);
        let found: Vec<(Candidate, u32, f64)> = CANDIDATES
            .iter()
            .map(|candidate| {
                let (latency, ratio) = compare(candidate, overhead_ticks);
                (*candidate, latency, ratio)
            })
            .collect();
        let chains = judged(&found);
        let agreeing = chains.iter().filter(|chain| chain.agrees).count();
        if agreeing < LEAST_AGREEING || !chains[0].agrees {
            return Err(ProbeError::MeterDisagrees { agreeing });
        }
        let ticks = own_ticks(CYCLES / METER_ROUND) - overhead_ticks;
        let cycles_per_ns = f64::from(CYCLES) / (ticks * 1e6 / tsc_khz);
        Ok(Calibration { tsc_khz, overhead_ticks, cycles_per_ns, chains })
    }

    /// The clock over a slice of so many cycles of the meter's chain, kHz.
    pub fn clock_khz(&self, cycles: u32, ticks: u64) -> f64 {
        f64::from(cycles) * self.tsc_khz / (ticks as f64 - self.overhead_ticks)
    }
}

/// The largest set of chains that show one clock, and why the others do not.
fn judged(found: &[(Candidate, u32, f64)]) -> Vec<Chain> {
    let near = |a: f64, b: f64| (a / b - 1.0).abs() <= AGREE_FRAC;
    let votes = |ratio: f64| found.iter().filter(|(_, _, other)| near(*other, ratio)).count();
    // The first of the largest: among equals the meter's own chain.
    let mut centre = found[0].2;
    for (_, _, ratio) in found {
        if votes(*ratio) > votes(centre) {
            centre = *ratio;
        }
    }
    let chain = |(candidate, latency_cycles, ratio): &(Candidate, u32, f64)| {
        let ratio = ratio / centre;
        let agrees = (ratio - 1.0).abs() <= AGREE_FRAC;
        let why_not = match ratio {
            _ if agrees => None,
            ratio if ratio > 1.0 + FOLDED_FRAC => {
                Some("faster than its latency: folded at rename".to_string())
            }
            _ => Some(format!("its latency is not {latency_cycles} cycles here")),
        };
        let name = candidate.name.to_string();
        Chain { name, latency_cycles: *latency_cycles, ratio, agrees, why_not }
    };
    found.iter().map(chain).collect()
}

/// Ticks of a run of a chain, its reading included.
fn timed(run: impl FnOnce()) -> f64 {
    let start = tsc();
    run();
    tsc().wrapping_sub(start) as f64
}

fn own_ticks(rounds: u32) -> f64 {
    let all: Vec<f64> = (0..COMPARISONS).map(|_| timed(|| meter(u64::from(rounds)))).collect();
    median(&all).expect("there are some")
}

fn overhead_ticks(tsc_khz: f64) -> f64 {
    let rounds = u64::from(CYCLES / METER_ROUND / 3);
    let one = || 2.0 * timed(|| meter(rounds)) - timed(|| meter(2 * rounds));
    let all: Vec<f64> = (0..4 * COMPARISONS).map(|_| one()).collect();
    near_mean(&all, COUNTER_REACH_NS * tsc_khz / 1e6).expect("there are some").max(0.0)
}

/// Latency that a chain is taken for, and the clock it shows over that of the meter's chain.
fn compare(candidate: &Candidate, overhead_ticks: f64) -> (u32, f64) {
    let guess = candidate.latency_cycles.unwrap_or(5);
    let rounds = u64::from(CYCLES / (candidate.per_round * guess));
    let own_rounds = u64::from(CYCLES / METER_ROUND);
    (candidate.run)(rounds);
    let ratios: Vec<f64> = (0..COMPARISONS)
        .map(|_| {
            let before = timed(|| meter(own_rounds)) - overhead_ticks;
            let it = timed(|| (candidate.run)(rounds)) - overhead_ticks;
            let after = timed(|| meter(own_rounds)) - overhead_ticks;
            (before + after) / 2.0 / it
        })
        .collect();
    let instructions = rounds as f64 * f64::from(candidate.per_round);
    // Instructions per cycle of the meter's chain.
    let per_cycle = median(&ratios).expect("there are some") * instructions
        / (own_rounds as f64 * f64::from(METER_ROUND));
    let latency = candidate.latency_cycles.unwrap_or((1.0 / per_cycle).round().max(1.0) as u32);
    (latency, per_cycle * f64::from(latency))
}

/// The counter against CLOCK_MONOTONIC_RAW, which no daemon corrects.
fn tsc_khz() -> f64 {
    // The kernel's clock between two readings of the counter; of several, the closest.
    let pair = || {
        let readings = (0..50).map(|_| {
            let (before, ns, after) = (tsc(), raw_clock_ns(), tsc());
            (after - before, before + (after - before) / 2, ns)
        });
        readings.min().map(|(_, ticks, ns)| (ticks, ns)).expect("there are some")
    };
    let start = pair();
    while raw_clock_ns() < start.1 + TSC_SPAN_NS {
        meter(1_000);
    }
    let end = pair();
    (end.0 - start.0) as f64 / (end.1 - start.1) as f64 * 1e6
}

fn raw_clock_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes one timespec to a local; this clock exists on every Linux since 2.6.28.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC_RAW, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Trials in which two meter slices, one after the other, show the same clock within this share are
/// calm: no gap fell into them.
const CALM_FRAC: f64 = 0.005;

/// Rounds of the chain that is timed: 1 to 3 us. A loop of a random length ends with a
/// misprediction that a slice's loop, which always has the same length, does not have; in a shorter
/// chain that would be most of the error.
const ROUNDS: std::ops::Range<u64> = 60..180;

/// By how much the meter is wrong about chains of known length, as a share, over calm trials: a
/// chain of another kind and of a random length is timed between two meter slices, and its cycles
/// are computed from the clock they show. Fewer values than trials on a machine that is not quiet.
pub fn meter_error(calibration: &Calibration, trials: usize, seed: u64) -> Vec<f64> {
    let mut random = fastrand::Rng::with_seed(seed);
    let others: Vec<(&Candidate, &Chain)> = CANDIDATES
        .iter()
        .zip(&calibration.chains)
        .skip(1)
        .filter(|(_, chain)| chain.agrees)
        .collect();
    let own_rounds = u64::from(CYCLES / METER_ROUND);
    let overhead = calibration.overhead_ticks;
    let mut trial = || {
        let (candidate, chain) = others[random.usize(0..others.len())];
        let rounds = random.u64(ROUNDS);
        let known = rounds as f64 * f64::from(candidate.per_round * chain.latency_cycles);
        let before = timed(|| meter(own_rounds)) - overhead;
        let it = timed(|| (candidate.run)(rounds)) - overhead;
        let after = timed(|| meter(own_rounds)) - overhead;
        let cycles_per_tick = 2.0 * f64::from(CYCLES) / (before + after);
        ((before / after - 1.0).abs() <= CALM_FRAC)
            .then(|| (cycles_per_tick * it / known - 1.0).abs())
    };
    (0..trials).filter_map(|_| trial()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(ratios: [f64; 5]) -> Vec<Chain> {
        let all: Vec<_> =
            CANDIDATES.iter().zip(ratios).map(|(one, ratio)| (*one, 1, ratio)).collect();
        judged(&all)
    }

    /// Four chains agree, the folded one is thrown out and named so.
    #[test]
    fn a_folded_chain_is_thrown_out() {
        let chains = found([1.0, 1.002, 0.998, 1.001, 5.7]);
        assert_eq!(chains.iter().filter(|chain| chain.agrees).count(), 4);
        assert!(chains[4].why_not.as_ref().unwrap().contains("folded"));
    }

    /// If the meter's own chain were folded, the others would still agree among themselves, and it
    /// would be the one that does not.
    #[test]
    fn the_majority_decides() {
        let chains = found([1.0, 0.25, 0.251, 0.25, 1.9]);
        let agrees: Vec<bool> = chains.iter().map(|chain| chain.agrees).collect();
        assert_eq!(agrees, [false, true, true, true, false]);
        assert!((chains[1].ratio - 1.0).abs() < 0.01 && chains[0].why_not.is_some());
    }
}
