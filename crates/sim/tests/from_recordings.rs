// SPDX-License-Identifier: MIT OR Apache-2.0
//! A recording becomes a scenario that predicts what the recorded load does: here the recorded
//! machine is a simulated one, so that the truth is known, on the same machine and on others.

mod common;

use machine::{CpuModel, CpuSet, Platform};
use sim::engine::{Engine, Options, Outcome};
use sim::events::{Happened, Sink, Stop};
use sim::policy_spec::{PolicySpec, simulate};
use sim::program::Workload;
use sim::scenario::Scenario;
use sim::scenario::recorded::{Collector, Made, Request, Unusable};
use sim::sched::fair::Fair;
use sim::sys::{Layout, Sys};
use trace::demand::Bound;
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
fn record(scenario: &str, variant: &str, cpu: &str, from_ns: u64, until_ns: u64) -> (Info, Vec<Event>) {
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
        bound: Bound::Least,
        onto: None,
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
        let error = error_points("systor-nginx", "nginx", "xeon-gold-6130", "xeon-gold-6130", policy);
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
