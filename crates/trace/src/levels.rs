// SPDX-License-Identifier: MIT OR Apache-2.0
//! The licence level of each CPU over time, from its counters.
//!
//! A recorder looks at the counters of all levels at each switch and every millisecond: it learns
//! how many cycles a level had since the look before, to the cycle, and not in which order. So a
//! look becomes a stretch of time for each level that it found, as long as the level's cycles take
//! at the level's clock, in the likeliest order:
//!
//! ```text
//!   looks      | 0     | 0 and 2 | 2      | 2 and 0 |
//!   stretches  |0000000|000222222|22222222|222200000|      the first goes on with the level before it,
//!                                                           the last is that of the next look
//! ```
//!
//! Stretches cover the time in which a CPU ran a recorded task. Of idle time, and of time in which
//! only others ran, nothing is known.
//!
//! Limits: a level that comes and goes within one look is found, and its place in it is not: its
//! stretch is as long as it was, and at most a look away from where it was.

use std::collections::BTreeMap;

use cpumodel::MAX_LEVELS;

use crate::event::{Event, What};

/// A piece of a CPU's time at one level.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Stretch {
    /// From when.
    pub start_ns: u64,
    /// To when.
    pub end_ns: u64,
    /// The level.
    pub level: u8,
    /// Core cycles that were counted in it.
    pub cycles: f64,
}

impl Stretch {
    /// Cycles between two moments.
    pub(crate) fn cycles_in(&self, start_ns: u64, end_ns: u64) -> f64 {
        let overlap_ns = end_ns.min(self.end_ns).saturating_sub(start_ns.max(self.start_ns));
        self.cycles * overlap_ns as f64 / (self.end_ns - self.start_ns) as f64
    }
}

/// One look at the counters of a CPU.
#[derive(Clone, Copy, Debug)]
struct Look {
    start_ns: u64,
    end_ns: u64,
    cycles: [u64; MAX_LEVELS],
}

#[derive(Clone, Debug, Default)]
struct OfCpu {
    /// The last look or switch.
    since_ns: Option<u64>,
    looks: Vec<Look>,
}

/// Looks at the counters of all CPUs.
#[derive(Clone, Debug, Default)]
pub struct Levels {
    cpus: BTreeMap<u16, OfCpu>,
}

impl Levels {
    /// Takes an event.
    pub fn take(&mut self, event: &Event) {
        match event.what {
            // What is counted next has begun here.
            What::Switch { .. } => {
                self.cpus.entry(event.cpu).or_default().since_ns = Some(event.at_ns);
            }
            // What idle CPUs count is recorded when they are no longer idle: a moment stands for
            // all of it.
            What::LevelCycles { license_level, cycles } if event.tid != 0 => {
                let level = usize::from(license_level).min(MAX_LEVELS - 1);
                self.cpus.entry(event.cpu).or_default().look(event.at_ns, level, cycles);
            }
            _ => {}
        }
    }

    /// Whether levels were counted at all.
    pub fn is_empty(&self) -> bool {
        self.cpus.values().all(|cpu| cpu.looks.is_empty())
    }

    /// A CPU's stretches in order; levels have these clocks, those above the last one the last
    /// one's.
    pub fn stretches(&self, cpu: u16, clock_khz: &[u32]) -> Vec<Stretch> {
        let looks = self.cpus.get(&cpu).map_or(&[][..], |cpu| &cpu.looks);
        let mut stretches: Vec<Stretch> = Vec::with_capacity(looks.len());
        for (at, look) in looks.iter().enumerate() {
            let before = stretches.last().filter(|last| last.end_ns == look.start_ns);
            let before = before.map(|last| last.level);
            let next = looks.get(at + 1).filter(|next| next.start_ns == look.end_ns);
            let behind = next.filter(|next| next.levels().count() == 1);
            let behind = behind.and_then(|next| next.levels().next());
            look.split(before, behind, clock_khz, &mut stretches);
        }
        stretches
    }
}

impl OfCpu {
    /// Several levels of one look have the same time.
    fn look(&mut self, at_ns: u64, level: usize, cycles: u64) {
        if self.looks.last().is_none_or(|look| look.end_ns != at_ns) {
            let last = self.since_ns.max(self.looks.last().map(|look| look.end_ns));
            // The first of a CPU: since when it counts is not known.
            let Some(start_ns) = last.filter(|since_ns| *since_ns < at_ns) else {
                self.since_ns = Some(at_ns);
                return;
            };
            self.looks.push(Look { start_ns, end_ns: at_ns, cycles: [0; MAX_LEVELS] });
        }
        let look = self.looks.last_mut().expect("it was pushed");
        look.cycles[level] = look.cycles[level].saturating_add(cycles);
    }
}

impl Look {
    fn levels(&self) -> impl DoubleEndedIterator<Item = u8> + '_ {
        (0..MAX_LEVELS as u8).filter(|level| self.cycles[usize::from(*level)] > 0)
    }

    /// Its stretches: first the level before it, last that after it, between them upwards or, from
    /// above, downwards.
    fn split(
        &self,
        before: Option<u8>,
        behind: Option<u8>,
        clock_khz: &[u32],
        to: &mut Vec<Stretch>,
    ) {
        let mut order: Vec<u8> = self.levels().collect();
        if before.is_some_and(|before| order.first().is_some_and(|lowest| before > *lowest)) {
            order.reverse();
        }
        // Stable: what is neither the one nor the other keeps its place.
        order.sort_by_key(|level| match Some(*level) {
            level if level == before => 0,
            level if level == behind => 2,
            _ => 1,
        });
        let clock = |level: u8| clock_khz.get(usize::from(level)).or(clock_khz.last());
        let time = |level: u8| {
            let khz = clock(level).map_or(1.0, |khz| f64::from(*khz));
            self.cycles[usize::from(level)] as f64 / khz
        };
        let (all, length_ns) =
            (order.iter().map(|&level| time(level)).sum::<f64>(), self.length_ns());
        let (mut start_ns, mut passed) = (self.start_ns, 0.0);
        for level in order {
            passed += time(level);
            let end_ns = self.start_ns + (length_ns * passed / all).round() as u64;
            let end_ns = end_ns.min(self.end_ns);
            let cycles = self.cycles[usize::from(level)] as f64;
            if end_ns > start_ns {
                to.push(Stretch { start_ns, end_ns, level, cycles });
            }
            start_ns = end_ns;
        }
    }

    fn length_ns(&self) -> f64 {
        (self.end_ns - self.start_ns) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::Why;

    const KHZ: [u32; 3] = [2_000_000, 1_500_000, 1_000_000];

    fn look(at_ns: u64, cycles: &[(u8, u64)]) -> Vec<Event> {
        let event = |&(license_level, cycles): &(u8, u64)| Event {
            at_ns,
            cpu: 3,
            tid: 7,
            what: What::LevelCycles { license_level, cycles },
        };
        cycles.iter().map(event).collect()
    }

    fn switch(at_ns: u64, from: u32, next: u32) -> Vec<Event> {
        let (lane, next_lane) = (None, None);
        let what = What::Switch { next, why: Why::Sleeps, bound: false, lane, next_lane };
        vec![Event { at_ns, cpu: 3, tid: from, what }]
    }

    fn stretches(events: &[Vec<Event>]) -> Vec<(u64, u64, u8)> {
        let mut levels = Levels::default();
        events.iter().flatten().for_each(|event| levels.take(event));
        let of_cpu = levels.stretches(3, &KHZ);
        of_cpu.iter().map(|s| (s.start_ns, s.end_ns, s.level)).collect()
    }

    /// A look with two levels is cut where the clocks say, and goes from the level before it to the
    /// level after it.
    #[test]
    fn looks_are_cut_in_order() {
        let events = [
            switch(1_000, 0, 7),
            look(2_000, &[(0, 2_000)]),
            look(3_000, &[(0, 1_000), (2, 500)]),
            look(4_000, &[(2, 1_000)]),
            look(5_000, &[(0, 1_000), (2, 500)]),
            look(6_000, &[(0, 2_000)]),
        ];
        let wanted = [
            (1_000, 2_000, 0),
            (2_000, 2_500, 0),
            (2_500, 3_000, 2),
            (3_000, 4_000, 2),
            (4_000, 4_500, 2),
            (4_500, 5_000, 0),
            (5_000, 6_000, 0),
        ];
        assert_eq!(stretches(&events), wanted);
    }

    /// Idle time is in no stretch, and what an idle CPU counts in none either; three levels go down
    /// from above.
    #[test]
    fn only_recorded_time_counts() {
        let mut idle = look(8_900, &[(1, 10)]);
        idle[0].tid = 0;
        let events = [
            switch(0, 0, 7),
            look(1_000, &[(2, 1_000)]),
            look(4_000, &[(0, 2_000), (1, 1_500), (2, 1_000)]),
            switch(4_000, 7, 0),
            idle,
            switch(9_000, 0, 7),
            look(9_500, &[(0, 1_000)]),
        ];
        let wanted = [
            (0, 1_000, 2),
            (1_000, 2_000, 2),
            (2_000, 3_000, 1),
            (3_000, 4_000, 0),
            (9_000, 9_500, 0),
        ];
        assert_eq!(stretches(&events), wanted);
    }
}
