// SPDX-License-Identifier: MIT OR Apache-2.0
//! Witnesses of the clock besides the chains: what counts the core's cycles ([`hw::cycles`]).
//!
//! Problem: if all chains were wrong by the same factor, nothing would show it.
//!
//! Idea: if something else counts cycles, both measure the same span of the meter's chain, some
//! times; the median of their ratio is reported. The counter is not used otherwise: the meter works
//! without one.
//!
//! Limits: a span in which the thread is interrupted shows the chain too slow, so spans are short
//! against the time between interrupts, and the median is of many.

use std::io;

use hw::cycles::{ClockRegisters, ThreadCycles, why_no_cycles, why_no_registers};
use report::probe::raw::Witness;

use crate::calibration::{Calibration, tsc};
use crate::chain::{METER_ROUND, meter};
use crate::stats::median;

/// Spans that are watched; odd.
const SPANS: usize = 25;
/// Length of a span, ns, for a counter whose reading costs nothing that it counts.
const SPAN_NS: f64 = 300_000.0;
/// The same for two registers, read one after the other by system calls of about 1 us.
const LONG_SPAN_NS: f64 = 2_000_000.0;

/// What all witnesses say, or why they do not; `cpu` is where the caller is bound to.
pub fn witnesses(calibration: &Calibration, cpu: usize) -> Vec<Witness> {
    vec![perf_cycles(calibration), registers(calibration, cpu)]
}

/// perf's cycles of this thread in user mode.
pub fn perf_cycles(calibration: &Calibration) -> Witness {
    let watched = ThreadCycles::open().and_then(|mut cycles| {
        watch(
            calibration,
            SPAN_NS,
            || cycles.read(),
            |before, after, ns| (after - before) as f64 * 1e6 / ns,
        )
    });
    witness("perf cycles", watched, why_no_cycles)
}

fn registers(calibration: &Calibration, cpu: usize) -> Witness {
    let tsc_khz = calibration.tsc_khz;
    let watched = ClockRegisters::open(cpu).and_then(|registers| {
        watch(
            calibration,
            LONG_SPAN_NS,
            || registers.read(),
            |before, after, _| {
                let [own, fixed] = [0, 1].map(|one| after[one].wrapping_sub(before[one]) as f64);
                own / fixed * tsc_khz
            },
        )
    });
    witness("APERF/MPERF", watched, why_no_registers)
}

/// Clocks in kHz by a witness and by the chain, from the span whose ratio of them is the median
/// one.
fn watch<R>(
    calibration: &Calibration,
    span_ns: f64,
    mut read: impl FnMut() -> io::Result<R>,
    clock_khz: impl Fn(R, R, f64) -> f64,
) -> io::Result<(f64, f64)> {
    let rounds = (span_ns * calibration.cycles_per_ns / f64::from(METER_ROUND)).max(1.0) as u64;
    let mut spans = Vec::new();
    for _ in 0..SPANS {
        let before = read()?;
        let start = tsc();
        meter(rounds);
        let ticks = tsc().wrapping_sub(start) as f64 - calibration.overhead_ticks;
        let after = read()?;
        let ns = ticks * 1e6 / calibration.tsc_khz;
        let chain_khz = rounds as f64 * f64::from(METER_ROUND) * 1e6 / ns;
        spans.push((clock_khz(before, after, ns), chain_khz));
    }
    let ratios: Vec<f64> = spans.iter().map(|(by_witness, chain)| by_witness / chain).collect();
    let middle = median(&ratios).expect("there are some");
    let is_middle = |(by_witness, chain): &(f64, f64)| by_witness / chain == middle;
    spans
        .into_iter()
        .find(is_middle)
        .filter(|(by_witness, _)| by_witness.is_normal())
        .ok_or_else(|| io::Error::other("it does not advance"))
}

fn witness(
    name: &str,
    watched: io::Result<(f64, f64)>,
    why_not: fn(&io::Error) -> String,
) -> Witness {
    let (clocks, why_not) = match watched {
        Ok(clocks) => (Some(clocks), None),
        Err(error) => (None, Some(why_not(&error))),
    };
    Witness {
        name: name.into(),
        clock_khz: clocks.map(|(by_witness, _)| by_witness),
        chain_khz: clocks.map(|(_, chain)| chain),
        why_not,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn calibration() -> Calibration {
        Calibration { tsc_khz: 1e6, overhead_ticks: 0.0, cycles_per_ns: 1.0, chains: Vec::new() }
    }

    /// A counter that goes on by so much in each span shows that clock; one that does not advance,
    /// or that cannot be read, is no witness.
    #[test]
    fn counts_become_clocks() {
        let mut count = 0;
        let mut read = || {
            count += 1_000;
            Ok(count)
        };
        let by_time = |before: u64, after: u64, ns: f64| (after - before) as f64 * 1e6 / ns;
        let (by_witness, chain) = watch(&calibration(), 10_000.0, &mut read, by_time).unwrap();
        // 1,000 counts and 10,000 cycles of the chain in the same time
        assert!((by_witness / chain * 10.0 - 1.0).abs() < 1e-3, "{by_witness} {chain}");
        watch(&calibration(), 10_000.0, || Ok(5), by_time).unwrap_err();
        let refused = || Err(io::Error::from_raw_os_error(libc::EIO));
        let refused = watch(&calibration(), 10_000.0, refused, by_time);
        let witness = witness("it", refused, why_no_registers);
        assert!(witness.why_not.unwrap().contains("no such registers"));
    }
}
