// SPDX-License-Identifier: MIT OR Apache-2.0
//! One CPU's licence levels and demand, to be asked about times in which something ran there.

use crate::demand::Demand;
use crate::levels::Stretch;
use crate::scores::Side;

/// Levels that were counted on a CPU, and what was asked for there.
#[derive(Clone, Debug, Default)]
pub struct Counted {
    /// In order.
    pub stretches: Vec<Stretch>,
    /// In order.
    pub demand: Vec<Demand>,
}

/// How levels agree with what they should be: times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Agreement {
    /// At a level above 0.
    pub raised_ns: u64,
    /// Of that, at the expected level or below.
    pub explained_ns: u64,
    /// Below the expected level.
    pub unmet_ns: u64,
}

impl Counted {
    /// Cycles that were counted in a time, and how much of it they were counted in.
    pub fn cycles(&self, start_ns: u64, end_ns: u64) -> (f64, u64) {
        let within = self.within(start_ns, end_ns);
        within.fold((0.0, 0), |(cycles, ns), (stretch, from_ns, to_ns)| {
            (cycles + stretch.cycles_in(from_ns, to_ns), ns + to_ns - from_ns)
        })
    }

    /// Time at a raised level.
    pub fn raised_ns(&self, start_ns: u64, end_ns: u64) -> u64 {
        let raised = self.within(start_ns, end_ns).filter(|(stretch, ..)| stretch.level > 0);
        raised.map(|(_, from_ns, to_ns)| to_ns - from_ns).sum()
    }

    /// Time in which something above level 0 is asked for.
    pub fn wide_ns(&self, start_ns: u64, end_ns: u64) -> u64 {
        let wide =
            |&(from_ns, to_ns, level): &(u64, u64, u8)| if level > 0 { to_ns - from_ns } else { 0 };
        self.pieces(start_ns, end_ns).iter().map(wide).sum()
    }

    /// A time in pieces of one demand each: begin, end, level.
    pub fn pieces(&self, start_ns: u64, end_ns: u64) -> Vec<(u64, u64, u8)> {
        let mut pieces = Vec::new();
        let mut at_ns = start_ns;
        for demand in
            within(&self.demand, |demand| (demand.start_ns, demand.end_ns), start_ns, end_ns)
        {
            let (from_ns, to_ns) = (demand.start_ns.max(start_ns), demand.end_ns.min(end_ns));
            pieces.extend((from_ns > at_ns).then_some((at_ns, from_ns, 0)));
            pieces.push((from_ns, to_ns, demand.level));
            at_ns = to_ns;
        }
        pieces.extend((end_ns > at_ns).then_some((at_ns, end_ns, 0)));
        pieces
    }

    /// The counted level on a side of a moment; 0 where none was counted yet, or none will be.
    pub(crate) fn level(&self, side: Side) -> u8 {
        let stretch = match side {
            Side::Before(at_ns) => {
                let behind = self.stretches.partition_point(|stretch| stretch.start_ns < at_ns);
                behind.checked_sub(1).map(|at| self.stretches[at])
            }
            Side::Behind(at_ns) => {
                let at = self.stretches.partition_point(|stretch| stretch.end_ns <= at_ns);
                self.stretches.get(at).copied()
            }
        };
        stretch.map_or(0, |stretch| stretch.level)
    }

    /// The level of what is asked for at a moment.
    pub fn asked(&self, at_ns: u64) -> u8 {
        let at = self.demand.partition_point(|demand| demand.end_ns <= at_ns);
        self.demand.get(at).filter(|demand| demand.start_ns <= at_ns).map_or(0, |d| d.level)
    }

    /// Adds how the counted levels agree with what is to be expected, within a time.
    pub(crate) fn compare(
        &self,
        expected: &Counted,
        start_ns: u64,
        end_ns: u64,
        sum: &mut Agreement,
    ) {
        for (stretch, from_ns, to_ns) in self.within(start_ns, end_ns) {
            for (from_ns, to_ns, level) in expected.pieces(from_ns, to_ns) {
                let ns = to_ns - from_ns;
                let (raised, explained) = (stretch.level > 0, stretch.level <= level);
                sum.raised_ns += if raised { ns } else { 0 };
                sum.explained_ns += if raised && explained { ns } else { 0 };
                sum.unmet_ns += if stretch.level < level { ns } else { 0 };
            }
        }
    }

    /// Stretches that lie in a time, with the part that does.
    fn within(&self, start_ns: u64, end_ns: u64) -> impl Iterator<Item = (&Stretch, u64, u64)> {
        let all =
            within(&self.stretches, |stretch| (stretch.start_ns, stretch.end_ns), start_ns, end_ns);
        all.map(move |stretch| {
            (stretch, stretch.start_ns.max(start_ns), stretch.end_ns.min(end_ns))
        })
    }
}

/// Those of some times, in order and without overlap, that lie in another.
fn within<T>(
    times: &[T],
    of: impl Fn(&T) -> (u64, u64),
    start_ns: u64,
    end_ns: u64,
) -> impl Iterator<Item = &T> {
    let first = times.partition_point(|time| of(time).1 <= start_ns);
    times[first..].iter().take_while(move |time| of(time).0 < end_ns)
}
