// SPDX-License-Identifier: MIT OR Apache-2.0
//! Time out of events: runs, waits and marked time, also where a recording begins in the middle or
//! lacks something.

use proptest::prelude::*;
use trace::follow::{Follower, Run, Task, TaskId, Visit, Wait};
use trace::summary::Summary;
use trace::{End, Ending, Event, Info, MarkInfo, What, Why};

#[derive(Default)]
struct Seen {
    runs: Vec<Run>,
    waits: Vec<Wait>,
    idle_ns: u64,
}

impl Visit for Seen {
    fn ran(&mut self, run: &Run, _: &Task) {
        self.runs.push(*run);
    }
    fn waited(&mut self, wait: &Wait, _: &Task) {
        self.waits.push(*wait);
    }
    fn idled(&mut self, _: u16, start_ns: u64, end_ns: u64) {
        self.idle_ns += end_ns - start_ns;
    }
}

fn info(everybody: bool) -> Info {
    let mark = |level| MarkInfo { level, name: "f".into() };
    Info { everybody, start_ns: 100, marks: vec![mark(1), mark(2)], ..Info::default() }
}

fn event(at_ns: u64, cpu: u16, tid: u32, what: What) -> Event {
    Event { at_ns, cpu, tid, what }
}

fn switch(at_ns: u64, cpu: u16, tid: u32, next: u32, why: Why) -> Event {
    event(at_ns, cpu, tid, What::Switch { next, why, bound: false, lane: None, next_lane: None })
}

fn wake(at_ns: u64, tid: u32, delay_ns: u32) -> Event {
    event(at_ns, 0, tid, What::Wake { waker: 1, delay_ns, new: false })
}

fn follow(everybody: bool, events: &[Event], end_ns: u64) -> (Follower, Seen) {
    let (mut follower, mut seen) = (Follower::new(&info(everybody)), Seen::default());
    events.iter().for_each(|event| follower.take(event, &mut seen));
    follower.finish(end_ns, &mut seen);
    (follower, seen)
}

fn of(follower: &Follower, seen: &Seen, tid: u32) -> Vec<(u64, u64, u8)> {
    let is = |task: TaskId| follower.tasks()[task].tid == tid;
    let runs = seen.runs.iter().filter(|run| is(run.task));
    runs.map(|run| (run.start_ns, run.end_ns, run.level)).collect()
}

/// Runs reach from the begin of the recording to its end, waits from the waker's request to the
/// run.
#[test]
fn runs_and_waits() {
    let events = [
        switch(110, 0, 7, 0, Why::Sleeps),
        wake(130, 7, 5),
        switch(140, 0, 0, 7, Why::Preempted),
        switch(150, 0, 7, 8, Why::Preempted),
        switch(170, 0, 8, 7, Why::Ends),
    ];
    let (follower, seen) = follow(true, &events, 200);
    assert_eq!(of(&follower, &seen, 7), [(100, 110, 0), (140, 150, 0), (170, 200, 0)]);
    assert_eq!(of(&follower, &seen, 8), [(150, 170, 0)]);
    let waits: Vec<_> = seen.waits.iter().map(|w| (w.start_ns, w.end_ns, w.woken)).collect();
    assert_eq!(waits, [(125, 140, true), (150, 170, false)]);
    assert_eq!(seen.idle_ns, 30);
    assert_eq!(follower.contradictions().switches, 0);
}

/// Marked time counts while the task runs, from the outermost entry to its return, at the highest
/// level; a return without an entry counts for nothing.
#[test]
fn marked_time() {
    let events = [
        event(110, 0, 7, What::MarkReturn { mark: 0 }),
        event(120, 0, 7, What::Mark { mark: 0 }),
        event(130, 0, 7, What::Mark { mark: 1 }),
        switch(140, 0, 7, 0, Why::Blocks),
        wake(150, 7, 0),
        switch(160, 0, 0, 7, Why::Preempted),
        // mark 1 was left by longjmp: its entry goes with mark 0's
        event(170, 0, 7, What::MarkReturn { mark: 0 }),
    ];
    let running = What::Task {
        tgid: 7,
        kernel: false,
        running: true,
        followed: true,
        name: Default::default(),
    };
    let events = [vec![event(100, 0, 7, running)], events.to_vec()].concat();
    let (follower, seen) = follow(true, &events, 180);
    let expected = [(100, 120, 0), (120, 130, 1), (130, 140, 2), (160, 170, 2), (170, 180, 0)];
    assert_eq!(of(&follower, &seen, 7), expected);
    assert_eq!(follower.contradictions().returns, 1);
}

/// Where only some are followed, what others do between is not known, and no contradiction.
#[test]
fn strangers_are_passed_over() {
    let events = [
        event(105, 0, 7, What::Fork { parent: 1, tgid: 7 }),
        switch(110, 0, 50, 7, Why::Preempted),
        switch(120, 0, 7, 51, Why::Sleeps),
        switch(150, 0, 52, 7, Why::Preempted),
        switch(160, 0, 7, 53, Why::Ends),
    ];
    let (follower, seen) = follow(false, &events, 200);
    assert_eq!(of(&follower, &seen, 7), [(110, 120, 0), (150, 160, 0)]);
    assert_eq!((seen.runs.len(), follower.contradictions().switches), (2, 0));
}

/// A lost switch shows as a contradiction, and no time is invented for it.
#[test]
fn lost_switches_show() {
    let events = [
        switch(110, 0, 7, 8, Why::Sleeps),
        // lost: 8 to 9
        switch(150, 0, 9, 7, Why::Sleeps),
        // 7 runs elsewhere although it was never seen to leave
        switch(160, 1, 3, 7, Why::Sleeps),
    ];
    let (follower, seen) = follow(true, &events, 170);
    assert_eq!(follower.contradictions().switches, 2);
    assert_eq!(of(&follower, &seen, 8), []);
    assert_eq!(of(&follower, &seen, 9), []);
    assert_eq!(of(&follower, &seen, 7), [(100, 110, 0), (160, 170, 0)]);
}

/// The list of tasks is made a moment after the begin: what switches say goes before.
#[test]
fn lists_of_tasks_are_corrected() {
    let running = |tid| {
        let name = Default::default();
        What::Task { tgid: tid, kernel: false, running: true, followed: false, name }
    };
    let events = [
        event(100, 1, 7, running(7)),
        event(100, 2, 8, running(8)),
        switch(110, 0, 0, 7, Why::Preempted),
        switch(120, 1, 9, 0, Why::Sleeps),
        switch(130, 2, 3, 0, Why::Sleeps),
        switch(140, 0, 7, 0, Why::Sleeps),
    ];
    let (follower, seen) = follow(true, &events, 150);
    assert_eq!(follower.contradictions().switches, 0);
    assert_eq!(of(&follower, &seen, 7), [(110, 140, 0)]);
    assert_eq!(of(&follower, &seen, 8), []);
    assert_eq!(of(&follower, &seen, 9), [(100, 120, 0)]);
}

/// A number that is used again is another task.
#[test]
fn numbers_are_used_again() {
    let events = [
        event(105, 0, 7, What::Exit),
        switch(110, 0, 7, 0, Why::Ends),
        event(120, 1, 7, What::Fork { parent: 3, tgid: 3 }),
        switch(130, 0, 0, 7, Why::Preempted),
    ];
    let (follower, _) = follow(true, &events, 140);
    assert_eq!(follower.tasks().iter().filter(|task| task.tid == 7).count(), 2);
}

/// A thread that calls exec runs on under the number of its process.
#[test]
fn exec_changes_numbers() {
    let name = What::Name { tgid: 6, name: Default::default() };
    let events = [
        switch(110, 0, 0, 7, Why::Preempted),
        event(120, 0, 7, What::Exit),
        event(120, 0, 6, name),
        switch(130, 0, 6, 0, Why::Sleeps),
    ];
    let (follower, seen) = follow(true, &events, 140);
    assert_eq!(of(&follower, &seen, 7), [(110, 120, 0)]);
    assert_eq!(of(&follower, &seen, 6), [(120, 130, 0)]);
    assert_eq!(follower.contradictions().switches, 0);
}

/// The summary's percentiles are those of the nearest rank, and its sums those of the runs.
#[test]
fn summaries_add_up() {
    let mut events = Vec::new();
    for at in 0..100u64 {
        let start_ns = 1000 * (at + 1);
        events.push(wake(start_ns, 7, 0));
        events.push(switch(start_ns + at + 1, 0, 0, 7, Why::Preempted));
        events.push(switch(start_ns + 500, 0, 7, 0, Why::Sleeps));
    }
    events.push(event(200_000, 3, 0, What::Lost { events: 5 }));
    let (mut follower, mut summary) = (Follower::new(&info(true)), Summary::default());
    events.iter().for_each(|event| follower.take(event, &mut summary));
    follower.finish(300_000, &mut summary);
    let end = End { at_ns: 300_000, events: 301, lost: 5, late: 0 };
    let summary = summary.finish(&info(true), &follower, Ending::Complete(end));
    let latency = summary.wake_latency.unwrap();
    assert_eq!((latency.count, latency.p50_ns, latency.p99_ns, latency.max_ns), (100, 50, 99, 100));
    assert_eq!(summary.tasks.len(), 1);
    assert_eq!(summary.tasks[0].run_ns, (0..100).map(|at| 500 - at - 1).sum::<u64>());
    assert_eq!((summary.tasks[0].runs, summary.tasks[0].sleeps), (100, 100));
    assert_eq!((summary.lost_events, summary.lost_cpus), (5, vec![(3, 5)]));
    assert_eq!(summary.idle_ns.unwrap() + summary.tasks[0].run_ns, 299_900);
}

proptest! {
    /// Whatever comes, no CPU and no task is given more time than there was.
    #[test]
    fn time_is_not_invented(
        steps in prop::collection::vec((0u64..50, 0u16..3, 0u32..6, 0u32..6, 0u8..7), 0..200),
    ) {
        let mut at_ns = 100;
        let events: Vec<Event> = steps.into_iter().map(|(step_ns, cpu, tid, other, kind)| {
            at_ns += step_ns;
            let what = match kind {
                0 => What::Wake { waker: other, delay_ns: 10, new: false },
                1 => What::Mark { mark: other },
                2 => What::MarkReturn { mark: other },
                3 => What::Exit,
                4 => What::Fork { parent: other, tgid: 1 },
                _ => return switch(at_ns, cpu, tid, other, Why::Sleeps),
            };
            event(at_ns, cpu, tid, what)
        }).collect();
        let (_, seen) = follow(true, &events, at_ns + 10);
        for cpu in 0..3 {
            let runs = seen.runs.iter().filter(|run| run.cpu == cpu);
            let ran_ns: u64 = runs.map(|run| run.end_ns - run.start_ns).sum();
            prop_assert!(ran_ns <= at_ns + 10 - 100, "CPU {cpu} ran {ran_ns} ns");
        }
    }
}
