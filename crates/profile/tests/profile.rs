// SPDX-License-Identifier: MIT OR Apache-2.0
//! The profiler against a core whose periods are known: what it says is what was so.

use std::convert::Infallible;

use profile::{AtLevel, Load, Profile, Seen, Settings, profile};

const THROTTLE_NS: u64 = 9_000;
const HALT_NS: u64 = 10_000;
const RELAX_NS: u64 = 670_000;

/// One core that executes wide code for a while, then scalar code, again and again.
struct Periodic {
    level: u8,
    wide_ns: u64,
    period_ns: u64,
    now_ns: u64,
    end_ns: u64,
    /// Something else keeps this level up.
    other: u8,
    pauses: u32,
}

impl Periodic {
    fn new(level: u8, wide_ns: u64, period_ns: u64) -> Self {
        Periodic { level, wide_ns, period_ns, now_ns: 0, end_ns: u64::MAX, other: 0, pauses: 0 }
    }

    fn asks(&self) -> bool {
        self.now_ns % self.period_ns < self.wide_ns
    }

    /// Within the wide code or the hold behind it; the grant's delay is left out.
    fn level(&self) -> u8 {
        let held = self.now_ns % self.period_ns < self.wide_ns + RELAX_NS;
        if held { self.level } else { self.other }
    }
}

impl Load for Periodic {
    type Error = Infallible;

    fn run(&mut self, time_ns: u64) -> Result<bool, Infallible> {
        self.now_ns += time_ns;
        Ok(self.now_ns < self.end_ns)
    }

    fn levels(&mut self) -> Result<Vec<Option<u8>>, Infallible> {
        Ok(vec![Some(self.level()), None])
    }

    fn pause(&mut self, pause_ns: u64, watch_ns: u64) -> Result<Vec<Seen>, Infallible> {
        assert!(pause_ns > RELAX_NS + HALT_NS && watch_ns >= THROTTLE_NS + HALT_NS);
        self.pauses += 1;
        let back = if self.asks() { self.level } else { self.other };
        self.now_ns += watch_ns;
        Ok(vec![Seen { paused: self.other, back }, Seen { paused: 0, back: 0 }])
    }
}

fn sampled(load: &mut Periodic) -> Profile {
    let settings = Settings { samples: 4_000, ..Settings::new(THROTTLE_NS, HALT_NS, RELAX_NS) };
    profile(load, &settings).unwrap_or_else(|never| match never {})
}

/// Shares come out to two points, for periods that are far from, near to and multiples of the
/// interval, and the true share is within the interval that is given.
#[test]
fn shares_are_those_of_time() {
    for (wide_ns, period_ns) in
        [(100_000, 1_000_000), (300_000, 2_000_000), (1_000_000, 4_000_000), (20_000, 7_300_000)]
    {
        let profile = sampled(&mut Periodic::new(2, wide_ns, period_ns));
        let reduced_ns = (wide_ns + RELAX_NS).min(period_ns) as f64;
        let reduced_frac = profile.reduced_frac().unwrap();
        assert!((reduced_frac - reduced_ns / period_ns as f64).abs() < 0.02, "{profile:?}");
        let avoidable = 1.0 - wide_ns as f64 / reduced_ns;
        let at = profile.levels[2];
        assert!((at.avoidable_frac().unwrap() - avoidable).abs() < 0.03, "{profile:?}");
        let (least, most) = at.interval_frac().unwrap();
        assert!(least < avoidable && avoidable < most, "{profile:?}");
    }
}

/// Code that never stops needs its level, all of it; and who is never at a reduced level is not
/// paused.
#[test]
fn the_ends_of_the_scale() {
    let profile = sampled(&mut Periodic::new(1, 1_000_000, 1_000_000));
    assert_eq!(profile.reduced().avoidable_frac(), Some(0.0));
    assert_eq!(profile.reduced_frac(), Some(1.0));
    let mut scalar = Periodic::new(0, 0, 1_000_000);
    let profile = sampled(&mut scalar);
    assert_eq!((profile.reduced(), scalar.pauses), (AtLevel::default(), 0));
    assert_eq!(profile.reduced_frac(), Some(0.0));
    assert_eq!(profile.reduced().interval_frac(), None);
}

/// A level that something else keeps up through the pause is neither needed nor avoidable.
#[test]
fn a_level_that_stays_is_not_judged() {
    let mut load = Periodic::new(2, 100_000, 1_000_000);
    load.other = 1;
    let profile = sampled(&mut load);
    let reduced = profile.reduced();
    assert_eq!((reduced.seen, reduced.held), (profile.busy, profile.busy));
    assert_eq!(reduced.avoidable_frac(), None);
}

/// A load that ends is profiled until then.
#[test]
fn a_load_may_end() {
    let mut load = Periodic::new(2, 100_000, 1_000_000);
    load.end_ns = 100_000_000;
    let profile = sampled(&mut load);
    assert!((40..60).contains(&profile.samples), "{profile:?}");
}
