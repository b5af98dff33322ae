// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which repetitions are made, in which order, and when they are enough.
//!
//! Problem: whatever drifts (temperature, neighbours) becomes an effect of the instruction class if
//! classes are measured one after the other.
//!
//! Idea: rounds. Each round measures every open cell once with a short and once with a long block,
//! in an order drawn anew from the seed. Every few rounds the intervals of each cell are looked at;
//! a cell whose clock and relax time are known well enough is closed, and the time goes to the
//! others.
//!
//! How long a halt was depends on where in its slice it fell (`series.rs`). Slices begin a share of
//! a slice later each time, and the shares of few repetitions already are spread evenly: multiples
//! of the golden ratio's fraction, from a place that the seed draws. (Half of sixteen shares drawn
//! at random lay within a fifth of a slice, and the halt came out 5 % short.)
//!
//! Limits: looking often at an interval and stopping when it is narrow makes it a little too
//! narrow; with some dozens of repetitions per cell that is below a tenth of it.

use std::collections::BTreeSet;

use fastrand::Rng;
use report::probe::Row;
use report::probe::raw::{Cell, Header, Trace};

use crate::analysis::{examine, rows};
use crate::rig::{Machine, Order, ProbeError};

/// Clock before the block, ns.
const PRE_NS: f64 = 100_000.0;
/// Lengths of the block, ns: long enough to settle (AMX takes 200 us, own measurements), different
/// enough to show what the relax time is counted from.
const BLOCKS_NS: [f64; 2] = [500_000.0, 1_200_000.0];
/// How long the clock is watched after a block, ns: the longest relax time that is known is 4.03 ms
/// (own measurements), Intel's manual says 2 ms.
const POST_NS: f64 = 5_500_000.0;
/// Rounds between two looks at the intervals.
const ROUNDS: usize = 8;
/// Rounds after which more would hardly narrow an interval.
const MAX_ROUNDS: usize = 400;
/// The fraction of the golden ratio: any number of its multiples, modulo 1, leave gaps of three
/// sizes at most, all of them below 2.62 divided by that number (the three-gap theorem; Knuth,
/// TAOCP 3, 6.4).
const GOLDEN_FRAC: f64 = 0.618_033_988_749_894_9;
/// Narrow enough: half the width of the interval of the settled clock.
const CLOCK_FRAC: f64 = 0.003;
/// The same of the relax time.
const RELAX_FRAC: f64 = 0.03;

/// What is to be measured.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The cells.
    pub cells: Vec<Cell>,
    /// Draws order and dither.
    pub seed: u64,
    /// The most rounds.
    pub max_rounds: usize,
}

impl Plan {
    /// All that a machine can do: every kernel at every density for these numbers of active CPUs.
    pub fn full(machine: &dyn Machine, active: &[u32], seed: u64) -> Plan {
        Plan { cells: cells(machine, active, |_, _| true), seed, max_rounds: MAX_ROUNDS }
    }

    /// Every kernel when dense, and one sparse density of those that have any.
    pub fn quick(machine: &dyn Machine, active: &[u32], seed: u64) -> Plan {
        let keep = |_: &str, one_in| one_in == 1 || one_in == 80;
        Plan { cells: cells(machine, active, keep), seed, max_rounds: MAX_ROUNDS }
    }
}

fn cells(machine: &dyn Machine, active: &[u32], keep: impl Fn(&str, u32) -> bool) -> Vec<Cell> {
    let (kernels, most) = machine.cells();
    let of = |active: u32| {
        let kept = kernels.iter().filter(|(kernel, one_in)| keep(kernel, *one_in));
        kept.map(move |(kernel, one_in)| Cell { kernel: kernel.clone(), one_in: *one_in, active })
    };
    active.iter().filter(|active| **active <= most).flat_map(|active| of(*active)).collect()
}

/// Why a campaign ended.
#[derive(Debug)]
pub enum End {
    /// Every interval is narrow enough.
    Complete,
    /// The caller's `go_on` said no, or the rounds are used up.
    Stopped,
    /// The machine could not go on; what was measured before is there.
    Failed(ProbeError),
}

/// What a campaign collected.
#[derive(Debug)]
pub struct Recording {
    /// What all share.
    pub header: Header,
    /// The repetitions, in the order in which they were made.
    pub traces: Vec<Trace>,
    /// Why it ended.
    pub end: End,
}

/// Measures until the intervals are narrow, the rounds are used up, or `go_on`, which is asked
/// before each repetition with their number so far and the cells still open, says no.
pub fn run(
    machine: &mut dyn Machine,
    plan: &Plan,
    go_on: &mut dyn FnMut(usize, usize) -> bool,
) -> Recording {
    let mut recording =
        Recording { header: machine.header(plan.seed), traces: Vec::new(), end: End::Stopped };
    let mut random = Rng::with_seed(plan.seed);
    let mut open: BTreeSet<Cell> = plan.cells.iter().cloned().collect();
    let first_frac = random.f64();
    let mut examined = Vec::new();
    for round in 0..plan.max_rounds {
        for order in orders(&open, &dithers(first_frac, round), &mut random) {
            if !go_on(recording.traces.len(), open.len()) {
                return recording;
            }
            match machine.run(&order) {
                Ok(trace) => {
                    examined.extend(examine(&recording.header, &trace));
                    recording.traces.push(trace);
                }
                Err(error) => {
                    recording.end = End::Failed(error);
                    return recording;
                }
            }
        }
        if (round + 1) % ROUNDS == 0 {
            rows(&examined).iter().filter(|row| is_narrow(row)).for_each(|row| {
                open.remove(&row.cell);
            });
        }
        if open.is_empty() {
            recording.end = End::Complete;
            break;
        }
    }
    recording
}

/// The dither of this round's repetitions, one for each length of the block.
fn dithers(first_frac: f64, round: usize) -> [f64; BLOCKS_NS.len()] {
    std::array::from_fn(|block| {
        let n = round * BLOCKS_NS.len() + block;
        (first_frac + n as f64 * GOLDEN_FRAC).fract()
    })
}

/// A round: the open cells, grouped by active CPUs (changing that number takes milliseconds), each
/// group and the order of groups shuffled.
fn orders(open: &BTreeSet<Cell>, dithers: &[f64; BLOCKS_NS.len()], random: &mut Rng) -> Vec<Order> {
    let mut groups: Vec<u32> = open.iter().map(|cell| cell.active).collect();
    groups.dedup();
    groups.sort_unstable();
    groups.dedup();
    random.shuffle(&mut groups);
    let mut orders = Vec::new();
    for active in groups {
        let of_group = open.iter().filter(|cell| cell.active == active);
        let blocks = || BLOCKS_NS.into_iter().zip(*dithers);
        let order = |cell: &Cell, (block_ns, dither_frac)| Order {
            cell: cell.clone(),
            pre_ns: PRE_NS,
            block_ns,
            post_ns: POST_NS,
            dither_frac,
        };
        let mut group: Vec<Order> =
            of_group.flat_map(|cell| blocks().map(|block| order(cell, block))).collect();
        random.shuffle(&mut group);
        orders.extend(group);
    }
    orders
}

fn is_narrow(row: &Row) -> bool {
    let narrow = |found: &Option<report::probe::Estimate>, frac| {
        found.is_none_or(|found| found.half_width_frac() <= frac)
    };
    row.steady_khz.is_some()
        && narrow(&row.steady_khz, CLOCK_FRAC)
        && narrow(&row.relax_from_last_ns, RELAX_FRAC)
        && narrow(&row.throttle_ns, 2.0 * RELAX_FRAC)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// After any number of rounds slices have begun everywhere: no gap between two shares is much
    /// larger than others, and half of the shares are on either side of the middle.
    #[test]
    fn shares_are_spread_evenly() {
        for (seed, rounds) in (0..100).zip([3, 4, 5, 8, 13, 40, 400].into_iter().cycle()) {
            let first_frac = Rng::with_seed(seed).f64();
            let mut shares: Vec<f64> =
                (0..rounds).flat_map(|round| dithers(first_frac, round)).collect();
            shares.sort_unstable_by(f64::total_cmp);
            let n = shares.len() as f64;
            let wrapped = shares[0] + 1.0 - shares[shares.len() - 1];
            let gaps = shares.windows(2).map(|pair| pair[1] - pair[0]).chain([wrapped]);
            let largest = gaps.fold(0.0, f64::max);
            assert!(largest < 2.62 / n, "{largest} of {n} shares");
            let low = shares.iter().filter(|share| **share < 0.5).count() as f64;
            assert!((low - n / 2.0).abs() <= 2.0, "{low} of {n} below the middle");
        }
    }
}
