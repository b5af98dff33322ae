// SPDX-License-Identifier: MIT OR Apache-2.0
//! Overhead profiling: how much of the time at a reduced clock was needed, and how much avoidable
//! (DIM 7.2.1).
//!
//! Problem: counters show how long a core was at a reduced licence level, not how long that level
//! was requested. After wide code a level is held for 670 us that no code needs; before you change
//! anything, you should know how much of it there is.
//!
//! Idea: ask the core. Now and then, where a core is at a reduced level: pause the load until the
//! core has given its level up, let it go on, and see whether the level comes back at once. If so,
//! the code of that moment asks for it. If not, the load would have run at the higher clock from
//! then on: the moment was avoidable.
//!
//! ```text
//!            sample                 go on
//!   load  ======|.....................|=========
//!   level 2 2 2 2 2 2 2 2 2 2 2 2 2 0 0 0 2 2 2     back within `watch`: needed
//!   level 2 2 2 2 2 2 2 2 2 2 2 2 2 0 0 0 0 0 0     not back: avoidable
//!               |<---- pause ---->|   |watch|
//! ```
//!
//! Samples are as frequent as the moments that they represent, so shares of samples are shares of
//! time. Where a lower level comes back, the one that was held is not needed either: avoidable.
//!
//! - `pause`: a request that was just made is granted first (throttle and halt), then the level is
//!   held for the relax time after the last wide code, then the clock is raised (halt).
//! - `watch`: a level comes back throttle and halt after the first wide instruction. Longer, and
//!   code that begins later counts as that of the moment; shorter, and a level is missed.
//! - Times between samples go by the golden ratio, from half to one and a half times the mean:
//!   never in step with a load of any period, and the same in each run.
//!
//! Limits. "Avoidable" is what a clock that follows the code at no cost would save; changes cost 10
//! to 20 us, so where it is made of short gaps little of it can be had (`turbolane sim
//! --break-even`). A pause of all CPUs is seen by peers of the load, and time-outs go on meanwhile.
//! A core that does not reach level 0 within the pause is counted separately: something else keeps
//! its level.

/// A load that can be watched and paused.
pub trait Load {
    /// Why it cannot go on.
    type Error;

    /// Goes on for so long; false if it has ended.
    fn run(&mut self, time_ns: u64) -> Result<bool, Self::Error>;

    /// The level of each core at this moment; `None` for a core that idles.
    fn levels(&mut self) -> Result<Vec<Option<u8>>, Self::Error>;

    /// Pauses for `pause_ns`, then goes on for `watch_ns`; what that was like, core by core.
    fn pause(&mut self, pause_ns: u64, watch_ns: u64) -> Result<Vec<Seen>, Self::Error>;
}

/// What became of a core's level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    /// At the end of the pause.
    pub paused: u8,
    /// The highest since the load went on.
    pub back: u8,
}

/// How to sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Mean time between two samples, while the load runs.
    pub interval_ns: u64,
    /// How many samples are taken, one of all cores each.
    pub samples: u32,
    /// How long the load is paused.
    pub pause_ns: u64,
    /// How long is watched for a level to come back.
    pub watch_ns: u64,
}

/// To read a level takes so long, and ends a pause as late: order of magnitude of a counter read on
/// each of two CPUs.
const SLACK_NS: u64 = 1_000;

impl Settings {
    /// For a machine on which the highest level is granted `throttle_ns` and `halt_ns` after the
    /// request, and held for `relax_ns`.
    pub fn new(throttle_ns: u64, halt_ns: u64, relax_ns: u64) -> Self {
        Settings {
            interval_ns: 2_000_000,
            samples: 1_000,
            pause_ns: throttle_ns + 2 * halt_ns + relax_ns + SLACK_NS,
            watch_ns: throttle_ns + halt_ns + SLACK_NS,
        }
    }
}

/// Samples of one level.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AtLevel {
    /// Cores seen at it.
    pub seen: u64,
    /// Of those: it came back at once.
    pub needed: u64,
    /// It did not, or a lower one did.
    pub avoidable: u64,
    /// The core was not at level 0 after the pause.
    pub held: u64,
}

/// What the samples say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Profile {
    /// Samples taken.
    pub samples: u64,
    /// Busy cores that they found, at any level.
    pub busy: u64,
    /// By level; the first is level 0.
    pub levels: Vec<AtLevel>,
}

impl Profile {
    /// Sums over all reduced levels.
    pub fn reduced(&self) -> AtLevel {
        let levels = self.levels.iter().skip(1);
        levels.fold(AtLevel::default(), |sum, at| AtLevel {
            seen: sum.seen + at.seen,
            needed: sum.needed + at.needed,
            avoidable: sum.avoidable + at.avoidable,
            held: sum.held + at.held,
        })
    }

    /// Part of the busy time that was at a reduced level.
    pub fn reduced_frac(&self) -> Option<f64> {
        (self.busy > 0).then(|| self.reduced().seen as f64 / self.busy as f64)
    }

    fn add(&mut self, before: u8, seen: Seen) {
        let nr = self.levels.len().max(usize::from(before) + 1);
        self.levels.resize(nr, AtLevel::default());
        let at = &mut self.levels[usize::from(before)];
        at.seen += 1;
        match (before, seen.paused) {
            (0, _) => {}
            (_, 1..) => at.held += 1,
            (_, 0) if seen.back >= before => at.needed += 1,
            (_, 0) => at.avoidable += 1,
        }
    }
}

impl AtLevel {
    /// Part of the time at this level that was avoidable; `None` if nothing was seen of it.
    pub fn avoidable_frac(&self) -> Option<f64> {
        let judged = self.needed + self.avoidable;
        (judged > 0).then(|| self.avoidable as f64 / judged as f64)
    }

    /// The interval that holds the true part in 95 of 100 cases, if samples are independent:
    /// Wilson's for a proportion, which is right for few samples and near 0 and 1, too.
    pub fn interval_frac(&self) -> Option<(f64, f64)> {
        /// Of the normal distribution, two-sided 95 %.
        const Z: f64 = 1.96;
        let p = self.avoidable_frac()?;
        let n = (self.needed + self.avoidable) as f64;
        let middle = p + Z * Z / (2.0 * n);
        let half = Z * (p * (1.0 - p) / n + Z * Z / (4.0 * n * n)).sqrt();
        let scale = 1.0 + Z * Z / n;
        Some((((middle - half) / scale).max(0.0), ((middle + half) / scale).min(1.0)))
    }
}

/// Times between samples: `mean_ns` times 0.5 + the fraction of a multiple of the golden ratio.
fn intervals_ns(mean_ns: u64) -> impl Iterator<Item = u64> {
    /// Fraction of the golden ratio.
    const GOLDEN: f64 = 0.618_033_988_749_895;
    (1u64..).map(move |i| {
        let fraction = (i as f64 * GOLDEN).fract();
        ((0.5 + fraction) * mean_ns as f64) as u64
    })
}

/// Samples a load until enough is seen, or it ends.
pub fn profile<L: Load>(load: &mut L, settings: &Settings) -> Result<Profile, L::Error> {
    let mut profile = Profile::default();
    for interval_ns in intervals_ns(settings.interval_ns).take(settings.samples as usize) {
        if !load.run(interval_ns)? {
            break;
        }
        profile.samples += 1;
        let levels = load.levels()?;
        profile.busy += levels.iter().flatten().count() as u64;
        let at_rest = Seen { paused: 0, back: 0 };
        let seen = match levels.iter().flatten().any(|&level| level > 0) {
            true => load.pause(settings.pause_ns, settings.watch_ns)?,
            // no one is at a reduced level: the load need not suffer
            false => vec![at_rest; levels.len()],
        };
        for (level, seen) in levels.iter().zip(seen) {
            if let Some(level) = level {
                profile.add(*level, seen);
            }
        }
    }
    Ok(profile)
}
