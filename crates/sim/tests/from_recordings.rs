// SPDX-License-Identifier: MIT OR Apache-2.0
//! A recording becomes a scenario that predicts what the recorded load does: here the recorded
//! machine is a simulated one, so that the truth is known, on the same machine and on others.

mod common;

use cpumodel::{CpuModel, CpuSet, Platform};
use sim::engine::{Engine, Options, Outcome};
use sim::events::{Happened, Sink, Stop};
use sim::policy_spec::{PolicySpec, simulate};
use sim::program::Workload;
use sim::scenario::Scenario;
use sim::scenario::recorded::{Arrivals, Collector, Made, Request, Unusable};
use sim::sched::fair::Fair;
use sim::sys::{Layout, Sys};
use trace::follow::Follower;
use trace::{Event, Info, MarkInfo, Name, What, Why};

const MS: u64 = 1_000_000;

/// Writes a simulation's events as `turbolane record` would: code that asks for a level is in a
/// function that is marked with it.
struct Recorder<'a> {
    workload: &'a Workload,
    from_ns: u64,
    now_ns: u64,
    events: Vec<Event>,
    /// Name and affinity of each task.
    tasks: Vec<(Name, CpuSet)>,
    /// By task: the level of the mark that it is in.
    inside: Vec<u8>,
    /// By CPU: who runs, and what is asked for.
    cpus: Vec<(Option<u32>, u8)>,
    begun: bool,
}

impl<'a> Recorder<'a> {
    fn new(workload: &'a Workload, nr_cpus: usize, from_ns: u64) -> Self {
        let names = workload.groups.iter().flat_map(|group| {
            let name = Name::new(group.name.as_bytes());
            let cpus = match &group.affinity {
                Some(cpus) => cpus.iter().fold(CpuSet::new(), |mut set, &cpu| {
                    set.insert(cpu);
                    set
                }),
                None => CpuSet::first(nr_cpus),
            };
            std::iter::repeat_n((name, cpus), group.tasks)
        });
        let tasks: Vec<(Name, CpuSet)> = names.collect();
        Recorder {
            workload,
            from_ns,
            now_ns: 0,
            events: Vec::new(),
            inside: vec![0; tasks.len()],
            tasks,
            cpus: vec![(None, 0); nr_cpus],
            begun: false,
        }
    }

    fn push(&mut self, at_ns: u64, cpu: u16, tid: u32, what: What) {
        if at_ns >= self.from_ns {
            self.events.push(Event { at_ns, cpu, tid, what });
        }
    }

    /// What the tasks that run have asked for since the last moment.
    fn settle(&mut self) {
        for cpu in 0..self.cpus.len() {
            let (Some(task), level) = self.cpus[cpu] else { continue };
            let before = std::mem::replace(&mut self.inside[task as usize], level);
            if before == level {
                continue;
            }
            let (at_ns, cpu) = (self.now_ns, cpu as u16);
            if before > 0 {
                let what = What::MarkReturn { mark: u32::from(before) - 1 };
                self.push(at_ns, cpu, task + 1, what);
            }
            if level > 0 {
                self.push(at_ns, cpu, task + 1, What::Mark { mark: u32::from(level) - 1 });
            }
        }
    }

    fn begin(&mut self) {
        self.begun = true;
        for (task, (name, cpus)) in self.tasks.clone().into_iter().enumerate() {
            let tid = task as u32 + 1;
            let cpu = self.cpus.iter().position(|(runs, _)| *runs == Some(task as u32));
            let (running, at) = (cpu.is_some(), cpu.unwrap_or(0) as u16);
            let what = What::Task { tgid: tid, kernel: false, running, followed: true, name };
            self.push(self.from_ns, at, tid, what);
            self.push(self.from_ns, at, tid, What::Affinity { cpus: Box::new(cpus) });
            if self.inside[task] > 0 {
                let mark = u32::from(self.inside[task]) - 1;
                self.push(self.from_ns, at, tid, What::Mark { mark });
            }
        }
    }
}

impl Sink for Recorder<'_> {
    const WANTED: bool = true;

    fn happened(&mut self, at_ns: u64, what: &Happened<'_>) {
        if at_ns > self.now_ns {
            self.settle();
            self.now_ns = at_ns;
        }
        if at_ns >= self.from_ns && !self.begun {
            self.begin();
        }
        assert!(self.workload.groups.iter().all(|group| !group.kernel));
        match *what {
            Happened::Wake { task } => {
                let what = What::Wake { waker: 0, delay_ns: 0, new: false };
                self.push(at_ns, 0, task + 1, what);
            }
            Happened::Start { task, cpu } => {
                self.cpus[usize::from(cpu)].0 = Some(task);
                self.push(at_ns, cpu, 0, switch(task + 1, Why::Preempted));
            }
            Happened::Stop { task, cpu, why } => {
                self.cpus[usize::from(cpu)].0 = None;
                let why = match why {
                    Stop::Preempted => Why::Preempted,
                    Stop::Blocked => Why::Sleeps,
                    Stop::Ended => Why::Ends,
                };
                self.push(at_ns, cpu, task + 1, switch(0, why));
            }
            Happened::Asks { cpu, level } => self.cpus[usize::from(cpu)].1 = level,
            _ => {}
        }
    }
}

fn switch(next: u32, why: Why) -> What {
    What::Switch { next, why, bound: false, lane: None, next_lane: None }
}

fn platform(cpu: &str) -> Platform {
    Platform::new(&CpuModel::built_in(cpu).unwrap().unwrap())
}

fn info(nr_cpus: usize, start_ns: u64) -> Info {
    let mark = |level: u8| MarkInfo { level, name: format!("libwide.so:level_{level}") };
    Info {
        recorder: "test".into(),
        kernel: "6.12".into(),
        processor: "simulated".into(),
        target: "the entire machine".into(),
        everybody: true,
        cpus: format!("0-{}", nr_cpus - 1),
        start_ns,
        affinities: true,
        marks: (1..4).map(mark).collect(),
        ..Info::default()
    }
}

/// A scenario's variant under the kernel's scheduler, recorded.
fn record(
    scenario: &str,
    variant: &str,
    cpu: &str,
    from_ns: u64,
    until_ns: u64,
) -> (Info, Vec<Event>) {
    let scenario = Scenario::built_in(scenario).unwrap().unwrap();
    let workload = scenario.workload(Some(variant)).unwrap();
    let platform = platform(cpu);
    let sys = Sys::new(Layout::new(&platform.topology(scenario.packages)));
    let nr_cpus = sys.layout.nr_cpus;
    let recorder = Recorder::new(workload, nr_cpus, from_ns);
    let options = Options { duration_ns: until_ns, ..Options::default() };
    let sched = Fair::new(&sys);
    let mut engine = Engine::new(platform, sys, sched, recorder, workload.clone(), options);
    engine.run().unwrap();
    (info(nr_cpus, from_ns), engine.into_sink().events)
}

fn made(info: &Info, events: &[Event], request: &Request<'_>) -> Result<Made, Unusable> {
    let mut collector = Collector::new(info, 0..u64::MAX, request.counts);
    let mut follower = Follower::new(info);
    events.iter().for_each(|event| follower.take(event, &mut collector));
    let end_ns = events.last().map_or(info.start_ns, |event| event.at_ns);
    follower.finish(end_ns, &mut collector);
    collector.finish(info, follower.tasks(), end_ns, request)
}

fn request<'a>(platform: &'a Platform) -> Request<'a> {
    Request {
        name: "made".into(),
        machine: "xeon-gold-6130".into(),
        platform,
        active_cores: None,
        arrivals: None,
        counts: None,
        none_scale: None,
        onto: None,
        sensitive_frac: 1.0,
        is_partial: false,
    }
}

/// What a group gets done per second.
fn rate(scenario: &Scenario, variant: Option<&str>, group: &str, cpu: &str, policy: &str) -> f64 {
    let workload = scenario.workload(variant).unwrap().clone();
    let options = Options { duration_ns: 3_000 * MS, warmup_ns: 1_000 * MS, ..Options::default() };
    let policy: PolicySpec = policy.parse().unwrap();
    let platform = platform(cpu);
    let run = simulate(&platform, scenario.packages, workload, &policy, options, None).unwrap();
    let out: &Outcome = &run.outcome;
    out.group(group).unwrap().completed as f64 * 1e9 / out.measured_ns as f64
}

/// The error of what a recording predicts, in percentage points of a gain.
fn error_points(of: &str, group: &str, on: &str, to: &str, policy: &str) -> f64 {
    let (info, events) = record(of, "avx512", on, 500 * MS, 1_000 * MS);
    let recorded_on = platform(on);
    let made = made(&info, &events, &request(&recorded_on)).unwrap();
    let scenario = Scenario::from_toml(&made.text).unwrap();
    let original = Scenario::built_in(of).unwrap().unwrap();
    let gain = |scenario: &Scenario, variant| {
        let before = rate(scenario, variant, group, to, "fair");
        (rate(scenario, variant, group, to, policy) / before - 1.0) * 100.0
    };
    let (truth, predicted) = (gain(&original, Some("avx512")), gain(&scenario, None));
    println!("{of} {group} {on} -> {to} {policy}: {predicted:+.2} for {truth:+.2} %");
    predicted - truth
}

/// What a remedy brings is predicted for the machine that was recorded.
#[test]
fn gains_are_predicted() {
    for policy in ["lane:detect=hint,wide=2", "lane:detect=trap,wide=2"] {
        let error =
            error_points("systor-nginx", "nginx", "xeon-gold-6130", "xeon-gold-6130", policy);
        assert!(error.abs() <= 2.0, "{policy}: {error:+.2} points");
    }
}

/// And for others.
#[test]
fn gains_are_predicted_for_other_machines() {
    for to in ["xeon-platinum-8360y", "xeon-gold-6154"] {
        let policy = "lane:detect=hint,wide=2";
        let error = error_points("systor-nginx", "nginx", "xeon-gold-6130", to, policy);
        assert!(error.abs() <= 3.0, "{to}: {error:+.2} points");
    }
}

/// Two tasks that wake each other: the work of one waits for that of the other, whatever the clock.
fn pair(info: &Info) -> Vec<Event> {
    let (mut events, mut at_ns) = (Vec::new(), info.start_ns);
    let mut push = |at_ns: u64, cpu: u16, tid: u32, what: What| {
        events.push(Event { at_ns, cpu, tid, what });
    };
    for (tid, name) in [(1, &b"asks"[..]), (2, b"answers")] {
        let name = Name::new(name);
        let what = What::Task { tgid: tid, kernel: false, running: false, followed: true, name };
        push(at_ns, 0, tid, what);
    }
    for _ in 0..40 {
        for (tid, other, run_ns) in [(1, 2, 2 * MS), (2, 1, MS)] {
            let cpu = tid as u16 - 1;
            push(at_ns, cpu, 0, switch(tid, Why::Preempted));
            push(at_ns, cpu, tid, What::Mark { mark: 1 });
            push(at_ns + MS / 2, cpu, tid, What::MarkReturn { mark: 1 });
            at_ns += run_ns;
            push(at_ns, cpu, other, What::Wake { waker: tid, delay_ns: 0, new: false });
            push(at_ns, cpu, tid, switch(0, Why::Sleeps));
        }
    }
    events
}

/// Who woke whom stays: neither is on a CPU while the other works, so together they have one CPU.
#[test]
fn tasks_wait_for_each_other() {
    let info = info(32, MS);
    let on = platform("xeon-gold-6130");
    let made = made(&info, &pair(&info), &request(&on)).unwrap();
    assert!(made.text.contains("put = \"answers/0\"") && made.text.contains("take = \"asks/0\""));
    let scenario = Scenario::from_toml(&made.text).unwrap();
    let workload = scenario.workload(None).unwrap().clone();
    let options = Options { duration_ns: 2_000 * MS, ..Options::default() };
    let out = simulate(&on, 1, workload, &"fair".parse().unwrap(), options, None).unwrap().outcome;
    let busy = |group: &str| out.group(group).unwrap().cpu_ns as f64 / out.measured_ns as f64;
    let (asks, answers) = (busy("asks"), busy("answers"));
    assert!((asks + answers - 1.0).abs() < 0.02, "{asks} and {answers} of a CPU");
    assert!((asks / answers - 2.0).abs() < 0.1, "{asks} to {answers}, as 2 to 1");
}

/// Two tasks share a CPU: the one that waits for it when the recording begins does not sleep.
/// Another wakes up now and then, so that wake-ups are known to be recorded.
#[test]
fn who_waits_at_first_does_not_sleep() {
    let info = info(32, MS);
    let (mut events, start_ns) = (Vec::new(), info.start_ns);
    for tid in 1..4 {
        let name = Name::new(if tid < 3 { b"shares" } else { b"sleeps" });
        let running = tid == 1;
        let what = What::Task { tgid: tid, kernel: false, running, followed: true, name };
        events.push(Event { at_ns: start_ns, cpu: 0, tid, what });
    }
    for turn in 1..20u32 {
        let at_ns = start_ns + u64::from(turn) * 20 * MS;
        let (prev, next) = (1 + (turn + 1) % 2, 1 + turn % 2);
        let mut push = |at_ns: u64, cpu: u16, tid: u32, what: What| {
            events.push(Event { at_ns, cpu, tid, what });
        };
        push(at_ns, 0, prev, switch(next, Why::Preempted));
        push(at_ns, 0, next, What::Mark { mark: 1 });
        push(at_ns + MS, 1, 3, What::Wake { waker: 0, delay_ns: 0, new: false });
        push(at_ns + MS, 1, 0, switch(3, Why::Preempted));
        push(at_ns + MS, 0, next, What::MarkReturn { mark: 1 });
        push(at_ns + 11 * MS, 1, 3, switch(0, Why::Sleeps));
    }
    let on = platform("xeon-gold-6130");
    let made = made(&info, &events, &request(&on)).unwrap();
    let group = |name: &str| {
        let from = made.text.find(&format!("name = \"{name}\"")).unwrap();
        let rest = &made.text[from..];
        rest[..rest.find("[[group]]").unwrap_or(rest.len())].to_string()
    };
    assert!(group("sleeps").contains("sleep_ns"), "{}", made.text);
    assert!(!group("shares").contains("sleep_ns"), "{}", made.text);
}

/// What a source asks for comes at the recorded rate, however fast the machine is.
#[test]
fn open_arrivals_keep_their_rate() {
    let info = info(32, MS);
    let mut events = vec![Event {
        at_ns: info.start_ns,
        cpu: 0,
        tid: 1,
        what: What::Task {
            tgid: 1,
            kernel: false,
            running: false,
            followed: true,
            name: Name::new(b"server"),
        },
    }];
    // A millisecond of work every five.
    for i in 0..200 {
        let at_ns = info.start_ns + i * 5 * MS;
        let mut push = |at_ns: u64, tid: u32, what: What| {
            events.push(Event { at_ns, cpu: 0, tid, what });
        };
        push(at_ns, 1, What::Wake { waker: 0, delay_ns: 0, new: false });
        push(at_ns + 1000, 0, switch(1, Why::Preempted));
        push(at_ns + 2000, 1, What::Mark { mark: 1 });
        push(at_ns + 50_000, 1, What::MarkReturn { mark: 1 });
        push(at_ns + MS, 1, switch(0, Why::Sleeps));
    }
    let on = platform("xeon-gold-6130");
    let made = made(&info, &events, &request(&on)).unwrap();
    assert_eq!(made.arrivals, Arrivals::Open, "it sleeps most of the time");
    let scenario = Scenario::from_toml(&made.text).unwrap();
    for cpu in ["xeon-gold-6130", "xeon-6980p"] {
        let rate = rate(&scenario, None, "server", cpu, "fair");
        assert!((rate - 200.0).abs() < 20.0, "{cpu}: {rate} per second instead of 200");
    }
}

/// Bound tasks move to other CPUs, and are more where those are more.
#[test]
fn bound_tasks_move() {
    let (info, events) = record("systor-nginx", "avx512", "xeon-gold-6130", 500 * MS, 600 * MS);
    let on = platform("xeon-gold-6130");
    let onto = |cpus: &str| Request { onto: Some(cpus.parse().unwrap()), ..request(&on) };
    let tasks = |cpus: &str| {
        let made = made(&info, &events, &onto(cpus)).unwrap();
        let scenario = Scenario::from_toml(&made.text).unwrap();
        let group = &scenario.workload(None).unwrap().groups[0];
        assert_eq!(group.name, "nginx");
        (group.tasks, group.affinity.as_ref().unwrap().len())
    };
    // 24 tasks on as many CPUs.
    assert_eq!(tasks("4-15,20-31"), (24, 24));
    assert_eq!(tasks("0-31"), (32, 32));
    assert_eq!(tasks("0-3"), (24, 4), "some may wait for others: none is left out");
}

/// Recordings that cannot be a scenario say why.
#[test]
fn unusable_recordings_are_refused() {
    let (info, on) = (info(32, MS), platform("xeon-gold-6130"));
    let refused = |info: &Info, events: &[Event], request: &Request<'_>| {
        made(info, events, request).expect_err("it cannot be a scenario")
    };
    let good = pair(&info);
    assert_eq!(refused(&info, &[], &request(&on)), Unusable::Empty);
    let end_ns = good.last().unwrap().at_ns;
    let lost = Event { at_ns: end_ns, cpu: 0, tid: 0, what: What::Lost { events: 3 } };
    let with_loss: Vec<Event> = good.iter().cloned().chain([lost]).collect();
    assert_eq!(refused(&info, &with_loss, &request(&on)), Unusable::Lost(3));
    let is_mark = |e: &&Event| matches!(e.what, What::Mark { .. } | What::MarkReturn { .. });
    let unmarked: Vec<Event> = good.iter().filter(|e| !is_mark(e)).cloned().collect();
    assert_eq!(refused(&info, &unmarked, &request(&on)), Unusable::NoWide);
    let counts = Request { counts: Some(2), ..request(&on) };
    assert_eq!(refused(&info, &good, &counts), Unusable::Uncounted);
    let elsewhere = |tid: u32, next: u32, at_ns: u64| Event {
        at_ns,
        cpu: 900,
        tid,
        what: switch(next, Why::Sleeps),
    };
    let far = [elsewhere(0, 9, end_ns), elsewhere(9, 0, end_ns + MS)];
    let far: Vec<Event> = good.iter().cloned().chain(far).collect();
    assert!(matches!(refused(&info, &far, &request(&on)), Unusable::TooSmall { cpu: 900, .. }));
}

/// A recording of another kernel is a scenario like any other; what that kernel did not report is
/// said. So is a missing end.
#[test]
fn gaps_are_said() {
    let (here, on) = (info(32, MS), platform("xeon-gold-6130"));
    let elsewhere = Info { kernel: "5.14.0-el9.x86_64".into(), affinities: false, ..here.clone() };
    let complete = made(&here, &pair(&here), &request(&on)).unwrap();
    let other = made(&elsewhere, &pair(&here), &request(&on)).unwrap();
    let partial = Request { is_partial: true, ..request(&on) };
    let partial = made(&here, &pair(&here), &partial).unwrap();
    assert!(complete.gaps.is_empty() && !complete.text.contains("# Note"), "{}", complete.text);
    assert!(other.text.contains("(Linux 5.14.0-el9.x86_64)"), "{}", other.text);
    for (made, gap) in [(&other, "changes of affinities"), (&partial, "was cut off")] {
        assert!(made.gaps.len() == 1 && made.gaps[0].contains(gap), "{:?}", made.gaps);
        assert!(made.text.contains(&format!("# Note: {}.\n", made.gaps[0])), "{}", made.text);
        let steps = |made: &Made| {
            let lines = made.text.lines().filter(|line| !line.starts_with('#'));
            lines.map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(steps(made), steps(&complete));
        Scenario::from_toml(&made.text).unwrap();
    }
}

/// A recording with hostile names and times makes a file that can be read, or none.
#[test]
fn hostile_names_are_quoted() {
    let info = Info { target: "a\nb = 1\u{7}".into(), ..info(32, MS) };
    let mut events = pair(&info);
    for event in &mut events {
        if let What::Task { name, .. } = &mut event.what {
            *name = Name::new(b"\"x\\\n]]\xff");
        }
    }
    let on = platform("xeon-gold-6130");
    let made = made(&info, &events, &request(&on)).unwrap();
    Scenario::from_toml(&made.text).unwrap();
}

/// Work that waits for memory for half of its time gains half as much by a machine with higher
/// clocks.
#[test]
fn waits_for_memory_are_kept() {
    let info = info(32, MS);
    let on = platform("xeon-gold-6130");
    let gain = |sensitive_frac: f64| {
        let request = Request { sensitive_frac, active_cores: Some(16), ..request(&on) };
        let made = made(&info, &pair(&info), &request).unwrap();
        let keys = "sensitive_frac = 0.5\nreference_khz = 2800000\n";
        assert_eq!(made.text.contains(keys), sensitive_frac < 1.0, "{sensitive_frac}");
        let scenario = Scenario::from_toml(&made.text).unwrap();
        let asks = |cpu| rate(&scenario, None, "asks", cpu, "fair");
        asks("xeon-gold-6130") / asks("xeon-w-2104") - 1.0
    };
    let (half, all) = (gain(0.5), gain(1.0));
    assert!((0.35..0.65).contains(&(half / all)), "{half} and {all}");
}

/// A build is thousands of processes, none of which has much of the time: together they are kept.
/// What runs beside a load for a moment is left out.
#[test]
fn many_short_tasks_are_kept() {
    let (info, on) = (info(32, MS), platform("xeon-gold-6130"));
    let mut events = pair(&info);
    let end_ns = events.last().unwrap().at_ns;
    let mut at_ns = end_ns;
    for tid in 10..2010 {
        events.push(Event { at_ns, cpu: 0, tid: 0, what: switch(tid, Why::Preempted) });
        at_ns += MS;
        events.push(Event { at_ns, cpu: 0, tid, what: switch(0, Why::Ends) });
    }
    events.push(Event { at_ns, cpu: 0, tid: 0, what: switch(5000, Why::Preempted) });
    events.push(Event { at_ns: at_ns + 1000, cpu: 0, tid: 5000, what: switch(0, Why::Ends) });
    let made = made(&info, &events, &request(&on)).unwrap();
    let tasks: usize = made.groups.iter().map(|group| group.tasks).sum();
    // 2,120 ms in all, of which 1 % may be missing.
    assert!((1980..=2002).contains(&tasks), "{tasks}");
    assert!(made.left_out.0 > 0 && made.left_out.1 < 0.011, "{:?}", made.left_out);
    assert!(Scenario::from_toml(&made.text).is_ok());
}
