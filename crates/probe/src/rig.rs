// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the probe measures on: this CPU, or a simulated one.
//!
//! Everything above this trait (the order of the repetitions, when they are enough, the statistics)
//! works on recorded [`Trace`]s, so it is tested on CPUs whose truth is known, and a recording
//! gives the same report again.

use report::probe::raw::{Cell, Header, Layout, Phase, Run, Trace};

/// How long a payload slice takes when settled, ns. Short against the shortest throttle that is
/// known (2 us, own measurements), long against two readings of the counter (20 ns).
const PAYLOAD_NS: f64 = 240.0;
/// How long a meter slice in the block takes, ns: the clock in the block is a median over hundreds.
const BLOCK_METER_NS: f64 = 80.0;
/// In the last part of the block slices are so many times as long: from two lengths follows what
/// each slice takes in addition to its work (`series.rs`).
const LONGER: f64 = 3.0;
/// That part, as a share of the block: half of what counts as settled (`repetition.rs`).
const LONGER_SHARE: f64 = 1.0 / 6.0;
/// How long a meter slice before and right after the block takes, ns.
const FINE_NS: f64 = 1_000.0;
/// The same further after the block: the ends of relax times of hundreds of microseconds.
const COARSE_NS: f64 = 2_000.0;
/// Part after the block that is metered finely, ns.
const FINE_SPAN_NS: f64 = 100_000.0;

/// One repetition as it is ordered.
#[derive(Clone, Debug, PartialEq)]
pub struct Order {
    /// What to measure.
    pub cell: Cell,
    /// Scalar code before, ns.
    pub pre_ns: f64,
    /// The block, ns when settled.
    pub block_ns: f64,
    /// Scalar code after, ns.
    pub post_ns: f64,
    /// Length of the first slice of the block and of the first after it, as a share of a slice,
    /// 0..=1. Another one each time, so that an effect at a fixed time falls into slices
    /// everywhere.
    pub dither_frac: f64,
}

/// How fast a machine works, as far as a layout needs it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pace {
    /// Rounds of the kernel's loop per ns when settled.
    pub loops_per_ns: f64,
    /// Cycles of the meter's chain per ns.
    pub cycles_per_ns: f64,
    /// Meter slices are a multiple of so many cycles.
    pub cycles_step: u32,
    /// Instructions under test per round.
    pub wide_per_loop: u32,
}

impl Order {
    /// The slices of the repetition on a machine of that pace.
    pub fn layout(&self, pace: &Pace) -> Layout {
        let cycles = |ns: f64| {
            let steps = ns * pace.cycles_per_ns / f64::from(pace.cycles_step);
            (steps.round().max(1.0) as u32) * pace.cycles_step
        };
        let loops = |ns: f64| (ns * pace.loops_per_ns).round().max(1.0) as u32;
        let n = |ns: f64, each: f64| (ns / each).ceil().max(1.0) as u32;
        let meter = |phase, n, ns| Run { phase, n, loops: 0, cycles: cycles(ns) };
        let pair = |n, payload_ns, meter_ns| Run {
            phase: Phase::Block,
            n,
            loops: loops(payload_ns),
            cycles: cycles(meter_ns),
        };
        let pair_ns = PAYLOAD_NS + BLOCK_METER_NS;
        let longer_ns = self.block_ns * LONGER_SHARE;
        let fine_ns = self.post_ns.min(FINE_SPAN_NS);
        let coarse_ns = self.post_ns - fine_ns;
        let share = self.dither_frac.clamp(0.0, 1.0);
        let mut runs = vec![
            meter(Phase::Pre, n(self.pre_ns, FINE_NS), FINE_NS),
            Run { phase: Phase::Prepare, n: 1, loops: 0, cycles: 0 },
            pair(1, PAYLOAD_NS * share, BLOCK_METER_NS),
            pair(n(self.block_ns - longer_ns, pair_ns), PAYLOAD_NS, BLOCK_METER_NS),
            pair(n(longer_ns, LONGER * pair_ns), LONGER * PAYLOAD_NS, LONGER * BLOCK_METER_NS),
            meter(Phase::Post, 1, share * COARSE_NS),
            meter(Phase::Post, n(fine_ns, FINE_NS), FINE_NS),
        ];
        if coarse_ns > 0.0 {
            runs.push(meter(Phase::Post, n(coarse_ns, COARSE_NS), COARSE_NS));
        }
        Layout { runs, wide_per_loop: pace.wide_per_loop }
    }
}

/// Why nothing can be measured, or no more.
#[derive(Debug, thiserror::Error)]
pub enum ProbeError {
    /// The counter does not run at one rate.
    #[error("the time stamp counter is not invariant")]
    NoInvariantTsc,
    /// The meter's chain and two others do not show the same clock.
    #[error(
        "the meter's dependency chain and two others must show the same clock; the largest group that \
         does has {agreeing}"
    )]
    MeterDisagrees {
        /// How many do.
        agreeing: usize,
    },
    /// The thread does not run where it was put.
    #[error("the set of CPUs changed during the measurement: {0}")]
    CpusChanged(String),
    /// The machine has no such kernel.
    #[error("this machine cannot execute {0}")]
    NoKernel(String),
    /// The operating system refused something.
    #[error("{what}: {source}")]
    System {
        /// What.
        what: String,
        /// Why.
        source: std::io::Error,
    },
}

/// A machine that executes repetitions.
pub trait Machine {
    /// What all repetitions share.
    fn header(&self, seed: u64) -> Header;

    /// What can be measured: kernels and densities, and the largest number of active CPUs.
    fn cells(&self) -> (Vec<(String, u32)>, u32);

    /// Executes one repetition.
    fn run(&mut self, order: &Order) -> Result<Trace, ProbeError>;
}
