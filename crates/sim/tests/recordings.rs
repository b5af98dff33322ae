// SPDX-License-Identifier: MIT OR Apache-2.0
//! A recording of a real machine under the lane's scheduler passes the checkers, and each fault
//! that is planted in it is found.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::BufReader;

use sim::check::Bounds;
use sim::recorded::{Judge, Stalls, Verdict};
use trace::{Event, Info, Lane, Reader, What};

const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/data/traces/lane.trace");

/// As the recording was made for: tests/vm/src/tests/record.rs.
const BOUNDS: Bounds =
    Bounds { moment_ns: 30_000_000, tick_ns: 10_000_000, wait_ns: 1_000_000_000, conserves: true };
/// Longer than any bound but that of waits.
const HOLE_NS: u64 = 100_000_000;

fn recording() -> (Info, Vec<Event>) {
    let reader = Reader::new(BufReader::new(File::open(FILE).unwrap())).unwrap();
    let info = reader.info().clone();
    (info, reader.map(Result::unwrap).collect())
}

fn judge(info: &Info, events: &[Event]) -> Verdict {
    let mut stalls = Stalls::default();
    events.iter().for_each(|event| stalls.take(event));
    let mut judge = Judge::new(info, stalls, BOUNDS).unwrap();
    events.iter().for_each(|event| judge.take(event));
    judge.finish(events.last().unwrap().at_ns).unwrap()
}

fn broken(info: &Info, events: &[Event]) -> &'static str {
    judge(info, events).result.expect_err("a fault was planted").rule
}

/// The wake-up of a task that an idle CPU then starts: its index, and the CPU. No kernel thread,
/// which may wait for its own CPU, and none that the scheduler takes for something else than
/// before, which is not accused for where it was.
fn wake_up(events: &[Event]) -> (usize, u16) {
    let kernel = |event: &&Event| matches!(event.what, What::Task { kernel: true, .. });
    let kernel: HashSet<u32> = events.iter().filter(kernel).map(|event| event.tid).collect();
    let mut lanes: HashMap<u32, Lane> = HashMap::new();
    for (i, event) in events.iter().enumerate() {
        if let What::Switch { lane: Some(lane), .. } = event.what {
            lanes.insert(event.tid, lane);
        }
        if !matches!(event.what, What::Wake { .. }) || kernel.contains(&event.tid) {
            continue;
        }
        let next = events[i + 1..].iter().find(|event| matches!(event.what, What::Switch { .. }));
        if let Some(next) = next
            && let What::Switch { next: started, next_lane: Some(lane), .. } = next.what
            && (next.tid, started) == (0, event.tid)
            && lanes.get(&started) == Some(&lane)
        {
            return (i, next.cpu);
        }
    }
    panic!("nobody is woken on an idle CPU");
}

/// Everything behind an event happens so much later.
fn delayed(events: &[Event], behind: usize) -> Vec<Event> {
    let delay = |(i, event): (usize, &Event)| {
        let delay_ns = if i > behind { HOLE_NS } else { 0 };
        Event { at_ns: event.at_ns + delay_ns, ..event.clone() }
    };
    events.iter().enumerate().map(delay).collect()
}

/// The machine kept the rules, the lane's among them, and much of its time was judged.
#[test]
fn a_real_recording_passes() {
    let (info, events) = recording();
    let verdict = judge(&info, &events);
    assert!(verdict.lane && verdict.result.is_ok(), "{verdict:?}");
    let all_ns = events.last().unwrap().at_ns - info.start_ns;
    assert!(verdict.stalls.total_ns < all_ns / 2, "{:?} of {all_ns} ns", verdict.stalls);
    assert!(verdict.hidden.tids.is_empty(), "{:?}", verdict.hidden);
}

/// An idle CPU that is sent a task and takes it long afterwards, but for a stall of a CPU that
/// explains it.
#[test]
fn late_starts_fail() {
    let (info, events) = recording();
    let (wake, cpu) = wake_up(&events);
    let mut late = delayed(&events, wake);
    assert_eq!(broken(&info, &late), "conservation");
    let end_ns = events[wake].at_ns + HOLE_NS;
    let stall = Event { at_ns: end_ns, cpu, tid: 0, what: What::Stall { ns: HOLE_NS } };
    late.insert(wake + 1, stall);
    assert!(judge(&info, &late).result.is_ok());
}

/// A scalar CPU that is given a task known to be wide before it began to wait.
#[test]
fn wide_tasks_on_scalar_cpus_fail() {
    let (info, mut events) = recording();
    let wide = Some(Lane { task_type: 2, level: 1 });
    let (wake, cpu) = wake_up(&events);
    let tid = events[wake].tid;
    // All its switches say that it is wide, wherever it runs.
    for event in &mut events {
        if let What::Switch { next, lane, next_lane, .. } = &mut event.what {
            if event.tid == tid {
                *lane = wide;
            }
            if *next == tid {
                *next_lane = wide;
            }
        }
    }
    assert_eq!(broken(&info, &events), "class", "task {tid}, woken for CPU {cpu}");
}

/// A switch that is missing.
#[test]
fn missing_switches_fail() {
    let (info, mut events) = recording();
    let stops = |event: &Event| event.tid != 0 && matches!(event.what, What::Switch { .. });
    let of = events.iter().rposition(stops).expect("tasks stop");
    // The last of a task that stopped before, with others behind it on its CPU.
    let (tid, cpu) = (events[of].tid, events[of].cpu);
    let here = |event: &Event| stops(event) && event.tid == tid && event.cpu == cpu;
    let at = events[..of].iter().rposition(here).expect("it stopped before");
    events.remove(at);
    assert_eq!(broken(&info, &events), "order");
}
