// SPDX-License-Identifier: MIT OR Apache-2.0
//! How many cycles of work a piece of recorded time was.
//!
//! Problem: a recording has time, a scenario has work, and between them is a clock that fell while
//! the recording was made. Time at the clock of level 0 would count wide code and all that ran in a
//! hold too long, and the prediction would be right only for the machine that was recorded.
//!
//! Idea: the recording says which level was asked for on each core, and when. The licence model
//! (`cpumodel::license`) says what the core granted, and so which clock each moment had:
//!
//! ```text
//!   marks       |..wide..|                                  what a core is asked for
//!   phases      |throttle|halt|  granted level, and its hold  |halt| level 0
//!   wide work   | frac   | 0  |  1                            | 0  |
//!   other work  | 1      | 0  |  1                            | 0  | 1
//! ```
//!
//! A time is worth its length times the clock of its phase times this rate. Where cycles were
//! counted, the clock is not needed: the counted cycles are taken, at the same rate.
//!
//! Limit: a sibling's share of its core is not known from here; [`super::courses`] has it.

use cpumodel::{CoreLicense, Phase, Platform, Times};
use trace::counted::Counted;
use trace::demand::Demand;

/// A time in which a core's licence does not change.
#[derive(Clone, Copy, Debug)]
struct Part {
    start_ns: u64,
    level: u8,
    phase: Phase,
}

/// One core over the recording.
#[derive(Clone, Debug)]
pub(super) struct CoreClock {
    parts: Vec<Part>,
    /// Core cycles per ns, by level.
    per_ns: Vec<f64>,
    /// Work per core cycle, by level: below level 0 waits for memory take fewer of them.
    work_per_cycle: Vec<f64>,
    throttle_frac: f64,
}

impl CoreClock {
    /// Of a core that is asked for these levels, in order and one at a time, while so many cores of
    /// its package are active; the work follows the clock so far.
    pub(super) fn new(
        demands: &[Demand],
        platform: &Platform,
        active: usize,
        sensitive_frac: f64,
    ) -> Self {
        let level = |level: u8| f64::from(platform.clock_khz(level, active)) / 1e6;
        let per_ns: Vec<f64> = (0..platform.nr_levels() as u8).map(level).collect();
        // time for a cycle of work at clock f = sensitive / f + (1 - sensitive) / f_0
        let work = |&f: &f64| 1.0 / (sensitive_frac + (1.0 - sensitive_frac) * f / per_ns[0]);
        CoreClock {
            parts: parts_of(demands, platform),
            work_per_cycle: per_ns.iter().map(work).collect(),
            per_ns,
            throttle_frac: platform.throttle_frac,
        }
    }

    /// Cycles of the work of this level that was done from one moment to another. `counted`: what
    /// was counted on the CPU.
    pub(super) fn cycles(
        &self,
        start_ns: u64,
        end_ns: u64,
        level: u8,
        counted: Option<&Counted>,
    ) -> f64 {
        let mut at = self.parts.partition_point(|part| part.start_ns <= start_ns);
        let (mut from_ns, mut cycles) = (start_ns, 0.0);
        while from_ns < end_ns {
            let until_ns = self.parts.get(at).map_or(end_ns, |next| next.start_ns.min(end_ns));
            let now = at.checked_sub(1).map(|at| self.parts[at]);
            cycles += self.worth(now, from_ns, until_ns, level, counted);
            (from_ns, at) = (until_ns, at + 1);
        }
        cycles
    }

    /// The same within one part; before the first one the core is at level 0.
    fn worth(
        &self,
        part: Option<Part>,
        from_ns: u64,
        until_ns: u64,
        level: u8,
        counted: Option<&Counted>,
    ) -> f64 {
        let (granted, phase) = part.map_or((0, Phase::Steady), |part| (part.level, part.phase));
        let at = usize::from(granted).min(self.per_ns.len() - 1);
        let (per_ns, per_cycle) = (self.per_ns[at], self.work_per_cycle[at]);
        let (cycles, counted_ns) = counted.map_or((0.0, 0), |c| c.cycles(from_ns, until_ns));
        let uncounted_ns = (until_ns - from_ns).saturating_sub(counted_ns);
        let rate = match phase {
            Phase::Throttled if level > granted => self.throttle_frac,
            Phase::Halted => 0.0,
            _ => 1.0,
        };
        // Who counts cycles counts none while the core is halted, wherever the model has its halt.
        let counted_rate = if phase == Phase::Halted { 1.0 } else { rate };
        (cycles * counted_rate + uncounted_ns as f64 * per_ns * rate) * per_cycle
    }
}

/// What the licence of a core does when it is asked for these levels.
fn parts_of(demands: &[Demand], platform: &Platform) -> Vec<Part> {
    let highest = platform.nr_levels() as u8 - 1;
    let mut course =
        Course { license: CoreLicense::default(), times: &platform.times, parts: Vec::new() };
    for (at, demand) in demands.iter().enumerate() {
        course.ask(demand.level.min(highest), demand.start_ns);
        if demands.get(at + 1).is_none_or(|next| next.start_ns != demand.end_ns) {
            course.ask(0, demand.end_ns);
        }
    }
    // Nothing is asked for any more, so it ends: at `u64::MAX` nothing is due.
    course.until(u64::MAX - 1);
    course.parts
}

/// A licence over time.
struct Course<'a> {
    license: CoreLicense,
    times: &'a Times,
    parts: Vec<Part>,
}

impl Course<'_> {
    fn ask(&mut self, level: u8, at_ns: u64) {
        self.until(at_ns);
        self.license.set_demand(level, at_ns, self.times);
        self.note(at_ns);
    }

    fn until(&mut self, at_ns: u64) {
        while self.license.deadline_ns() <= at_ns {
            let now_ns = self.license.deadline_ns();
            self.license.expire(now_ns, self.times);
            self.note(now_ns);
        }
    }

    fn note(&mut self, start_ns: u64) {
        let part = Part { start_ns, level: self.license.level(), phase: self.license.phase() };
        match self.parts.last_mut() {
            Some(last) if (last.level, last.phase) == (part.level, part.phase) => {}
            Some(last) if last.start_ns == start_ns => *last = part,
            _ => self.parts.push(part),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cpumodel::CpuModel;

    const MS: u64 = 1_000_000;

    fn platform() -> Platform {
        Platform::new(&CpuModel::built_in("xeon-gold-6130").unwrap().unwrap())
    }

    /// A millisecond of wide code after one of scalar code, with all 16 cores active.
    fn clock() -> CoreClock {
        let demand = Demand { start_ns: MS, end_ns: 2 * MS, level: 2 };
        CoreClock::new(&[demand], &platform(), 16, 1.0)
    }

    /// What waits for memory does the same work at the low clock as at the full one.
    #[test]
    fn waits_for_memory_do_not_follow_the_clock() {
        let demand = Demand { start_ns: MS, end_ns: 2 * MS, level: 2 };
        let clock = |sensitive| CoreClock::new(&[demand], &platform(), 16, sensitive);
        let hold = |clock: CoreClock| clock.cycles(2 * MS, 2 * MS + 500_000, 0, None);
        assert!((hold(clock(0.0)) - 1.4e6).abs() < 1.0, "0.5 ms, as at 2.8 GHz");
        let half = 500_000.0 / (0.5 / 1.9 + 0.5 / 2.8);
        assert!((hold(clock(0.5)) - half).abs() < 1.0);
    }

    /// Time before wide code counts at the clock of level 0, and long after it again.
    #[test]
    fn scalar_time_is_full_clock() {
        let clock = clock();
        for start_ns in [0, 4 * MS] {
            let cycles = clock.cycles(start_ns, start_ns + MS / 2, 0, None);
            assert!((cycles - 1.4e6).abs() < 1.0, "{cycles}: 0.5 ms at 2.8 GHz");
        }
    }

    /// In the hold after wide code, scalar code has the low clock.
    #[test]
    fn a_hold_counts_at_its_clock() {
        let cycles = clock().cycles(2 * MS, 2 * MS + 500_000, 0, None);
        assert!((cycles - 0.95e6).abs() < 1.0, "{cycles}: 0.5 ms at 1.9 GHz");
    }

    /// Until the grant wide code is slow, then halted.
    #[test]
    fn a_request_costs_work() {
        let platform = platform();
        let throttle_ns = platform.times.throttle_ns;
        let halts_ns = platform.times.halts_ns(0, 2);
        let cycles = clock().cycles(MS, 2 * MS, 2, None);
        let slow = throttle_ns as f64 * 2.8 * platform.throttle_frac;
        let full = (MS - throttle_ns - halts_ns) as f64 * 1.9;
        assert!((cycles - slow - full).abs() < 1.0, "{cycles}, not {}", slow + full);
    }

    /// A piece is worth as much as its parts.
    #[test]
    fn pieces_add_up() {
        let clock = clock();
        let whole = clock.cycles(0, 4 * MS, 2, None);
        let steps = (0..400).map(|i| clock.cycles(i * 10_000, (i + 1) * 10_000, 2, None));
        assert!((whole - steps.sum::<f64>()).abs() < 1.0);
    }
}
