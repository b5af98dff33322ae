// SPDX-License-Identifier: MIT OR Apache-2.0
//! What code asked for, out of the licence levels that a CPU had.
//!
//! **Problem.** A level is granted a little after code requests it, and held for the hardware's
//! timeout after the last of that code (`cpumodel::license`). A replay has a hold of its own, by
//! its policy: if recorded levels were what code asks for, every hold would be counted twice.
//!
//! **Idea.** Take the hardware's hold off the end of each time at a level, and put the grant's time
//! before its begin:
//!
//! ```text
//!   level         ____|=====================|_____________
//!                  grant                   release
//!   asked for     |<------------>|<- hold ->|
//!              from                 until
//! ```
//!
//! Each level by itself, as the hardware holds them: `until` of level 1 is the hold before the CPU
//! was last at level 1 *or above*. Where the release was seen, `until` is known to a look at the
//! counters. It is not seen while a CPU idles: then it was between the last time it was seen raised
//! (s) and the first time it was not (e), and [`Bound`] says which end is taken:
//!
//! ```text
//!   least   until = s - hold           nothing was asked for in the last hold before s
//!   most    until = min(e - hold, s)   asked for until s, unless e came too early for that
//! ```
//!
//! **Limits.** What happens within a hold does not show: gaps in the demand that are shorter than
//! it count as demand, and so does a single instruction, which raises the level for a complete
//! hold. The hold is the recording machine's, and must be known. A level that is there when a task
//! begins to run, and over within a hold, was requested by others, or while nothing was recorded.
//! Siblings share a level: with SMT, what one asks for is seen on both.

use cpumodel::{CoreLicense, Times};

use crate::follow::Run;
use crate::levels::Stretch;

/// Which of the demands that explain the same levels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    /// The shortest.
    Least,
    /// The longest.
    Most,
}

/// A time in which code asks for a level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Demand {
    /// From when.
    pub start_ns: u64,
    /// To when; after the begin.
    pub end_ns: u64,
    /// The level, above 0.
    pub level: u8,
}

/// The demand that explains the levels of a CPU whose hold is `times.relax_ns`: in order, and one
/// at a time.
pub fn of_levels(stretches: &[Stretch], times: &Times, bound: Bound) -> Vec<Demand> {
    let highest = stretches.iter().map(|stretch| stretch.level).max().unwrap_or(0);
    let each = (1..=highest).flat_map(|level| of_level(stretches, level, times, bound));
    highest_at_a_time(each.collect())
}

/// A time at a level or above.
#[derive(Clone, Copy, Debug)]
struct Raised {
    /// When code may have asked for it, at the earliest.
    from_ns: u64,
    /// It was there when someone began to run, and who had asked for it is not known.
    found: bool,
    /// The end of the last stretch that had it.
    seen_ns: u64,
}

/// The demand for a level or above.
fn of_level(stretches: &[Stretch], level: u8, times: &Times, bound: Bound) -> Vec<Demand> {
    let mut demands = Vec::new();
    let mut raised: Option<Raised> = None;
    // Since when someone runs without a gap, and until when.
    let (mut since_ns, mut until_ns) = (0, 0);
    let mut before = 0;
    for stretch in stretches {
        let start_ns = stretch.start_ns;
        if start_ns != until_ns {
            (since_ns, before) = (start_ns, 0);
        }
        let grant_ns = times.throttle_ns + times.halts_ns(before, stretch.level);
        before = stretch.level;
        until_ns = stretch.end_ns;
        // Idle code asks for nothing: a level does not outlast a longer gap.
        let over =
            |last: &mut Raised| stretch.level < level || start_ns > last.seen_ns + times.relax_ns;
        if let Some(last) = raised.take_if(over) {
            demands.extend(last.demand(start_ns, level, times.relax_ns, bound));
        }
        if stretch.level >= level {
            let from_ns = start_ns.saturating_sub(grant_ns).max(since_ns);
            let found = start_ns == since_ns;
            let last = raised.get_or_insert(Raised { from_ns, found, seen_ns: 0 });
            last.seen_ns = stretch.end_ns;
        }
    }
    demands.extend(raised.and_then(|last| last.demand(u64::MAX, level, times.relax_ns, bound)));
    demands
}

impl Raised {
    /// Its demand, if the level was first seen to be over at `over_ns`; none if others may have
    /// asked for all of it.
    fn demand(&self, over_ns: u64, level: u8, hold_ns: u64, bound: Bound) -> Option<Demand> {
        let until_ns = match bound {
            Bound::Least => self.seen_ns.saturating_sub(hold_ns),
            Bound::Most => over_ns.saturating_sub(hold_ns).min(self.seen_ns),
        };
        if self.found && until_ns <= self.from_ns {
            return None;
        }
        // One instruction is enough.
        let end_ns = until_ns.max(self.from_ns + 1);
        Some(Demand { start_ns: self.from_ns, end_ns, level })
    }
}

/// What marks say that was asked for on a CPU, from what ran there; no level above `most`.
pub fn of_marks<'a>(runs: impl Iterator<Item = &'a Run>, most: u8) -> Vec<Demand> {
    let wide = runs.filter(|run| run.level.min(most) > 0 && run.end_ns > run.start_ns);
    let demand = |run: &Run| {
        let (start_ns, end_ns) = (run.start_ns, run.end_ns);
        Demand { start_ns, end_ns, level: run.level.min(most) }
    };
    wide.map(demand).collect()
}

/// When a CPU switched from one task to another, from what ran there, in order.
pub fn switches<'a>(runs: impl Iterator<Item = &'a Run>) -> Vec<u64> {
    let mut last = None;
    let from_another = |run: &&Run| last.replace(run.task).is_some_and(|task| task != run.task);
    runs.filter(from_another).map(|run| run.start_ns).collect()
}

/// Demand that begins a little before a switch, or ends a little after it, does so with it: who
/// asks for a level begins and ends there, and counters show it only as sharply as levels follow.
pub fn snapped(mut demand: Vec<Demand>, switches: &[u64], times: &Times) -> Vec<Demand> {
    let near_ns = (times.throttle_ns + 2 * times.halt_ns).max(times.relax_ns / SNAP);
    for Demand { start_ns, end_ns, .. } in &mut demand {
        let last = switches.partition_point(|switch| *switch < *end_ns);
        let last_ns = last.checked_sub(1).map(|at| switches[at]);
        if let Some(at_ns) = last_ns.filter(|at| *at > *start_ns && *at + near_ns >= *end_ns) {
            *end_ns = at_ns;
        }
        let next = switches.partition_point(|switch| *switch <= *start_ns);
        if let Some(at_ns) =
            switches.get(next).filter(|at| **at < *end_ns && **at <= *start_ns + near_ns)
        {
            *start_ns = *at_ns;
        }
    }
    demand
}

/// Part of the hold that its length may vary by.
const SNAP: u64 = 10;

/// Of demands that overlap, the highest; in order.
pub fn highest_at_a_time(mut all: Vec<Demand>) -> Vec<Demand> {
    all.sort_by_key(|demand| (demand.start_ns, demand.level));
    let mut bounds: Vec<u64> = all.iter().flat_map(|d| [d.start_ns, d.end_ns]).collect();
    bounds.sort_unstable();
    bounds.dedup();
    let mut highest: Vec<Demand> = Vec::new();
    let (mut open, mut next): (Vec<Demand>, _) = (Vec::new(), all.iter().peekable());
    for piece in bounds.windows(2) {
        let [start_ns, end_ns] = *piece else { continue };
        open.retain(|demand| demand.end_ns > start_ns);
        while let Some(demand) = next.next_if(|demand| demand.start_ns <= start_ns) {
            open.push(*demand);
        }
        let Some(level) = open.iter().map(|demand| demand.level).max() else { continue };
        match highest.last_mut() {
            Some(last) if last.end_ns == start_ns && last.level == level => last.end_ns = end_ns,
            _ => highest.push(Demand { start_ns, end_ns, level }),
        }
    }
    highest
}

/// The levels that the hardware gives code that asks for these, in order, from the first request to
/// where the last level is over; level 0 is left out. A halt counts as time at the level before it.
pub fn levels_of(demands: &[Demand], times: &Times) -> Vec<Demand> {
    let mut license = CoreLicense::default();
    let mut levels = Vec::new();
    let mut since_ns = 0;
    let mut until = |license: &mut CoreLicense, at_ns: u64| {
        while license.deadline_ns() <= at_ns {
            let (now_ns, level) = (license.deadline_ns(), license.level());
            license.expire(now_ns, times);
            if license.level() != level {
                if level > 0 {
                    levels.push(Demand { start_ns: since_ns, end_ns: now_ns, level });
                }
                since_ns = now_ns;
            }
        }
    };
    for (at, demand) in demands.iter().enumerate() {
        until(&mut license, demand.start_ns);
        license.set_demand(demand.level, demand.start_ns, times);
        until(&mut license, demand.end_ns);
        if demands.get(at + 1).is_none_or(|next| next.start_ns != demand.end_ns) {
            license.set_demand(0, demand.end_ns, times);
        }
    }
    // Nothing is asked for any more, so it ends: at `u64::MAX` nothing is due.
    until(&mut license, u64::MAX - 1);
    levels
}
