// SPDX-License-Identifier: MIT OR Apache-2.0
//! Recordings that the judge must pass, refuse or find fault with.

use trace::Name;

use super::*;

const BOUNDS: Bounds = Bounds { moment_ns: 100, tick_ns: 1000, wait_ns: 5000, conserves: true };
const WIDE: Option<Lane> = Some(Lane { task_type: 2, level: 2 });
const SCALAR: Option<Lane> = Some(Lane { task_type: 1, level: 0 });

fn event(at_ns: u64, cpu: u16, tid: u32, what: What) -> Event {
    Event { at_ns, cpu, tid, what }
}

fn switch(at_ns: u64, cpu: u16, from: (u32, Option<Lane>, Why), to: (u32, Option<Lane>)) -> Event {
    let (tid, lane, why) = from;
    let (next, next_lane) = to;
    event(at_ns, cpu, tid, What::Switch { next, why, bound: false, lane, next_lane })
}

fn wake(at_ns: u64, tid: u32) -> Event {
    event(at_ns, 0, tid, What::Wake { waker: 0, delay_ns: 0, new: false })
}

const IDLE: (u32, Option<Lane>, Why) = (0, None, Why::Preempted);

/// CPU 1 is wide.
fn judge(lane: bool, events: &[Event]) -> Result<Verdict, Unjudged> {
    let info = Info {
        everybody: true,
        affinities: true,
        lane,
        cpus: "0-1".into(),
        start_ns: 1000,
        ..Info::default()
    };
    let mut stalls = Stalls::default();
    events.iter().for_each(|event| stalls.take(event));
    let mut judge = Judge::new(&info, stalls, BOUNDS)?;
    if lane {
        judge.take(&event(1000, 0, 0, What::Class { class: 0 }));
        judge.take(&event(1000, 1, 0, What::Class { class: 3 }));
    }
    events.iter().for_each(|event| judge.take(event));
    judge.finish(20_000)
}

fn broken(lane: bool, events: &[Event]) -> &'static str {
    judge(lane, events).unwrap().result.unwrap_err().rule
}

/// A recording that begins in the middle, and keeps all rules.
#[test]
fn good_recordings_pass() {
    let events = [
        switch(1100, 0, (7, SCALAR, Why::Preempted), (8, SCALAR)),
        wake(1150, 9),
        switch(1160, 1, IDLE, (9, WIDE)),
        switch(1170, 0, (8, SCALAR, Why::Sleeps), (7, SCALAR)),
        switch(1900, 1, (9, WIDE, Why::Ends), (0, None)),
        switch(1950, 0, (7, SCALAR, Why::Sleeps), (0, None)),
    ];
    let verdict = judge(true, &events).unwrap();
    assert!(verdict.result.is_ok_and(|checked| checked > 10) && verdict.lane);
}

/// A wide task on a scalar CPU, which it does not leave.
#[test]
fn wide_on_scalar_fails() {
    let events = [
        wake(1150, 9),
        switch(1160, 1, IDLE, (9, WIDE)),
        switch(1200, 1, (9, WIDE, Why::Preempted), (7, WIDE)),
        switch(1210, 0, IDLE, (9, WIDE)),
    ];
    assert_eq!(broken(true, &events), "class");
}

/// A task that waits too long fails under every scheduler, one beside an idle CPU under ours.
#[test]
fn waiting_fails() {
    let long = [
        switch(1100, 0, (7, None, Why::Preempted), (8, None)),
        switch(9000, 0, (8, None, Why::Sleeps), (7, None)),
    ];
    assert_eq!(broken(false, &long), "liveness");
    let idle = [
        switch(1100, 1, (6, SCALAR, Why::Sleeps), (0, None)),
        switch(1100, 0, (7, SCALAR, Why::Preempted), (8, SCALAR)),
        switch(1600, 0, (8, SCALAR, Why::Sleeps), (7, SCALAR)),
    ];
    assert_eq!(broken(true, &idle), "conservation");
    assert!(judge(false, &idle).unwrap().result.is_ok());
}

/// What lacks something is not judged; from a change of the classes on nothing is.
#[test]
fn incomplete_recordings_are_not_judged_fail() {
    let lost = event(1200, 0, 0, What::Lost { events: 3 });
    assert_eq!(judge(true, &[lost]), Err(Unjudged::Lost(3)));
    let some = Judge::new(&Info::default(), Stalls::default(), BOUNDS);
    assert_eq!(some.err(), Some(Unjudged::SomeTasks));
    let events = [event(1500, 0, 0, What::Class { class: 3 }), wake(1600, 9), wake(9900, 9)];
    assert_eq!(judge(true, &events).unwrap().until_ns, Some(1500));
}

fn fork(at_ns: u64, tid: u32, parent: u32) -> Event {
    event(at_ns, 0, tid, What::Fork { parent, tgid: tid })
}

fn task(tid: u32, kernel: bool) -> Event {
    let what =
        What::Task { tgid: tid, kernel, running: false, followed: true, name: Name::default() };
    event(1000, 0, tid, what)
}

fn name(at_ns: u64, cpu: u16, tid: u32) -> Event {
    event(at_ns, cpu, tid, What::Name { tgid: tid, name: Name::default() })
}

/// A kernel thread's child is one: conservation does not hold for it. Another's child is judged.
#[test]
fn children_of_kernel_threads_are_kernel_threads() {
    let waits = |kernel: bool| {
        vec![
            task(2, kernel),
            switch(1100, 1, (6, SCALAR, Why::Sleeps), (0, None)),
            switch(1100, 0, (7, SCALAR, Why::Preempted), (8, SCALAR)),
            fork(1200, 9, 2),
            wake(1210, 9),
            switch(1600, 0, (8, SCALAR, Why::Preempted), (9, None)),
            switch(1610, 0, (9, None, Why::Sleeps), (8, SCALAR)),
            switch(1615, 1, IDLE, (7, SCALAR)),
        ]
    };
    // The task that really waits is 7, from 1100 on: conservation is broken by it alone.
    let rule = |kernel| judge(true, &waits(kernel)).unwrap().result.unwrap_err();
    assert!(rule(false).at_ns < rule(true).at_ns, "{:?} {:?}", rule(false), rule(true));
}

/// A child may run where its parent may, and nowhere else.
#[test]
fn children_inherit_affinities() {
    let narrow = event(1000, 0, 7, What::Affinity { cpus: Box::new("0".parse().unwrap()) });
    let on = |cpu| {
        let child = [narrow.clone(), fork(1100, 9, 7), wake(1110, 9)];
        [&child[..], &[switch(1120, cpu, IDLE, (9, None))]].concat()
    };
    assert!(judge(false, &on(0)).unwrap().result.is_ok());
    assert_eq!(broken(false, &on(1)), "order");
}

/// exec by a thread that is not its process's first: it goes on under the number of the process,
/// whether the end of its old one is recorded before its next switch or after it.
#[test]
fn exec_of_a_thread_changes_its_number() {
    let before = [
        wake(1050, 20),
        switch(1060, 1, IDLE, (20, None)),
        wake(1080, 21),
        switch(1100, 0, IDLE, (21, None)),
        switch(1110, 1, (20, None, Why::Ends), (0, None)),
    ];
    let ended = event(1120, 0, 21, What::Exit);
    let prompt =
        [ended.clone(), name(1130, 0, 20), switch(1140, 0, (20, None, Why::Sleeps), (0, None))];
    let early = [
        name(1111, 0, 20),
        switch(1112, 0, (20, None, Why::Blocks), (0, None)),
        wake(1114, 20),
        switch(1115, 0, IDLE, (20, None)),
        ended,
        name(1130, 0, 20),
        switch(1140, 0, (20, None, Why::Sleeps), (0, None)),
    ];
    for rest in [&prompt[..], &early[..]] {
        let verdict = judge(false, &[&before[..], rest].concat()).unwrap();
        assert!(verdict.result.is_ok() && verdict.hidden == Hidden::default(), "{verdict:?}");
    }
    // Without the name it is a broken order.
    let rest = [switch(1140, 0, (20, None, Why::Sleeps), (0, None))];
    assert!(!judge(false, &[&before[..], &rest].concat()).unwrap().hidden.tids.is_empty());
}

/// A task whose stops are never recorded is not judged, nor is the wait that ended after it; the
/// verdict says so.
#[test]
fn hidden_tasks_are_counted() {
    let events = [
        wake(1050, 8),
        wake(1060, 7),
        switch(1100, 0, IDLE, (7, None)),
        // 8 has run since 1200 at the latest, as no one saw.
        switch(9000, 0, (8, None, Why::Sleeps), (0, None)),
        switch(9100, 0, IDLE, (7, None)),
        switch(9200, 0, IDLE, (0, None)),
    ];
    let verdict = judge(false, &events).unwrap();
    assert!(verdict.result.is_ok(), "{verdict:?}");
    let hidden = Hidden { tids: [7].into(), stops: 2, unseen_ns: 7900 + 100 };
    assert_eq!(verdict.hidden, hidden);
}

/// A task that runs after a hidden one, and gives itself a name, has not called exec in its place.
#[test]
fn names_behind_hidden_tasks_are_names() {
    let events = [
        switch(1100, 0, IDLE, (8, None)),
        switch(1200, 0, (8, None, Why::Preempted), (7, None)),
        name(1300, 0, 8),
        switch(1400, 0, (8, None, Why::Sleeps), (0, None)),
        switch(1500, 0, IDLE, (7, None)),
        switch(1600, 0, (8, None, Why::Sleeps), (0, None)),
    ];
    let verdict = judge(false, &events).unwrap();
    assert!(verdict.result.is_ok() && verdict.hidden.stops == 2, "{verdict:?}");
}

/// A task with some of its stops recorded has to have all, before and afterwards.
#[test]
fn missing_stops_fail() {
    let stops = [
        switch(1100, 0, IDLE, (7, None)),
        switch(1200, 0, (7, None, Why::Sleeps), (0, None)),
        switch(1300, 0, IDLE, (7, None)),
    ];
    let missing = [switch(1400, 0, (8, None, Why::Sleeps), (0, None))];
    assert_eq!(broken(false, &[&stops[..], &missing].concat()), "order");
    let later = [&stops[2..], &missing, &stops[..2]].concat();
    let later: Vec<Event> =
        later.into_iter().zip(1..).map(|(e, i)| Event { at_ns: 1000 + 10 * i, ..e }).collect();
    assert_eq!(broken(false, &later), "order");
}

/// Where affinities are not recorded, no one is accused for where it runs.
#[test]
fn unknown_affinities_are_not_judged() {
    let info = Info { everybody: true, cpus: "0-1".into(), start_ns: 1000, ..Info::default() };
    let mut judge = Judge::new(&info, Stalls::default(), BOUNDS).unwrap();
    judge.take(&event(1000, 0, 7, What::Affinity { cpus: Box::new("0".parse().unwrap()) }));
    judge.take(&switch(1100, 1, IDLE, (7, None)));
    assert!(judge.finish(2000).unwrap().result.is_ok());
}

/// What a scheduler leaves undone while a CPU is stalled is not its fault; the rest of it is. The
/// time of the fault is the recording's.
#[test]
fn stalls_excuse() {
    let beside = |stall: &[Event]| {
        let events = [
            switch(1100, 1, (6, SCALAR, Why::Sleeps), (0, None)),
            switch(1100, 0, (7, SCALAR, Why::Preempted), (8, SCALAR)),
            switch(1600, 0, (8, SCALAR, Why::Sleeps), (7, SCALAR)),
        ];
        judge(true, &[&events[..2], stall, &events[2..]].concat()).unwrap()
    };
    let stall = |ns| event(1550, 1, 0, What::Stall { ns });
    let verdict = beside(&[stall(420)]);
    assert!(verdict.result.is_ok(), "{verdict:?}");
    assert_eq!(verdict.stalls, StallSum { stalls: 1, total_ns: 420, longest_ns: 420 });
    let violation = beside(&[stall(380)]).result.unwrap_err();
    assert_eq!((violation.rule, violation.at_ns), ("conservation", 600));
}
