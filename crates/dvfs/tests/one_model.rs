// SPDX-License-Identifier: MIT OR Apache-2.0
//! There is one model of a licence: a replay under the hardware's fixed timeout does what
//! `cpumodel::CoreLicense` does by itself, phase by phase, and what a burst measurably takes. Under
//! hints it does what the licence does when they come to it as settings and forced changes (DIM
//! 7.1).

use std::cell::RefCell;
use std::rc::Rc;

use cpumodel::{CoreLicense, CpuModel, Phase, Platform};
use dvfs::policy::{Fixed, Heeds, Hints, Policy, Raise, View};
use dvfs::{Core, Moment, Spec, Timeline, Watch, Work, replay};
use proptest::prelude::*;

fn core(id: &str, active: usize) -> Core {
    Core::new(&Platform::new(&CpuModel::built_in(id).unwrap().unwrap()), active)
}

/// What happened, in order.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Seen {
    Demands(u64, u8),
    Changed(u64, Phase, u8),
    Told(u64, Moment),
}

/// Shared by the watch and the policy, so that their entries are in one order.
#[derive(Clone, Default)]
struct Log(Rc<RefCell<Vec<Seen>>>);

impl Log {
    fn seen(&self) -> Vec<Seen> {
        self.0.borrow().clone()
    }
}

impl Watch for Log {
    fn demands(&mut self, now_ns: u64, demand: u8) {
        self.0.borrow_mut().push(Seen::Demands(now_ns, demand));
    }

    fn changed(&mut self, now_ns: u64, phase: Phase, level: u8) {
        self.0.borrow_mut().push(Seen::Changed(now_ns, phase, level));
    }
}

/// Hints that are written down.
struct Noted(Hints, Log);

impl Policy for Noted {
    fn wait(&mut self, view: &View<'_>) -> Option<Raise> {
        self.0.wait(view)
    }

    fn told(&mut self, moment: Moment, view: &View<'_>) {
        self.1.0.borrow_mut().push(Seen::Told(view.now_ns, moment));
        self.0.told(moment, view);
    }

    fn risen(&mut self) {
        self.0.risen();
    }
}

/// The licence by itself, given the same demands at the same times, and what is heeded of what was
/// told.
fn alone(core: &Core, log: &[Seen], end_ns: u64, hold_ns: u64, heeds: Heeds) -> Vec<Seen> {
    let mut license = CoreLicense::default();
    license.set_delay(Some(hold_ns), 0, &core.times);
    let mut seen = Vec::new();
    let until = |license: &mut CoreLicense, seen: &mut Vec<Seen>, at_ns: u64| {
        while license.deadline_ns() <= at_ns {
            let now_ns = license.deadline_ns();
            if license.expire(now_ns, &core.times) {
                seen.push(Seen::Changed(now_ns, license.phase(), license.level()));
            }
        }
    };
    let mut before = None;
    for entry in log {
        match *entry {
            Seen::Demands(at_ns, demand) => {
                until(&mut license, &mut seen, at_ns);
                seen.push(*entry);
                if license.set_demand(demand, at_ns, &core.times) {
                    seen.push(Seen::Changed(at_ns, license.phase(), license.level()));
                }
            }
            Seen::Told(at_ns, moment) => {
                // Between a demand and what is told in the same breath nothing happens.
                if before != Some(at_ns) {
                    until(&mut license, &mut seen, at_ns);
                }
                let changed = tell(&mut license, core, moment, heeds, at_ns);
                if changed {
                    seen.push(Seen::Changed(at_ns, license.phase(), license.level()));
                }
            }
            Seen::Changed(..) => {}
        }
        before = match *entry {
            Seen::Demands(at_ns, _) | Seen::Told(at_ns, _) => Some(at_ns),
            Seen::Changed(..) => None,
        };
    }
    until(&mut license, &mut seen, end_ns);
    seen
}

/// A moment becomes what software writes into the registers that DIM 7.1 proposes.
fn tell(license: &mut CoreLicense, core: &Core, moment: Moment, heeds: Heeds, at_ns: u64) -> bool {
    match (moment, heeds) {
        (Moment::Force, Heeds::Application) => license.force(0, at_ns, &core.times),
        (Moment::Switch(level), Heeds::Switches) => license.force(level, at_ns, &core.times),
        (Moment::DelayNs(hold_ns), Heeds::Application) => {
            license.set_delay(Some(hold_ns), at_ns, &core.times);
            false
        }
        _ => false,
    }
}

fn timeline(periods: &[(u8, u64, bool)]) -> Timeline {
    let mut timeline = Timeline::default();
    for &(level, amount, idle) in periods {
        let work = match idle {
            true => Work::Idle { time_ns: amount },
            false => Work::Code { level, cycles: amount, sensitive_frac: 1.0 },
        };
        timeline.push(work, &[Moment::Request]);
    }
    timeline
}

/// The changes of a log.
fn changes(log: &[Seen]) -> Vec<(u64, Phase, u8)> {
    let change = |seen: &Seen| match *seen {
        Seen::Changed(at_ns, phase, level) => Some((at_ns, phase, level)),
        _ => None,
    };
    log.iter().filter_map(change).collect()
}

/// One dense burst of 100 us of work on the 6130 with all cores: 9.3 us throttled, twice 10 us
/// halted, and the scalar code behind it runs at 1.9 GHz for 670 us, then stands still for 10 us
/// more.
#[test]
fn one_burst_takes_its_course() {
    let core = core("xeon-gold-6130", 16);
    let mut timeline = Timeline::default();
    timeline.push_code(2, 190_000);
    timeline.push_code(0, 10_000_000);
    let out = Spec::Fixed(670_000).run(&core, &[&timeline], 0).unwrap();
    // throttled: 9.3 us at a quarter of 2.8 GHz are 6,510 cycles; the rest at 1.9 GHz
    let burst_ns = 9_300.0 + 20_000.0 + (190_000.0 - 6_510.0) / 1.9;
    let held = 670_000.0 * 1.9;
    let wanted_ns = burst_ns + 670_000.0 + 10_000.0 + (10_000_000.0 - held) / 2.8;
    assert!((out.time_ns as f64 - wanted_ns).abs() < 3.0, "{out:?} {wanted_ns}");
    assert_eq!((out.lowers, out.raises, out.halted_ns), (1, 1, 30_000));
    assert_eq!(out.level_ns[1], 0);
    // lost: what DIM 4.1 measures for each change, and the held time's share
    let lost_ns = core.round_trip_ns(0, 2) + 670_000.0 * (1.0 - 1.9 / 2.8);
    assert!((out.lost_ns() - lost_ns).abs() < 3.0, "{} {lost_ns}", out.lost_ns());
}

/// A period that ends before its licence is granted leaves a request that stands: the scalar code
/// behind it runs unthrottled, is halted, and is slow.
#[test]
fn a_request_stands() {
    let core = core("xeon-gold-6130", 16);
    let mut timeline = Timeline::default();
    timeline.push_code(2, 690);
    timeline.push_code(0, 4_000_000);
    let mut log = Log::default();
    let out = replay(&core, &[&timeline], &mut Fixed { timeout_ns: 670_000 }, &mut log);
    let changes: Vec<u64> = changes(&log.seen()).into_iter().map(|(at_ns, ..)| at_ns).collect();
    assert_eq!(changes, [0, 9_300, 29_300, 670_986, 680_986]);
    assert_eq!(out.raises, 1);
}

/// A halt hides in idle time: code that comes later loses nothing by it.
#[test]
fn a_halt_hides_in_idle_time() {
    let core = core("xeon-gold-6130", 16);
    let time = |idle: bool| {
        let mut timeline = timeline(&[(2, 1_000_000, false), (0, 700_000, idle)]);
        timeline.push_code(0, 2_800_000);
        let out = Spec::Fixed(670_000).run(&core, &[&timeline], 0).unwrap();
        out.lost_ns() - core.lower_cost_ns(0, 2)
    };
    assert!(time(true).abs() < 3.0, "{}", time(true));
    assert!(time(false) > 10_000.0);
}

/// Two siblings share the core and its level (DIM 7.2): scalar code beside wide code gets its half
/// of what the core does at the wide code's clock, is not throttled, and is halted.
#[test]
fn siblings_share_a_level() {
    let core = core("xeon-gold-6130", 16);
    let (mut scalar, mut wide) = (Timeline::default(), Timeline::default());
    scalar.push_code(0, 10_000_000);
    wide.push_code(2, 50_000_000);
    let out = Spec::Fixed(670_000).run(&core, &[&scalar, &wide], 0).unwrap();
    let half = core.smt_frac / 2.0;
    let before = 9_300.0 * 2.8 * half;
    let wanted_ns = 29_300.0 + (10_000_000.0 - before) / (1.9 * half);
    assert!((out.cpus[0].time_ns as f64 - wanted_ns).abs() < 3.0, "{out:?} {wanted_ns}");
    let lost_ns = 20_000.0 + (wanted_ns - 29_300.0) * (1.0 - 1.9 / 2.8);
    assert!((out.cpus[0].lost_ns - lost_ns).abs() < 3.0, "{out:?} {lost_ns}");
}

/// Random periods, some with something told at their begin.
fn periods_with_moments(count: std::ops::Range<usize>) -> impl Strategy<Value = Timeline> {
    let moment = prop_oneof![
        Just(Moment::Force),
        prop::sample::select(vec![0u64, 5_000, 180_000, u64::MAX]).prop_map(Moment::DelayNs),
        (0u8..3).prop_map(Moment::Switch),
    ];
    // Not two at a time: the licence would obey the first before it hears of the second.
    let moments = prop::collection::vec(moment, 0..2);
    let period = (0u8..3, 1u64..3_000_000, prop::bool::weighted(0.2), moments);
    prop::collection::vec(period, count).prop_map(|periods| {
        let mut timeline = Timeline::default();
        for (level, amount, idle, moments) in periods {
            let work = match idle {
                true => Work::Idle { time_ns: amount },
                false => Work::Code { level, cycles: amount, sensitive_frac: 1.0 },
            };
            timeline.push(work, &moments);
        }
        timeline
    })
}

proptest! {
    /// Whatever runs on one CPU or two, the phases and levels come at the licence's own times.
    #[test]
    fn the_replay_is_the_licence(
        one in prop::collection::vec((0u8..3, 1u64..3_000_000, prop::bool::weighted(0.2)), 1..40),
        two in prop::collection::vec((0u8..3, 1u64..3_000_000, prop::bool::weighted(0.2)), 0..20),
        active in 1usize..=16,
        relax_ns in prop::sample::select(vec![0u64, 1, 5_000, 670_000, 2_000_000]),
    ) {
        let mut core = core("xeon-gold-6130", active);
        core.times.relax_ns = relax_ns;
        let (one, two) = (timeline(&one), timeline(&two));
        let both = [&one, &two];
        let timelines = if two.periods().is_empty() { &both[..1] } else { &both[..] };
        let mut log = Log::default();
        let mut policy = Fixed { timeout_ns: relax_ns };
        let out = replay(&core, timelines, &mut policy, &mut log);
        // what would happen at the very end is not waited for
        let log = log.seen();
        let mut wanted = alone(&core, &log, out.time_ns, relax_ns, Heeds::Application);
        wanted.truncate(log.len());
        prop_assert_eq!(log, wanted);
    }

    /// DIM 7.1's delay and forced change do to the licence what the policy of hints does in a
    /// replay, at the same times.
    #[test]
    fn hints_are_the_licences_own(
        one in periods_with_moments(1..40),
        two in periods_with_moments(0..20),
        heeds in prop::sample::select(vec![Heeds::Application, Heeds::Switches]),
        fallback_ns in prop::sample::select(vec![0u64, 5_000, 670_000, u64::MAX]),
    ) {
        let core = core("xeon-gold-6130", 16);
        let both = [&one, &two];
        let timelines = if two.periods().is_empty() { &both[..1] } else { &both[..] };
        let log = Log::default();
        let mut policy = Noted(Hints::new(heeds, fallback_ns), log.clone());
        let out = replay(&core, timelines, &mut policy, &mut log.clone());
        let seen = log.seen();
        let mut wanted = changes(&alone(&core, &seen, out.time_ns, fallback_ns, heeds));
        let seen = changes(&seen);
        wanted.truncate(seen.len());
        prop_assert_eq!(seen, wanted);
    }
}
