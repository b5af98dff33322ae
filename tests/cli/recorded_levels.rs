// SPDX-License-Identifier: MIT OR Apache-2.0
//! A recording of licence levels is replayed, and the truth is known: a core's code is replayed on
//! a model of the hardware, a recorder of its counters is played beside, and what `turbolane trace
//! --timeline` makes of that must be worth as much under other policies as the code itself.

use std::path::Path;

use cpumodel::{CpuModel, Phase, Platform};
use dvfs::policy::{Fixed, Policy, Raise, View};
use dvfs::{Core, Moment, Timeline, Watch, Work, replay};
use report::timeline::{Demand, Header, Period};
use serde_json::Value;
use trace::{Event, Info, MarkInfo, Name, What, Why, Writer};

use crate::turbolane;

const MACHINE: &str = "xeon-gold-6130";
const LOOK_NS: u64 = 1_000_000;
const TURNS: u64 = 80;
const CIPHER: u32 = 71;
const PAGES: u32 = 72;

fn core() -> Core {
    let platform = Platform::new(&CpuModel::built_in(MACHINE).unwrap().unwrap());
    Core::new(&platform, platform.nr_cores)
}

/// One task encrypts, for a few milliseconds, then another one does scalar work; at times nobody
/// does anything.
fn truth() -> Vec<Period> {
    let mut periods = Vec::new();
    for turn in 0..TURNS {
        let (wide, scalar) =
            (4_000_000 + turn * 7919 % 4_000_000, 3_000_000 + turn * 104_729 % 6_000_000);
        let code = |level, cycles, moments: &[_]| Period {
            level,
            cycles: Some(cycles),
            moments: moments.to_vec(),
            ..Period::default()
        };
        periods.push(code(2, wide, &[report::timeline::Moment::Switch(2)]));
        periods.push(code(0, scalar, &[report::timeline::Moment::Switch(0)]));
        if turn % 5 == 4 {
            periods.push(Period { idle_ns: Some(900_000 + turn * 10_000), ..Period::default() });
        }
    }
    periods
}

/// The hardware's policy; notes when which period begins.
struct Hardware {
    policy: Fixed,
    begun: Vec<(u64, usize)>,
}

impl Policy for Hardware {
    fn wait(&mut self, view: &View<'_>) -> Option<Raise> {
        self.policy.wait(view)
    }

    fn told(&mut self, moment: Moment, view: &View<'_>) {
        let Moment::DelayNs(period) = moment else { panic!("{moment:?} is none of ours") };
        self.begun.push((view.now_ns, period as usize));
    }
}

/// Notes the licence's course: since when at which level; halted at none.
#[derive(Default)]
struct Course(Vec<(u64, Option<u8>)>);

impl Watch for Course {
    fn changed(&mut self, now_ns: u64, phase: Phase, level: u8) {
        self.0.push((now_ns, (phase != Phase::Halted).then_some(level)));
    }
}

/// What a recorder writes while a core executes this.
fn recorded(core: &Core, periods: &[Period]) -> (Vec<Event>, u64) {
    let mut timeline = Timeline::default();
    for (number, period) in periods.iter().enumerate() {
        let work = match (period.cycles, period.idle_ns) {
            (Some(cycles), _) => Work::Code { level: period.level, cycles, sensitive_frac: 1.0 },
            (None, idle_ns) => Work::Idle { time_ns: idle_ns.unwrap() },
        };
        timeline.push(work, &[Moment::DelayNs(number as u64)]);
    }
    let mut hardware =
        Hardware { policy: Fixed { timeout_ns: core.times.relax_ns }, begun: vec![] };
    let mut course = Course(vec![(0, Some(0))]);
    let end_ns = replay(core, &[&timeline], &mut hardware, &mut course).time_ns;
    let who = |period: &Period| match (period.cycles, period.level) {
        (None, _) => 0,
        (_, 0) => PAGES,
        _ => CIPHER,
    };
    let mut events = Vec::new();
    for (tid, name) in [(CIPHER, "cipher"), (PAGES, "pages")] {
        let name = What::Name { tgid: tid, name: Name::new(name.as_bytes()) };
        events.push(Event { at_ns: 0, cpu: 0, tid, what: name });
    }
    let mut last = 0;
    for (at, &(start_ns, number)) in hardware.begun.iter().enumerate() {
        let until_ns = hardware.begun.get(at + 1).map_or(end_ns, |next| next.0);
        let tid = who(&periods[number]);
        let why = Why::Preempted;
        let switch = What::Switch { next: tid, why, bound: false, lane: None, next_lane: None };
        events.push(Event { at_ns: start_ns, cpu: 0, tid: last, what: switch });
        last = tid;
        let mut since_ns = start_ns;
        while tid != 0 && since_ns < until_ns {
            let look_ns = until_ns.min(since_ns - since_ns % LOOK_NS + LOOK_NS);
            for license_level in 0..3 {
                let cycles = cycles(core, &course.0, license_level, since_ns, look_ns);
                let what = What::LevelCycles { license_level, cycles };
                events.extend((cycles > 0).then_some(Event { at_ns: look_ns, cpu: 0, tid, what }));
            }
            since_ns = look_ns;
        }
    }
    (events, end_ns)
}

/// Cycles at a level in a time.
fn cycles(core: &Core, course: &[(u64, Option<u8>)], level: u8, from_ns: u64, to_ns: u64) -> u64 {
    let ends = course.iter().skip(1).map(|change| change.0).chain([u64::MAX]);
    let there = course.iter().zip(ends).filter(|((_, at), _)| *at == Some(level));
    let ns: u64 =
        there.map(|((since, _), end)| end.min(to_ns).saturating_sub(from_ns.max(*since))).sum();
    (ns as f64 * core.cycles_per_ns(level)) as u64
}

fn write(path: &Path, info: &Info, events: &[Event], end_ns: u64) {
    let mut writer = Writer::new(Vec::new(), info).unwrap();
    events.iter().for_each(|event| writer.push(event).unwrap());
    std::fs::write(path, writer.finish(end_ns).unwrap().0).unwrap();
}

fn info() -> Info {
    Info {
        everybody: true,
        cpus: "0".into(),
        target: "the whole machine".into(),
        ..Info::default()
    }
}

/// Exports CPU 0 of the recording; what is told, and the timeline's header.
fn exported(recording: &Path, timeline: &Path, more: &[&str]) -> (String, Header) {
    let mut export = turbolane();
    export.arg("trace").arg(recording).args(["--cpu", "0", "--machine", MACHINE, "--timeline"]);
    let output = export.arg(timeline).args(more).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let text = std::fs::read_to_string(timeline).unwrap();
    let header = report::timeline::read(&text).unwrap().0;
    // however wide the terminal is
    let told = String::from_utf8(output.stdout).unwrap();
    (told.split_whitespace().collect::<Vec<_>>().join(" "), header)
}

const POLICIES: &str = "hardware,break-even,fixed:180us,switches,oracle";

/// The replay's document, and percent gained by each policy.
fn replayed(timeline: &Path) -> (Value, Vec<f64>) {
    let mut sim = turbolane();
    let output = sim.args(["sim", "--json", "--dvfs", POLICIES, "--replay"]).arg(timeline).output();
    let output = output.unwrap();
    assert!(output.status.success(), "{output:?}");
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    let runs = document["runs"].as_array().unwrap();
    let gains = runs.iter().map(|run| run["gain_pct"].as_f64().unwrap()).collect();
    (document, gains)
}

/// Levels alone tell what was asked for: policies gain as much as on the code itself, and the whole
/// takes as long. Taken as demand with the holds in it, a replay has them twice and takes longer.
#[test]
fn levels_are_worth_their_demand() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let (events, end_ns) = recorded(&core(), &truth());
    write(&at("levels.trace"), &info(), &events, end_ns);
    let header = Header {
        schema: report::SCHEMA,
        timeline: "truth".into(),
        about: "what the code is".into(),
        machine: MACHINE.into(),
        active_cores: None,
        work: "turn".into(),
        recorded: false,
        demand: None,
    };
    std::fs::write(at("truth"), report::timeline::write(&header, truth().into_iter())).unwrap();
    let (true_document, true_gains) = replayed(&at("truth"));
    let (told, header) = exported(&at("levels.trace"), &at("levels"), &[]);
    assert!(
        told.contains("excluding the hold time of 670us after each demand; the least is replayed"),
        "{told}"
    );
    let Some(Demand::Levels { raised_ns, least_ns, most_ns, .. }) = header.demand else {
        panic!("{header:?}")
    };
    assert!(least_ns <= most_ns && most_ns < raised_ns, "{header:?}");
    let (document, gains) = replayed(&at("levels"));
    assert_eq!(document["demand"][0]["from"], "levels");
    let time = |document: &Value| document["runs"][0]["time_ns"].as_f64().unwrap();
    let longer = time(&document) / time(&true_document);
    assert!((longer - 1.0).abs() < 0.005, "{longer}");
    for at in 1..gains.len() {
        let (gain, wanted) = (gains[at], true_gains[at]);
        assert!(wanted > 1.0 && (gain / wanted - 1.0).abs() < 0.05, "{gains:?}, {true_gains:?}");
    }
    // As often as in the truth, and by scores that nobody told it.
    let switches = format!("switches: {} between tasks", 2 * TURNS - 1);
    assert!(told.contains(&switches) && told.contains("cipher 71 2.00, pages 72 0.00"), "{told}");
    let (_, header) = exported(&at("levels.trace"), &at("held"), &["--hold", "0ns"]);
    let Some(Demand::Levels { raised_ns, least_ns, .. }) = header.demand else {
        panic!("{header:?}")
    };
    // And the grants before it.
    assert!((1.0..1.01).contains(&(least_ns as f64 / raised_ns as f64)), "{header:?}");
    let longer = time(&replayed(&at("held")).0) / time(&true_document);
    assert!(longer > 1.02, "{longer}");
}

/// Marks go before levels, which are a check: they explain all of it, or say how much is wide and
/// not marked.
#[test]
fn marks_are_checked_by_levels() {
    let dir = tempfile::tempdir().unwrap();
    let recording = dir.path().join("marked.trace");
    let (events, end_ns) = recorded(&core(), &truth());
    for (every, explained) in [(1, 0.99..=1.0), (2, 0.45..=0.55)] {
        let mut marked = Vec::new();
        let mut turn = 0;
        for event in &events {
            let mark = |tid, what| Event { tid, what, ..event.clone() };
            let switch = match event.what {
                What::Switch { next, .. } => Some(next),
                _ => None,
            };
            if switch.is_some() && event.tid == CIPHER && turn % every == 0 {
                marked.push(mark(CIPHER, What::MarkReturn { mark: 0 }));
            }
            marked.push(event.clone());
            if switch == Some(CIPHER) {
                turn += 1;
                marked.extend((turn % every == 0).then(|| mark(CIPHER, What::Mark { mark: 0 })));
            }
        }
        let marks = vec![MarkInfo { level: 2, name: "libcipher.so:encrypt".into() }];
        write(&recording, &Info { marks, ..info() }, &marked, end_ns);
        let (told, header) = exported(&recording, &dir.path().join("marked"), &[]);
        let Some(Demand::Marks { raised_ns, explained_ns, .. }) = header.demand else {
            panic!("{told}")
        };
        let share = explained_ns as f64 / raised_ns as f64;
        assert!(explained.contains(&share), "{share}: {told}");
        assert!(told.contains("by the marks"), "{told}");
    }
}

/// Marks alone: scores are those of the levels that the marks lead to, and the policy of switches,
/// which is in the table without being asked for, wins what there is to win.
#[test]
fn scores_come_from_marks_alone() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let (events, _) = recorded(&core(), &truth());
    let end_ns = events.last().unwrap().at_ns;
    let mut marked = vec![Event { at_ns: 0, cpu: 0, tid: CIPHER, what: What::Mark { mark: 0 } }];
    let counted = |event: &&Event| matches!(event.what, What::LevelCycles { .. });
    marked.extend(events.iter().filter(|event| !counted(event)).cloned());
    let marks = vec![MarkInfo { level: 2, name: "libcipher.so:encrypt".into() }];
    write(&at("marks.trace"), &Info { marks, ..info() }, &marked, end_ns);
    let (told, header) = exported(&at("marks.trace"), &at("marks"), &[]);
    assert_eq!(header.demand, None);
    assert!(told.contains("cipher 71 2.00, pages 72 0.00"), "{told}");
    let mut sim = turbolane();
    let output = sim.args(["sim", "--json", "--replay"]).arg(at("marks")).output().unwrap();
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    let runs = document["runs"].as_array().unwrap();
    let gain = |policy: &str| {
        runs.iter().find(|run| run["policy"] == policy).unwrap()["gain_pct"].as_f64().unwrap()
    };
    assert!(runs.iter().all(|run| run["policy"] != "hints"), "it has none");
    // Each switch to scalar work ends a hold: nobody who looks ahead does better.
    assert!(
        gain("switches") > gain("break-even") && gain("oracle") - gain("switches") < 0.05,
        "{runs:?}"
    );
}
