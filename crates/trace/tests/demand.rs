// SPDX-License-Identifier: MIT OR Apache-2.0
//! Demand out of recorded levels: what `cpumodel::CoreLicense` makes of random demands is recorded
//! as a recorder would, and the demand that is found must lead to the same levels again.

use cpumodel::{CoreLicense, Phase, Times};
use proptest::prelude::*;
use report::timeline::Demand as Told;
use trace::demand::{Bound, Demand, levels_of, of_levels};
use trace::event::{Event, What, Why};
use trace::follow::Follower;
use trace::levels::{Levels, Stretch};
use trace::timeline::{Export, Hardware, Of, Timeline};
use trace::{Info, MarkInfo};

const KHZ: [u32; 3] = [2_000_000, 1_500_000, 1_000_000];
const TIMES: Times = Times { throttle_ns: 9_000, halt_ns: 10_000, relax_ns: 670_000 };
const GRANT_NS: u64 = TIMES.throttle_ns + TIMES.halt_ns;

/// What a CPU does for a while: code of a level, or nothing.
#[derive(Clone, Copy, Debug)]
struct Part {
    level: Option<u8>,
    ns: u64,
}

fn code(level: u8, ns: u64) -> Part {
    Part { level: Some(level), ns }
}

fn idle(ns: u64) -> Part {
    Part { level: None, ns }
}

/// Begins, ends and levels of times; halted: no level.
type Times3 = Vec<(u64, u64, Option<u8>)>;

/// The licence's course, phase by phase, while this is asked for.
fn licence(parts: &[Part]) -> Times3 {
    let (mut license, mut now_ns, mut course) = (CoreLicense::default(), 0, Vec::new());
    for part in parts {
        license.set_demand(part.level.unwrap_or(0), now_ns, &TIMES);
        let end_ns = now_ns + part.ns;
        while now_ns < end_ns {
            let until_ns = license.deadline_ns().min(end_ns);
            let level = (license.phase() != Phase::Halted).then_some(license.level());
            course.push((now_ns, until_ns, level));
            now_ns = until_ns;
            if license.deadline_ns() == now_ns {
                license.expire(now_ns, &TIMES);
            }
        }
    }
    course
}

const TASK: u32 = 7;

/// What a recorder of the CPU writes that looks so often: switches, and cycles by level.
fn recorded(parts: &[Part], look_ns: u64) -> Vec<Event> {
    let course = licence(parts);
    let mut events = Vec::new();
    let mut push = |at_ns, tid, what| events.push(Event { at_ns, cpu: 0, tid, what });
    let switch =
        |next| What::Switch { next, why: Why::Sleeps, bound: false, lane: None, next_lane: None };
    let (mut now_ns, mut runs) = (0, false);
    for part in parts {
        let end_ns = now_ns + part.ns;
        if part.level.is_some() != runs {
            runs = !runs;
            let (from, to) = if runs { (0, TASK) } else { (TASK, 0) };
            push(now_ns, from, switch(to));
        }
        while now_ns < end_ns {
            let look_end_ns = end_ns.min(now_ns - now_ns % look_ns + look_ns);
            for level in 0..3u8 {
                let cycles = |&(from, to, at): &(u64, u64, Option<u8>)| {
                    let ns = to.min(look_end_ns).saturating_sub(from.max(now_ns));
                    if at == Some(level) { ns * u64::from(KHZ[usize::from(level)]) } else { 0 }
                };
                let sum: u64 = course.iter().map(cycles).sum::<u64>() / 1_000_000;
                if runs && sum > 0 {
                    push(
                        look_end_ns,
                        TASK,
                        What::LevelCycles { license_level: level, cycles: sum },
                    );
                }
            }
            now_ns = look_end_ns;
        }
    }
    if runs {
        push(now_ns, TASK, switch(0));
    }
    events
}

fn stretches(events: &[Event]) -> Vec<Stretch> {
    let mut levels = Levels::default();
    events.iter().for_each(|event| levels.take(event));
    levels.stretches(0, &KHZ)
}

/// The level at a time; halts are at the level before them.
fn at(levels: &[Demand], at_ns: u64) -> u8 {
    let level = levels.iter().find(|level| (level.start_ns..level.end_ns).contains(&at_ns));
    level.map_or(0, |level| level.level)
}

/// Time in stretches that are not at the level that the demand leads to.
fn wrong_ns(stretches: &[Stretch], demand: &[Demand]) -> u64 {
    let levels = levels_of(demand, &TIMES);
    let mut bounds: Vec<u64> = levels.iter().flat_map(|l| [l.start_ns, l.end_ns]).collect();
    bounds.sort_unstable();
    let wrong = |stretch: &Stretch| {
        let (start_ns, end_ns) = (stretch.start_ns, stretch.end_ns);
        let mut cuts = vec![start_ns];
        cuts.extend(bounds.iter().copied().filter(|bound| (start_ns + 1..end_ns).contains(bound)));
        cuts.push(end_ns);
        let piece =
            |cut: &[u64]| if at(&levels, cut[0]) == stretch.level { 0 } else { cut[1] - cut[0] };
        cuts.windows(2).map(piece).sum::<u64>()
    };
    stretches.iter().map(wrong).sum()
}

fn parts() -> impl Strategy<Value = Vec<Part>> {
    let wide = (1u8..3, 30_000u64..3_000_000).prop_map(|(level, ns)| code(level, ns));
    let scalar = (30_000u64..3_000_000).prop_map(|ns| code(0, ns));
    let nothing = (30_000u64..3_000_000).prop_map(idle);
    // It begins and ends with something that runs at level 0.
    prop::collection::vec(prop_oneof![2 => wide, 3 => scalar, 1 => nothing], 1..20).prop_map(
        |mut parts| {
            parts.insert(0, code(0, 100_000));
            parts.push(code(0, 3_000_000));
            parts
        },
    )
}

/// One burst: it is found to the nanosecond that its levels' cycles tell, without the hold behind
/// it.
#[test]
fn a_burst_loses_its_hold() {
    let parts = [code(0, 500_000), code(2, 400_000), code(0, 2_000_000)];
    let stretches = stretches(&recorded(&parts, 1_000_000));
    for bound in [Bound::Least, Bound::Most] {
        let [found] = of_levels(&stretches, &TIMES, bound)[..] else { panic!("{stretches:?}") };
        assert_eq!(found.level, 2);
        // The halts have no cycles, and so no place within a look.
        assert!(found.start_ns.abs_diff(500_000) <= 2 * GRANT_NS, "{found:?}");
        assert!(found.end_ns.abs_diff(900_000) <= 2 * GRANT_NS, "{found:?}");
    }
}

/// Behind a burst that ends with idle time nobody saw the level fall: it may have been the last
/// instructions, or the first, that asked for it; and if the CPU is soon back at level 0, they were
/// not the last.
#[test]
fn an_unseen_release_is_a_range() {
    let long = [code(0, 100_000), code(2, 900_000), idle(2_000_000), code(0, 100_000)];
    let short =
        [code(0, 100_000), code(2, 300_000), code(0, 600_000), idle(200_000), code(0, 100_000)];
    for (parts, least_ns, most_ns) in
        [(&long[..], 230_000, 900_000), (&short[..], 230_000, 430_000)]
    {
        let stretches = stretches(&recorded(parts, 10_000));
        let ns = |bound| {
            of_levels(&stretches, &TIMES, bound).iter().map(|d| d.end_ns - d.start_ns).sum()
        };
        let (least, most): (u64, u64) = (ns(Bound::Least), ns(Bound::Most));
        assert!(least.abs_diff(least_ns) <= 2 * GRANT_NS, "{least}, {least_ns}");
        assert!(most.abs_diff(most_ns) <= 2 * GRANT_NS, "{most}, {most_ns}");
    }
}

/// A task that finds a level which others had asked for, and that is over before a hold has passed,
/// asked for nothing; if it stays for longer, the task did.
#[test]
fn what_others_left_is_not_asked_for() {
    let at = |from_us: u64, to_us: u64, level| Stretch {
        start_ns: from_us * 1_000,
        end_ns: to_us * 1_000,
        level,
        cycles: 1.0,
    };
    let asked = |until_us: u64| {
        let stretches =
            [at(0, 500, 0), at(9_000, 9_000 + until_us, 2), at(9_000 + until_us, 20_000, 0)];
        let [least, most] = [Bound::Least, Bound::Most].map(|b| of_levels(&stretches, &TIMES, b));
        assert_eq!(least, most);
        least.iter().map(|demand| demand.end_ns - demand.start_ns).sum::<u64>()
    };
    assert_eq!((asked(300), asked(670), asked(1_670)), (0, 0, 1_000_000));
}

/// A timeline of a recording with levels: work is the counted cycles, and what is told of it adds
/// up; marks go before levels, and what they explain is told.
#[test]
fn a_timeline_has_the_demand() {
    let parts =
        [code(0, 500_000), code(2, 900_000), code(0, 2_000_000), idle(50_000), code(0, 10_000)];
    let mut events = recorded(&parts, 100_000);
    let export = |info: &Info, events: &[Event]| {
        let hardware = Hardware { clock_khz: KHZ.to_vec(), times: TIMES };
        let mut timeline = Timeline::new(Of::Cpu(0), hardware);
        let mut follower = Follower::new(info);
        events.iter().for_each(|event| follower.take(event, &mut timeline));
        timeline.export()
    };
    let mut info = Info { everybody: true, ..Info::default() };
    let Export { periods, demand, .. } = export(&info, &events);
    let levels: Vec<u8> = periods.iter().map(|period| period.level).collect();
    assert_eq!(levels, [0, 2, 0, 0, 0], "{periods:?}");
    let counted: u64 = events
        .iter()
        .map(|event| match event.what {
            What::LevelCycles { cycles, .. } => cycles,
            _ => 0,
        })
        .sum();
    let cycles: u64 = periods.iter().filter_map(|period| period.cycles).sum();
    assert!(cycles.abs_diff(counted) < 5, "{cycles}, {counted}");
    let Some(Told::Levels { raised_ns, least_ns, most_ns, hold_ns, most }) = demand else {
        panic!("{demand:?}")
    };
    assert_eq!((hold_ns, most), (TIMES.relax_ns, false));
    assert!(raised_ns.abs_diff(900_000 + hold_ns - GRANT_NS) <= 2 * GRANT_NS, "{demand:?}");
    assert!(least_ns == most_ns && least_ns.abs_diff(900_000) <= 2 * GRANT_NS, "{demand:?}");

    // The same code marked, and half of it.
    info.marks = vec![MarkInfo { level: 2, name: "f".into() }];
    for (until_ns, part) in [(1_400_000, 1.0), (900_000, 1_070_000.0 / 1_551_000.0)] {
        let mark = |at_ns, what| Event { at_ns, cpu: 0, tid: TASK, what };
        let begin = mark(500_000, What::Mark { mark: 0 });
        let end = mark(until_ns, What::MarkReturn { mark: 0 });
        let mut marked = events.clone();
        marked.extend([begin, end]);
        marked.sort_by_key(|event| event.at_ns);
        let demand = export(&info, &marked).demand;
        let Some(Told::Marks { wide_ns, raised_ns, explained_ns, unmet_ns, .. }) = demand else {
            panic!("{demand:?}")
        };
        assert_eq!(wide_ns, until_ns - 500_000);
        let explained = explained_ns as f64 / raised_ns as f64;
        assert!((explained - part).abs() < 0.04, "{explained}, {part}");
        assert!(unmet_ns <= 2 * GRANT_NS, "{demand:?}");
    }

    // Marked, and never at a level.
    events.iter_mut().for_each(|event| {
        if let What::LevelCycles { license_level, .. } = &mut event.what {
            *license_level = 0;
        }
    });
    events.push(Event { at_ns: 3_460_000, cpu: 0, tid: TASK, what: What::Mark { mark: 0 } });
    events.sort_by_key(|event| event.at_ns);
    events.insert(1, Event { at_ns: 500_000, cpu: 0, tid: TASK, what: What::Mark { mark: 0 } });
    events.sort_by_key(|event| event.at_ns);
    let demand = export(&info, &events).demand;
    let Some(Told::Marks { raised_ns: 0, unmet_ns, .. }) = demand else { panic!("{demand:?}") };
    assert!(unmet_ns > 2_000_000, "{demand:?}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    /// The round trip: the demand that is found leads to the recorded levels again, under either
    /// bound; wrong for at most a look and a grant at each change.
    #[test]
    fn demand_leads_to_its_levels(
        parts in parts(),
        look_ns in prop::sample::select(vec![5_000u64, 50_000, 300_000]),
    ) {
        let stretches = stretches(&recorded(&parts, look_ns));
        let licence = licence(&parts);
        let changes = licence.windows(2).filter(|pair| pair[0].2 != pair[1].2).count() as u64;
        for bound in [Bound::Least, Bound::Most] {
            let demand = of_levels(&stretches, &TIMES, bound);
            let wrong = wrong_ns(&stretches, &demand);
            let most = changes * (look_ns + GRANT_NS);
            prop_assert!(wrong <= most, "{:?}: {} in {} changes", bound, wrong, changes);
        }
    }

    /// The truth lies between the bounds, if what cannot be seen is left out: gaps that are shorter
    /// than the hold are demand.
    #[test]
    fn the_bounds_hold_the_truth(parts in parts()) {
        let look_ns = 5_000;
        let stretches = stretches(&recorded(&parts, look_ns));
        let mut asked: Vec<(u64, u64)> = Vec::new();
        let (mut now_ns, mut codes) = (0, 0);
        for part in &parts {
            let end_ns = now_ns + part.ns;
            if part.level.is_some_and(|level| level > 0) {
                codes += 1;
                match asked.last_mut() {
                    Some(last) if now_ns < last.1 + TIMES.relax_ns => last.1 = end_ns,
                    _ => asked.push((now_ns, end_ns)),
                }
            }
            now_ns = end_ns;
        }
        let truth: u64 = asked.iter().map(|(from, to)| to - from).sum();
        let ns = |bound| -> u64 {
            of_levels(&stretches, &TIMES, bound).iter().map(|d| d.end_ns - d.start_ns).sum()
        };
        let slack = codes * 2 * (look_ns + GRANT_NS);
        let (least, most) = (ns(Bound::Least), ns(Bound::Most));
        prop_assert!(least <= truth + slack, "{} > {}", least, truth);
        prop_assert!(most + slack >= truth, "{} < {}", most, truth);
    }
}
