// SPDX-License-Identifier: MIT OR Apache-2.0
//! A repetition as clocks and rates over time, its gaps marked.
//!
//! Problem: a slice that took too long was interrupted, stolen from, or halted while the clock
//! changed. Its clock and rate mean nothing, and its excess is what a halt is measured by.
//!
//! Idea: a slice is a gap if it took much longer than slices of its kind on both sides of it. They
//! take as long as it would have, on the mean: an edge between two rates falls anywhere in a slice,
//! so half of its work is done at either (`Order::dither_frac` sees to that). So
//!
//! ```text
//!   expected = (median of three before + median of three after) / 2
//!   gap      if time - larger of the two > GAP_NS      excess = time - expected
//! ```
//!
//! A slice in the block takes a little more than its work: after a payload slice the chain begins
//! late (some 10 ns of a slice of 80, seen on Sapphire Rapids), and would show a clock that is 10 %
//! low. The block ends with slices of another length, and of two lengths at one rate
//!
//! ```text
//!   time = delay + work / rate      delay = short time - short work * (long time - short time) / (long work - short work)
//! ```
//!
//! the delay follows; it is taken off each slice of its kind in the block.
//!
//! A counter may advance in steps that are an eighth of a short slice (`stats.rs`), so a rate is
//! that of many slices: all their work over all their time.

use report::probe::raw::{Header, Phase, Trace, Work};

use crate::stats::{COUNTER_REACH_NS, median, reach};

/// Shortest gap, ns: half of the shortest halt that is known (1.1 us, own measurements), and above
/// what the reading of the counter varies by.
const GAP_NS: f64 = 500.0;

/// Slices of either length below which no delay is reported: its error is that of two medians.
const LEAST_FOR_DELAY: usize = 16;

/// One slice of a repetition.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slice {
    pub(crate) phase: Phase,
    pub(crate) work: Work,
    /// Start, since the block's start, ns.
    pub(crate) at_ns: f64,
    /// Time, without the readings of the counter and, in the block, the delay.
    pub(crate) ns: f64,
    /// If it is a gap: the time that is missing.
    pub(crate) gap_ns: Option<f64>,
}

impl Slice {
    /// Amount of work per ns; `None` for gaps and where there is no known work.
    pub(crate) fn per_ns(&self) -> Option<f64> {
        let amount = match self.work {
            Work::Payload(loops) => loops,
            Work::Meter(cycles) => cycles,
            Work::Other => return None,
        };
        (self.gap_ns.is_none() && self.ns > 0.0).then(|| f64::from(amount) / self.ns)
    }

    /// The clock, if it is a meter slice, kHz.
    pub(crate) fn clock_khz(&self) -> Option<f64> {
        matches!(self.work, Work::Meter(_)).then(|| self.per_ns().map(|ghz| ghz * 1e6))?
    }
}

/// Amount of work per ns over slices of one kind, of whatever lengths; gaps and outliers do not
/// count. `None` of nothing.
pub(crate) fn rate<'a>(slices: impl IntoIterator<Item = &'a Slice>) -> Option<f64> {
    let known = slices.into_iter().filter_map(|one| Some((one.per_ns()? * one.ns, one.ns)));
    let known: Vec<(f64, f64)> = known.collect();
    let unit_ns = median(&known.iter().map(|(work, ns)| ns / work).collect::<Vec<_>>())?;
    let off_ns = |(work, ns): &(f64, f64)| (ns - work * unit_ns).abs();
    let reach_ns = reach(&known.iter().map(off_ns).collect::<Vec<_>>(), COUNTER_REACH_NS);
    let near = known.iter().filter(|one| off_ns(one) <= reach_ns);
    let (work, ns) = near.fold((0.0, 0.0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
    Some(work / ns)
}

/// The slices of a repetition, time 0 at the block's start.
pub(crate) fn slices(header: &Header, trace: &Trace) -> Vec<Slice> {
    let per_tick_ns = 1e6 / header.tsc_khz;
    let mut at_ns = 0.0;
    let mut slices: Vec<Slice> = Vec::with_capacity(trace.ticks.len());
    for ((phase, work), ticks) in trace.layout.slices().zip(&trace.ticks) {
        let whole_ns = f64::from(*ticks) * per_tick_ns;
        let ns = (whole_ns - header.overhead_ticks * per_tick_ns).max(0.0);
        slices.push(Slice { phase, work, at_ns, ns, gap_ns: None });
        at_ns += whole_ns;
    }
    let start_ns = slices.iter().find(|one| one.phase == Phase::Block).map_or(0.0, |one| one.at_ns);
    slices.iter_mut().for_each(|slice| slice.at_ns -= start_ns);
    // Kinds alternate in the block, so each kind is looked at by itself. Amounts differ between the
    // parts of a repetition: compared is the time per unit of work.
    for (phase, payload) in
        [(Phase::Pre, false), (Phase::Block, true), (Phase::Block, false), (Phase::Post, false)]
    {
        let of_kind =
            |one: &Slice| one.phase == phase && matches!(one.work, Work::Payload(_)) == payload;
        let places: Vec<usize> = (0..slices.len()).filter(|at| of_kind(&slices[*at])).collect();
        mark_gaps(&mut slices, &places);
        if phase == Phase::Block
            && let Some(ns) = delay_ns(&slices, &places)
        {
            places.iter().for_each(|at| slices[*at].ns -= ns);
        }
    }
    slices
}

/// What slices of one kind take in addition to their work; `None` if they do not end with longer
/// ones, or with too few.
fn delay_ns(slices: &[Slice], places: &[usize]) -> Option<f64> {
    let work = |at: &usize| match slices[*at].work {
        Work::Payload(n) | Work::Meter(n) => n,
        Work::Other => 0,
    };
    let long_work = work(places.last()?);
    let nr_long = places.iter().rev().take_while(|at| work(at) == long_work).count();
    let (before, long) = places.split_at(places.len() - nr_long);
    let short_work = work(before.last()?);
    // As much of the settled block on either side.
    let per_long = (long_work / short_work.max(1)) as usize;
    let short = &before[before.len().saturating_sub(nr_long * per_long)..];
    let ns = |places: &[usize], amount| {
        let same = places.iter().filter(|at| work(at) == amount && slices[**at].gap_ns.is_none());
        let all: Vec<&Slice> = same.map(|at| &slices[*at]).collect();
        let per_ns = (all.len() >= LEAST_FOR_DELAY).then(|| rate(all))??;
        Some(f64::from(amount) / per_ns)
    };
    let (short_ns, long_ns) = (ns(short, short_work)?, ns(long, long_work)?);
    let per_work = (long_ns - short_ns) / (f64::from(long_work) - f64::from(short_work));
    (per_work > 0.0).then(|| short_ns - per_work * f64::from(short_work))
}

fn mark_gaps(slices: &mut [Slice], places: &[usize]) {
    let amount = |slice: &Slice| match slice.work {
        Work::Payload(n) | Work::Meter(n) => f64::from(n),
        Work::Other => 1.0,
    };
    let per_unit: Vec<f64> =
        places.iter().map(|at| slices[*at].ns / amount(&slices[*at])).collect();
    for (i, at) in places.iter().enumerate() {
        let before = middle(&per_unit[i.saturating_sub(3)..i]);
        let after = middle(&per_unit[i + 1..(i + 4).min(per_unit.len())]);
        let (Some(one), Some(other)) = (before.or(after), after.or(before)) else { continue };
        let slice = &mut slices[*at];
        let work = amount(slice);
        if slice.ns - one.max(other) * work > GAP_NS {
            slice.gap_ns = Some(slice.ns - (one + other) / 2.0 * work);
        }
    }
}

/// The median of three, the mean of two.
fn middle(near: &[f64]) -> Option<f64> {
    match near {
        [] => None,
        [one] => Some(*one),
        [one, other] => Some((one + other) / 2.0),
        [a, b, c, ..] => Some(a.max(*b).min(a.min(*b).max(*c))),
    }
}

#[cfg(test)]
mod tests {
    use report::probe::raw::{Cell, Cores, Layout, Run};

    use super::*;

    fn trace(ticks: Vec<u32>) -> (Header, Trace) {
        let header = Header {
            schema: report::SCHEMA,
            machine: "test".into(),
            cores: Cores::default(),
            tsc_khz: 1e6,
            overhead_ticks: 10.0,
            chains: Vec::new(),
            witnesses: Vec::new(),
            skipped: Vec::new(),
            unknown: Vec::new(),
            seed: 0,
            partial: None,
        };
        let n = ticks.len() as u32 / 2;
        let run = |phase, loops| Run { phase, n, loops, cycles: if loops > 0 { 0 } else { 3_000 } };
        let layout =
            Layout { runs: vec![run(Phase::Pre, 0), run(Phase::Block, 100)], wide_per_loop: 1 };
        let cell = Cell { kernel: "512-fma".into(), one_in: 1, active: 1 };
        (header, Trace { cell, layout, ticks })
    }

    /// The overhead is taken off, time is counted from the block's start, clocks are those of the
    /// chain, and a slice of 5 us more is a gap of 5 us without a clock.
    #[test]
    fn a_gap_is_measured() {
        let mut ticks = vec![1_010; 10];
        ticks.extend([1_010; 10]);
        ticks[4] = 6_010;
        let (header, trace) = trace(ticks);
        let slices = slices(&header, &trace);
        assert_eq!(slices[10].at_ns, 0.0);
        assert_eq!(slices[9].at_ns, -1_010.0);
        assert_eq!(slices[4].gap_ns, Some(5_000.0));
        assert_eq!((slices[4].clock_khz(), slices[5].clock_khz()), (None, Some(3e6)));
        assert_eq!(slices.iter().filter(|one| one.gap_ns.is_some()).count(), 1);
        assert_eq!((slices[15].clock_khz(), slices[15].per_ns()), (None, Some(0.1)));
    }

    /// Slices of the block that begin 12 ns late show the clock all the same, short and long ones.
    #[test]
    fn a_late_start_is_taken_off() {
        let (header, mut trace) = trace(Vec::new());
        let (short, long) = (1_000, 3_000);
        let run = |n, cycles| Run { phase: Phase::Block, n, loops: 0, cycles };
        trace.layout.runs = vec![run(80, short), run(20, long)];
        let ticks = |cycles: u32| cycles / 2 + 12 + 10; // 2 GHz, late, the counter's reading
        trace.ticks = [vec![ticks(short); 80], vec![ticks(long); 20]].concat();
        assert!(slices(&header, &trace).iter().all(|one| one.clock_khz() == Some(2e6)));
        // Of one length alone, the clock is what it seems.
        trace.layout.runs.truncate(1);
        trace.ticks.truncate(80);
        let seen = slices(&header, &trace)[40].clock_khz().unwrap();
        assert!((seen - 1e6 * 1_000.0 / 512.0).abs() < 1.0, "{seen}");
    }

    /// A change of the rate is no gap: throttled slices are four times as long, one after another.
    /// A halt between two rates is the time over the mean of both.
    #[test]
    fn a_slow_stretch_is_no_gap() {
        let mut ticks = vec![1_010; 10];
        ticks.extend([4_010, 4_010, 4_010, 4_010, 12_510, 1_010, 1_010, 1_010, 1_010, 1_010]);
        let (header, trace) = trace(ticks);
        let slices = slices(&header, &trace);
        let gaps: Vec<_> = slices.iter().filter_map(|one| one.gap_ns).collect();
        assert_eq!(gaps, [10_000.0]);
    }
}
