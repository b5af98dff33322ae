// SPDX-License-Identifier: MIT OR Apache-2.0
//! What one CPU executes: periods, one after the other.
//!
//! A period asks for one licence level and holds an amount of work, in cycles at the clock of
//! level 0; or it is idle for a time. Moments are at its begin.
//!
//! **Work that does not follow the clock** (DIM 4.2): a program that waits for memory waits as long
//! at any clock. Of a period's work, `sensitive_frac` follows the clock and the rest takes the time
//! that it takes at level 0:
//!
//! ```text
//!   time at clock f = cycles * (sensitive / f + (1 - sensitive) / f_0)
//! ```
//!
//! DIM measured the instructions per cycle at two clocks instead; [`sensitive_frac_of_ipc`]
//! computes the one from the other.

/// What someone says at the begin of a period.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// A request, or another unit of work, begins. Counted, nothing else.
    Request,
    /// Raise the clock as soon as the code allows (DIM 7.1, 2).
    Force,
    /// From now on the clock is raised this long after the last wide code, until another delay is
    /// set (DIM 7.1, 1). The greatest number: never.
    DelayNs(u64),
    /// A context switch, and what the next task is expected to ask for: its power score (DIM 5.3).
    Switch(u8),
}

/// What a period consists of.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Work {
    /// Code.
    Code {
        /// Licence level that it asks for.
        level: u8,
        /// How much, as cycles at the clock of level 0.
        cycles: u64,
        /// Part of it that follows the clock, 0..=1.
        sensitive_frac: f32,
    },
    /// Nothing to do for so long.
    Idle {
        /// How long.
        time_ns: u64,
    },
}

/// One period.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Period {
    /// What it does.
    pub work: Work,
    /// Its moments: a range of [`Timeline::moments`].
    moments: (u32, u32),
}

/// The periods of one CPU.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Timeline {
    periods: Vec<Period>,
    moments: Vec<Moment>,
}

impl Timeline {
    /// One more period.
    pub fn push(&mut self, work: Work, moments: &[Moment]) {
        let first = self.moments.len() as u32;
        self.moments.extend_from_slice(moments);
        self.periods.push(Period { work, moments: (first, self.moments.len() as u32) });
    }

    /// One more period of code that follows the clock, without moments.
    pub fn push_code(&mut self, level: u8, cycles: u64) {
        self.push(Work::Code { level, cycles, sensitive_frac: 1.0 }, &[]);
    }

    /// The periods.
    pub fn periods(&self) -> &[Period] {
        &self.periods
    }

    /// The moments of one of them.
    pub fn moments(&self, period: &Period) -> &[Moment] {
        &self.moments[period.moments.0 as usize..period.moments.1 as usize]
    }

    /// The highest level that is asked for.
    pub fn max_level(&self) -> u8 {
        let level = |period: &Period| match period.work {
            Work::Code { level, .. } => level,
            Work::Idle { .. } => 0,
        };
        self.periods.iter().map(level).max().unwrap_or(0)
    }
}

/// Part of a program's work that follows the clock, from its instructions per cycle at two clocks:
/// `ipc_gain_frac` is how much higher they are at `low_khz` than at `high_khz` (DIM 4.2, Figure 5:
/// 0.059 for x264 between 2.1 and 2.8 GHz).
///
/// With the ratio k of the clocks, the time at the low clock is k / (1 + gain) times that at the
/// high one, and s * k + (1 - s) by the model; solved for s.
pub fn sensitive_frac_of_ipc(low_khz: u32, high_khz: u32, ipc_gain_frac: f64) -> f64 {
    let ratio = f64::from(high_khz) / f64::from(low_khz);
    ((ratio / (1.0 + ipc_gain_frac) - 1.0) / (ratio - 1.0)).clamp(0.0, 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// DIM 4.2: 5.9 % more instructions per cycle at 2.1 than at 2.8 GHz (x264) means that less
    /// than four fifths of its work follow the clock; 1 % (nginx), nearly all; none, all.
    #[test]
    fn ipc_becomes_a_share() {
        let share = |gain| sensitive_frac_of_ipc(2_100_000, 2_800_000, gain);
        assert!((share(0.059) - 0.777).abs() < 1e-3, "{}", share(0.059));
        assert!((share(0.01) - 0.960).abs() < 1e-3, "{}", share(0.01));
        assert_eq!(share(0.0), 1.0);
        assert_eq!(share(9.0), 0.0);
    }

    /// Moments stay with their period.
    #[test]
    fn moments_stay_with_their_period() {
        let mut timeline = Timeline::default();
        timeline.push(Work::Idle { time_ns: 5 }, &[Moment::Request, Moment::Force]);
        timeline.push_code(2, 100);
        timeline.push(Work::Idle { time_ns: 5 }, &[Moment::Switch(1)]);
        let moments: Vec<_> =
            timeline.periods().iter().map(|p| timeline.moments(p).to_vec()).collect();
        assert_eq!(
            moments,
            [vec![Moment::Request, Moment::Force], vec![], vec![Moment::Switch(1)]]
        );
        assert_eq!(timeline.max_level(), 2);
    }
}
