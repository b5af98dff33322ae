// SPDX-License-Identifier: MIT OR Apache-2.0
//! A recording as a trace for Perfetto and as a timeline: a task that is woken, runs, enters a
//! marked function, leaves it, sleeps and runs again on another CPU, at licence levels that are
//! counted.

use cpumodel::Times;
use report::timeline::{AMOUNT_MAX, Moment, Period};
use trace::follow::{Follower, Visit};
use trace::perfetto::Perfetto;
use trace::timeline::{Calls, Export, Hardware, Of, Timeline};
use trace::{Event, Info, MarkInfo, Name, What, Why};

fn info() -> Info {
    let marks = vec![MarkInfo { level: 2, name: "f".into() }];
    Info { everybody: true, start_ns: 1_000, marks, target: "test".into(), ..Info::default() }
}

fn events() -> Vec<Event> {
    let at = |at_ns, cpu, tid, what| Event { at_ns, cpu, tid, what };
    let switch = |next, why| What::Switch { next, why, bound: false, lane: None, next_lane: None };
    let name = What::Name { tgid: 70, name: Name::new(b"web") };
    let wake = What::Wake { waker: 0, delay_ns: 0, new: false };
    let cycles = |license_level, cycles| What::LevelCycles { license_level, cycles };
    vec![
        at(1_000, 0, 70, name),
        at(2_000, 0, 70, wake.clone()),
        at(2_500, 0, 0, switch(70, Why::Preempted)),
        at(3_000, 0, 70, What::Mark { mark: 0 }),
        at(4_000, 0, 70, cycles(0, 100)),
        at(4_000, 0, 70, cycles(2, 300)),
        at(5_000, 0, 70, What::MarkReturn { mark: 0 }),
        at(6_000, 0, 70, cycles(0, 50)),
        at(6_000, 0, 70, switch(0, Why::Sleeps)),
        at(7_000, 1, 70, What::Trap { level: 2, ip: 0 }),
        at(8_000, 1, 70, wake),
        at(8_000, 1, 0, switch(70, Why::Preempted)),
        at(9_000, 1, 70, cycles(1, 1)),
        at(9_000, 1, 70, switch(0, Why::Sleeps)),
    ]
}

fn follow(to: &mut dyn Visit) -> Follower {
    let mut follower = Follower::new(&info());
    events().iter().for_each(|event| follower.take(event, to));
    follower.finish(10_000, to);
    follower
}

/// Each run is a slice on its CPU's and its task's track, cut where the level changes; waits and
/// traps are there, levels since the look or switch before, tracks have names, times begin with the
/// recording.
#[test]
fn perfetto_has_runs_waits_and_names() {
    let mut out = Vec::new();
    let mut writer = Perfetto::new(&mut out, &info()).unwrap();
    let follower = follow(&mut writer);
    writer.finish(&info(), &follower).unwrap();
    let text = String::from_utf8(out).unwrap();
    let has = |parts: &[&str]| {
        let found = text.lines().any(|line| parts.iter().all(|part| line.contains(part)));
        assert!(found, "{parts:?} in {text}");
    };
    has(&["\"web\"", "\"pid\":0", "\"tid\":1", "\"ts\":1.5", "\"dur\":0.5", "\"scalar\""]);
    has(&["\"web\"", "\"pid\":0", "\"ts\":2.0", "\"dur\":2.0", "\"wide\"", "\"level of marks\":2"]);
    has(&["\"CPU 0\"", "\"pid\":70", "\"tid\":70", "\"ts\":2.0", "\"wide\""]);
    has(&["\"CPU 1\"", "\"pid\":70", "\"ts\":7.0", "\"dur\":1.0"]);
    has(&["\"waits\"", "was woken", "\"pid\":70", "\"ts\":1.0", "\"dur\":0.5"]);
    has(&["trap, level 2", "\"ph\":\"i\"", "\"ts\":6.0"]);
    let level = "\"licence level\":";
    has(&["\"CPU 0 licence level\"", "\"ts\":1.5", &format!("{level}1.5")]);
    has(&["\"CPU 0 licence level\"", "\"ts\":3.0", &format!("{level}0}}")]);
    has(&["\"CPU 1 licence level\"", "\"ts\":7.0", &format!("{level}1}}")]);
    has(&["process_name", "\"pid\":70", "\"web\""]);
    has(&["thread_name", "\"pid\":0", "\"CPU 1\""]);
    assert!(text.ends_with("\"target\":\"test\"}}\n"), "{text}");
    assert_eq!(text.matches('{').count(), text.matches('}').count());
}

/// Nothing is written behind the first error, and it is told at the end.
#[test]
fn a_full_disk_is_told() {
    struct Full(usize);
    impl std::io::Write for Full {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0 = self.0.checked_sub(bytes.len()).ok_or(std::io::ErrorKind::StorageFull)?;
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let mut writer = Perfetto::new(Full(300), &info()).unwrap();
    let follower = follow(&mut writer);
    let error = writer.finish(&info(), &follower).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::StorageFull);
}

fn busy(level: u8, cycles: u64) -> Period {
    Period { level, cycles: Some(cycles), ..Period::default() }
}

fn idle(ns: u64) -> Period {
    Period { idle_ns: Some(ns), ..Period::default() }
}

/// So many levels of one clock.
fn hardware(clock_khz: u32, nr_levels: usize) -> Hardware {
    let times = Times { throttle_ns: 0, halt_ns: 0, relax_ns: 670_000 };
    Hardware { clock_khz: vec![clock_khz; nr_levels], times }
}

/// Nothing counted levels.
fn periods_of(timeline: &Timeline) -> Vec<Period> {
    let Export { periods, demand, .. } = timeline.export();
    assert_eq!(demand, None);
    periods
}

/// Of a recording in which nothing counted levels.
fn periods(of: Of, level_max: usize) -> Vec<Period> {
    let mut timeline = Timeline::new(of, hardware(2_000_000, level_max + 1));
    let mut follower = Follower::new(&info());
    let counts = |event: &&Event| !matches!(event.what, What::LevelCycles { .. });
    events().iter().filter(counts).for_each(|event| follower.take(event, &mut timeline));
    follower.finish(10_000, &mut timeline);
    periods_of(&timeline)
}

/// Time is work at 2 GHz, by level, and what lies between runs is idle. A level that the machine
/// does not have is its highest.
#[test]
fn a_task_is_periods() {
    let expected = [busy(0, 1_000), busy(2, 4_000), busy(0, 2_000), idle(2_000), busy(0, 2_000)];
    assert_eq!(periods(Of::Task(70), 2), expected);
    assert_eq!(periods(Of::Task(70), 1)[1], busy(1, 4_000));
    assert_eq!(periods(Of::Task(71), 2), []);
}

/// A CPU's periods are what ran there; one begins where something ran.
#[test]
fn a_cpu_is_periods() {
    assert_eq!(periods(Of::Cpu(0), 2), [busy(0, 1_000), busy(2, 4_000), busy(0, 2_000)]);
    assert_eq!(periods(Of::Cpu(1), 2), [busy(0, 2_000)]);
}

/// What is too much for one period is several.
#[test]
fn long_times_are_several_periods() {
    let mut timeline = Timeline::new(Of::Cpu(0), hardware(1_000_000, 3));
    let mut follower = Follower::new(&info());
    let switch = |next, why| What::Switch { next, why, bound: false, lane: None, next_lane: None };
    let end_ns = 2_000 + AMOUNT_MAX + 5;
    for (at_ns, tid, next) in [(2_000, 0, 70), (end_ns, 70, 0)] {
        let event = Event { at_ns, cpu: 0, tid, what: switch(next, Why::Sleeps) };
        follower.take(&event, &mut timeline);
    }
    assert_eq!(periods_of(&timeline), [busy(0, AMOUNT_MAX), busy(0, 5)]);
}

/// A server reads until there is nothing more, works, and answers in two parts; then it looks for
/// the next request, which takes long to come, and answers that. One hint a request: behind its
/// last read, also if the work is interrupted.
#[test]
fn hints_stand_behind_the_last_read_of_a_request() {
    let mark = |level, name: &str| MarkInfo { level, name: name.into() };
    let marks = vec![mark(2, "read"), mark(2, "write")];
    let info = Info { everybody: true, start_ns: 0, marks, ..Info::default() };
    let switch = |next, why| What::Switch { next, why, bound: false, lane: None, next_lane: None };
    let (read, write) = (What::Mark { mark: 0 }, What::Mark { mark: 1 });
    let (read_ends, write_ends) = (What::MarkReturn { mark: 0 }, What::MarkReturn { mark: 1 });
    let events = [
        (100, 0, switch(7, Why::Preempted)),
        (110, 7, read.clone()),
        (120, 7, read_ends.clone()),
        (121, 7, read.clone()),
        (122, 7, read_ends.clone()),
        // the work, with somebody else in between
        (150, 7, switch(8, Why::Preempted)),
        (160, 8, switch(7, Why::Sleeps)),
        (180, 7, write.clone()),
        (190, 7, write_ends.clone()),
        (200, 7, write.clone()),
        (210, 7, write_ends.clone()),
        (211, 7, read.clone()),
        (212, 7, read_ends.clone()),
        (213, 7, read),
        (220, 7, read_ends),
        (250, 7, write),
        (260, 7, write_ends),
    ];
    let periods = |of| {
        let mut timeline =
            Timeline::new(of, hardware(1_000_000, 3)).with_hints(Calls { takes: 0, answers: 1 });
        let mut follower = Follower::new(&info);
        for (at_ns, tid, what) in events.clone() {
            follower.take(&Event { at_ns, cpu: 0, tid, what }, &mut timeline);
        }
        follower.finish(260, &mut timeline);
        periods_of(&timeline)
    };
    let hinted = |periods: &[Period]| -> Vec<u64> {
        let of = periods.iter().filter(|period| period.moments.contains(&Moment::Request));
        assert!(
            of.clone().all(|period| period.moments.ends_with(&[Moment::Request, Moment::Force]))
        );
        of.map(|period| period.cycles.unwrap()).collect()
    };
    assert_eq!(hinted(&periods(Of::Task(7))), [28, 30]);
    assert!(hinted(&periods(Of::Task(8))).is_empty());
    // the CPU goes on with the other task at once; of neither more than scalar work is expected yet
    let of_cpu = periods(Of::Cpu(0));
    assert_eq!(hinted(&of_cpu), [28, 30]);
    let switched = of_cpu.iter().filter(|period| period.moments.contains(&Moment::Switch(0)));
    assert_eq!(switched.map(|period| period.cycles.unwrap()).collect::<Vec<_>>(), [10, 20]);
}
