// SPDX-License-Identifier: MIT OR Apache-2.0
//! What one repetition shows.
//!
//! ```text
//!   pre          block                                        post
//!   ------------ | throttle | halt | ......... settled ......| after ------ | raise -------
//!   before_khz     rate <1    gap    full_ns -> rate 1          low clock     halt, clock returns
//! ```
//!
//! Rates are over the settled rate (the last third of the block), so they need no model of the
//! kernel. The throttle's fraction is per cycle: the clock is still the high one then.
//!
//! What the start cost is the time by which the block's beginning took longer than settled code
//! (DIM 4.1 measures the same by running the same code twice): each payload slice and the meter
//! slice after it count with what the payload did not do, gaps count completely.
//!
//! Limits: a repetition is one draw; what is an effect and what an interrupt is decided over many
//! (`analysis.rs`).

use report::probe::raw::{Header, Phase, Trace, Work};

use crate::series::{Slice, rate, slices};
use crate::stats::is_in_bin;
use crate::steps::{Segment, segments};

/// Start of the block in which halts are looked for if the rate shows no throttle, ns.
const START_NS: f64 = 60_000.0;
/// Clock after the block: from here to there, ns. Not from 0: the pipeline drains.
const AFTER_NS: (f64, f64) = (2_000.0, 60_000.0);
/// A longer slow start is no throttle but warming up: the longest known is 20 us (Downs 2020).
const LONGEST_THROTTLE_NS: f64 = 60_000.0;
/// A longer gap before or in the block is no halt (the longest known is 20 us, Downs 2020): someone
/// else ran on the CPU, and left it as they like.
const LONGEST_HALT_NS: f64 = 100_000.0;
/// Rates closer to the settled one than this are the settled one.
const RATE_STEP: f64 = 0.04;
/// Rates of dispatch closer than this are one throttle, which begins a little slower, because the
/// block's code is not in the caches. The known throttles dispatch a quarter to 0.4; what follows
/// on Sapphire Rapids is 0.88 (own measurements).
const THROTTLE_STEP: f64 = 0.1;
/// Clocks closer than this are one: bins are 100 MHz, readings good to 10 MHz (own measurements).
pub(crate) const CLOCK_STEP_KHZ: f64 = 30_000.0;

/// What a repetition shows; `None` where it does not.
#[derive(Clone, Debug, Default)]
pub(crate) struct Repetition {
    pub(crate) before_khz: f64,
    /// The clock before the block kept to one bin, and no one else ran until its end.
    pub(crate) calm: bool,
    pub(crate) steady_khz: Option<f64>,
    pub(crate) after_khz: Option<f64>,
    /// The clock at the end, for whether it returned.
    pub(crate) end_khz: Option<f64>,
    pub(crate) wide_per_cycle: Option<f64>,
    pub(crate) throttle_ns: Option<f64>,
    pub(crate) throttle_frac: Option<f64>,
    /// Gaps at the start, 0 if there are none.
    pub(crate) halt_ns: f64,
    pub(crate) full_ns: Option<f64>,
    pub(crate) lower_cost_ns: f64,
    /// Start of the block is 0, so this is its length.
    pub(crate) block_ns: f64,
    /// When the clock rose, since the start of the block.
    pub(crate) raised_ns: Option<f64>,
    pub(crate) raise_halt_ns: f64,
}

impl Repetition {
    /// Looks at a repetition; `None` if it has no clock before the block.
    pub(crate) fn of(header: &Header, trace: &Trace) -> Option<Repetition> {
        let slices = slices(header, trace);
        let phase = |wanted| slices.iter().filter(move |one| one.phase == wanted);
        let pre: Vec<f64> = phase(Phase::Pre).filter_map(Slice::clock_khz).collect();
        let before_khz = clock_khz(phase(Phase::Pre))?;
        let inside = pre.iter().filter(|khz| is_in_bin(**khz, before_khz)).count();
        let payload = |one: &&Slice| matches!(one.work, Work::Payload(_));
        let block: Vec<Slice> = phase(Phase::Block).copied().collect();
        let last = block.iter().rev().find(payload)?;
        let mut found = Repetition {
            before_khz,
            calm: inside * 5 >= pre.len() * 4 && !was_preempted(&slices),
            block_ns: last.at_ns + last.ns,
            ..Repetition::default()
        };
        found.settled(&block, trace.layout.wide_per_loop);
        found.start(&block);
        found.after(&phase(Phase::Post).copied().collect::<Vec<_>>());
        Some(found)
    }

    /// The last third of the block.
    fn settled(&mut self, block: &[Slice], wide_per_loop: u32) {
        let late = || block.iter().filter(|one| one.at_ns > self.block_ns * 2.0 / 3.0);
        self.steady_khz = clock_khz(late());
        self.wide_per_cycle = self
            .steady_khz
            .zip(settled_rate(block, self.block_ns))
            .map(|(khz, loops_per_ns)| loops_per_ns * f64::from(wide_per_loop) / (khz / 1e6));
    }

    /// Throttle, halt, and how long until the settled rate.
    fn start(&mut self, block: &[Slice]) {
        let Some(settled) = settled_rate(block, self.block_ns) else { return };
        let payload: Vec<&Slice> =
            block.iter().filter(|one| matches!(one.work, Work::Payload(_))).collect();
        // A gap keeps the rate of the slice before it: the series must have no holes.
        let mut rate = 1.0;
        let first = payload.iter().find_map(|one| one.per_ns()).map(|per_ns| per_ns / settled);
        rate = first.unwrap_or(rate);
        let rates: Vec<f64> = payload
            .iter()
            .map(|one| {
                rate = one.per_ns().map_or(rate, |per_ns| per_ns / settled);
                rate
            })
            .collect();
        let parts = segments(&rates, RATE_STEP);
        let is_slow = |part: &&Segment| part.level < 1.0 - RATE_STEP;
        let slow = &parts[..parts.iter().take_while(is_slow).count()];
        let ends = |part: &Segment| part.to < payload.len();
        if let Some(part) = slow.last().filter(|part| ends(part)) {
            self.full_ns = Some(edge_ns(&payload, part.to));
        }
        if let Some(part) = throttle(slow).filter(ends) {
            let edge_ns = edge_ns(&payload, part.to);
            if edge_ns <= LONGEST_THROTTLE_NS {
                self.throttle_ns = Some(edge_ns);
                let high_over_low = self.before_khz / self.steady_khz.unwrap_or(self.before_khz);
                self.throttle_frac = Some(part.level / high_over_low);
            }
        }
        let window_ns = self.full_ns.map_or(START_NS, |ns| (ns + 30_000.0).max(START_NS));
        self.halt_and_cost(block, settled, window_ns);
    }

    /// Sums over the start of the block.
    fn halt_and_cost(&mut self, block: &[Slice], settled: f64, window_ns: f64) {
        let mut done_frac = 1.0;
        for slice in block.iter().take_while(|one| one.at_ns <= window_ns) {
            if let (Work::Payload(_), Some(per_ns)) = (slice.work, slice.per_ns()) {
                done_frac = per_ns / settled;
            }
            let gap_ns = slice.gap_ns.unwrap_or(0.0);
            if self.is_start(slice) {
                self.halt_ns += gap_ns;
            }
            self.lower_cost_ns += (slice.ns - gap_ns) * (1.0 - done_frac) + gap_ns;
        }
    }

    /// Halts come when the throttle ends; where none is seen, anywhere near the start.
    fn is_start(&self, slice: &Slice) -> bool {
        match self.throttle_ns {
            Some(end_ns) => (slice.at_ns - end_ns).abs() < 5_000.0 + slice.ns,
            None => slice.at_ns < START_NS,
        }
    }

    /// The low clock after the block, and when it ends.
    fn after(&mut self, post: &[Slice]) {
        let (from, to) = AFTER_NS;
        let early = post.iter().filter(|one| (from..=to).contains(&(one.at_ns - self.block_ns)));
        self.after_khz = clock_khz(early);
        let timed: Vec<(&Slice, f64)> =
            post.iter().filter_map(|one| Some((one, one.clock_khz()?))).collect();
        let clocks: Vec<f64> = timed.iter().map(|(_, khz)| *khz).collect();
        self.end_khz =
            clock_khz(timed[timed.len() - timed.len() / 10..].iter().map(|(one, _)| *one));
        let parts = segments(&clocks, CLOCK_STEP_KHZ);
        let Some(rise) = parts.windows(2).find(|pair| {
            pair[1].level > pair[0].level + CLOCK_STEP_KHZ
                && is_in_bin(pair[1].level, self.before_khz)
        }) else {
            return;
        };
        // The clock rose somewhere between the last slice that was slow and the first that was
        // fast; if the core was halted, that is a gap between them, and it began there.
        let (low, high) = (timed[rise[0].to - 1].0, timed[rise[1].from].0);
        let low_end_ns = low.at_ns + low.ns;
        let gaps = post.iter().filter(|one| {
            one.gap_ns.is_some() && (low.at_ns - low.ns..=high.at_ns + high.ns).contains(&one.at_ns)
        });
        self.raise_halt_ns = gaps.clone().filter_map(|one| one.gap_ns).sum();
        let gap = gaps.clone().next();
        self.raised_ns = Some(gap.map_or((low_end_ns + high.at_ns) / 2.0, |gap| {
            gap.at_ns + (gap.ns - gap.gap_ns.unwrap_or(0.0)) / 2.0
        }));
    }
}

/// The throttle among the slow parts at the start: the first of them and those after it of about
/// its rate, at the rate of the longest.
fn throttle(slow: &[Segment]) -> Option<Segment> {
    let first = slow.first()?;
    let is_same = |part: &&Segment| (part.level - first.level).abs() < THROTTLE_STEP;
    let same: Vec<&Segment> = slow.iter().take_while(is_same).collect();
    let longest = same.iter().max_by_key(|part| part.to - part.from)?;
    Some(Segment { from: first.from, to: same.last()?.to, level: longest.level })
}

fn was_preempted(slices: &[Slice]) -> bool {
    let until_end = slices.iter().filter(|one| one.phase != Phase::Post);
    until_end.filter_map(|one| one.gap_ns).any(|ns| ns > LONGEST_HALT_NS)
}

/// The clock over slices of which those of the meter count.
pub(crate) fn clock_khz<'a>(slices: impl Iterator<Item = &'a Slice>) -> Option<f64> {
    rate(slices.filter(|one| matches!(one.work, Work::Meter(_)))).map(|ghz| ghz * 1e6)
}

/// Rate in the last third of the block, rounds per ns.
fn settled_rate(block: &[Slice], block_ns: f64) -> Option<f64> {
    let late = block
        .iter()
        .filter(|one| matches!(one.work, Work::Payload(_)) && one.at_ns > block_ns * 2.0 / 3.0);
    rate(late)
}

/// When the rate changed, given the first slice of the new one. The slice before it may be a gap,
/// in which the old rate ended midway.
fn edge_ns(payload: &[&Slice], first: usize) -> f64 {
    let near = &payload[first.saturating_sub(2)..(first + 2).min(payload.len())];
    match near.iter().find(|one| one.gap_ns.is_some()) {
        // On the mean half of its work was done at the old rate.
        Some(gap) => {
            let before = payload[first.saturating_sub(3)].ns;
            gap.at_ns + before / 2.0
        }
        None => payload[first].at_ns,
    }
}
