// SPDX-License-Identifier: MIT OR Apache-2.0
//! The time of a machine whose CPUs stop from time to time.
//!
//! Problem: a virtual CPU that its host does not run looks like a broken promise: it idles while a
//! task waits that was sent to it, or runs a guest while wide work waits, for as long as the host
//! likes. No bound is right for that: one that forgives the host forgives the scheduler.
//!
//! Idea: the clock that the checkers see stops while any CPU does. What one CPU leaves undone can
//! be what another waits for (the kick of an idle CPU is the work of the CPU that wakes), so a
//! stall excuses all CPUs.
//!
//! ```text
//!   CPU 0   ----------xxxxxxxx----------------       x: a stall, as it was recorded
//!   CPU 1   --------------xxxxxx------xxx-----
//!   clock   0123456789..........012345...67890
//! ```
//!
//! Stalls are recorded when they end, later than much of what they excuse. So the recording is read
//! twice.
//!
//! Limits: stalls shorter than the recorder's clocks can see (8 ms) remain in the time that is
//! judged.

use trace::{Event, What};

/// Stalls of a recording.
#[derive(Clone, Debug, Default)]
pub struct Stalls {
    spans: Vec<(u64, u64)>,
    longest_ns: u64,
}

/// What they come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct StallSum {
    /// How many.
    pub stalls: u64,
    /// Time in which at least one CPU was stalled: it was not judged.
    pub total_ns: u64,
    /// The longest.
    pub longest_ns: u64,
}

impl Stalls {
    /// Takes an event of the first reading.
    pub fn take(&mut self, event: &Event) {
        if let What::Stall { ns } = event.what {
            self.spans.push((event.at_ns.saturating_sub(ns), event.at_ns));
            self.longest_ns = self.longest_ns.max(ns);
        }
    }

    /// The clock for the second reading.
    pub(super) fn clock(mut self, start_ns: u64) -> Clock {
        let stalls = self.spans.len() as u64;
        self.spans.sort_unstable();
        let mut merged: Vec<(u64, u64)> = Vec::new();
        for (from_ns, to_ns) in self.spans {
            let (from_ns, to_ns) = (from_ns.max(start_ns), to_ns.max(start_ns));
            match merged.last_mut() {
                Some((_, end_ns)) if from_ns <= *end_ns => *end_ns = to_ns.max(*end_ns),
                _ => merged.push((from_ns, to_ns)),
            }
        }
        let total_ns = merged.iter().map(|(from_ns, to_ns)| to_ns - from_ns).sum();
        let sum = StallSum { stalls, total_ns, longest_ns: self.longest_ns };
        Clock { start_ns, spans: merged, next: 0, passed_ns: 0, sum }
    }
}

/// The time since the begin, excluding stalls. For times that do not go back.
pub(super) struct Clock {
    start_ns: u64,
    spans: Vec<(u64, u64)>,
    next: usize,
    passed_ns: u64,
    pub(super) sum: StallSum,
}

impl Clock {
    pub(super) fn at(&mut self, now_ns: u64) -> u64 {
        while let Some(&(from_ns, to_ns)) =
            self.spans.get(self.next).filter(|span| span.1 <= now_ns)
        {
            self.passed_ns += to_ns - from_ns;
            self.next += 1;
        }
        let stands = self.spans.get(self.next).map_or(0, |span| now_ns.saturating_sub(span.0));
        now_ns.saturating_sub(self.start_ns) - self.passed_ns - stands
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The clock stops while any CPU does, and stalls that overlap count once.
    #[test]
    fn the_clock_stands_still() {
        let mut stalls = Stalls::default();
        for (end_ns, ns) in [(1400, 100), (1350, 100), (1900, 200), (1050, 100)] {
            stalls.take(&Event { at_ns: end_ns, cpu: 0, tid: 0, what: What::Stall { ns } });
        }
        let mut clock = stalls.clock(1000);
        // 1000-1050, 1250-1400, 1700-1900
        assert_eq!(clock.sum, StallSum { stalls: 4, total_ns: 400, longest_ns: 200 });
        let times = [1000, 1020, 1050, 1100, 1250, 1300, 1400, 1500, 1800, 1900, 2000];
        let told = times.map(|now_ns| clock.at(now_ns));
        assert_eq!(told, [0, 0, 0, 50, 200, 200, 200, 300, 500, 500, 600]);
    }
}
