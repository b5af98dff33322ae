// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is counted while a simulation runs, and what comes out.

use cpumodel::MAX_LEVELS;

use super::Engine;
use crate::events::Sink;
use crate::histogram::Histogram;
use crate::program::Workload;
use crate::sched::{SchedCounters, Scheduler};

/// Sums per CPU.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct CpuSums {
    pub busy_ns: u64,
    pub khz_ns: u64,
    pub level_ns: [u64; MAX_LEVELS],
    /// Energy above idle, mW * ns = 1e-12 J.
    pub mw_ns: u64,
}

/// What a task got of a CPU.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Run {
    ns: u64,
    khz_ns: u64,
    /// Of `ns`: at a level above 0.
    reduced_ns: u64,
}

/// Sums per group.
#[derive(Clone, Debug, Default)]
struct GroupSums {
    cpu_ns: u64,
    reduced_ns: u64,
    starts: u64,
    /// Over all CPUs: more than 64 bits hold for long runs of large machines.
    khz_ns: u128,
    wait: Histogram,
    completed: u64,
    alive: usize,
    ended_ns: Option<u64>,
}

#[derive(Clone, Debug, Default)]
struct SourceSums {
    asked: u64,
    latency: Histogram,
}

/// Everything that is counted.
#[derive(Clone, Debug)]
pub(super) struct Stats {
    pub since_ns: u64,
    pub events: u64,
    pub wakeups: u64,
    pub switches: u64,
    pub migrations: u64,
    pub ticks: u64,
    groups: Vec<GroupSums>,
    sources: Vec<SourceSums>,
    sched_before: SchedCounters,
    events_before: u64,
}

impl Stats {
    pub fn new(workload: &Workload) -> Self {
        Stats {
            since_ns: 0,
            events: 0,
            wakeups: 0,
            switches: 0,
            migrations: 0,
            ticks: 0,
            groups: vec![GroupSums::default(); workload.groups.len()],
            sources: vec![SourceSums::default(); workload.sources.len()],
            sched_before: SchedCounters::default(),
            events_before: 0,
        }
    }

    /// A task ran.
    #[inline]
    pub fn ran(&mut self, group: usize, run: Run) {
        let sums = &mut self.groups[group];
        sums.cpu_ns += run.ns;
        sums.khz_ns += u128::from(run.khz_ns);
        sums.reduced_ns += run.reduced_ns;
    }

    /// A task starts on a CPU that it had waited for.
    #[inline]
    pub fn started(&mut self, group: usize, waited_ns: u64) {
        let sums = &mut self.groups[group];
        sums.starts += 1;
        sums.wait.add(waited_ns);
    }

    pub fn completed(&mut self, group: usize) {
        self.groups[group].completed += 1;
    }

    pub fn asked(&mut self, source: usize) {
        self.sources[source].asked += 1;
    }

    pub fn answered(&mut self, source: usize, latency_ns: u64) {
        self.sources[source].latency.add(latency_ns);
    }

    pub fn begun(&mut self, group: usize) {
        self.groups[group].alive += 1;
        self.groups[group].ended_ns = None;
    }

    pub fn ended(&mut self, group: usize, now_ns: u64) {
        let group = &mut self.groups[group];
        group.alive -= 1;
        if group.alive == 0 {
            group.ended_ns = Some(now_ns);
        }
    }

    /// Forget what was counted; what exists stays.
    fn restart(&mut self, now_ns: u64, sched: SchedCounters) {
        self.since_ns = now_ns;
        self.events_before = self.events;
        self.sched_before = sched;
        (self.wakeups, self.switches, self.migrations, self.ticks) = (0, 0, 0, 0);
        for group in &mut self.groups {
            let kept =
                GroupSums { alive: group.alive, ended_ns: group.ended_ns, ..Default::default() };
            *group = kept;
        }
        self.sources.fill(SourceSums::default());
    }
}

/// What came out for a group of tasks.
#[derive(Clone, Debug, PartialEq)]
pub struct GroupOutcome {
    /// Its name.
    pub name: String,
    /// CPU time, ns.
    pub cpu_ns: u64,
    /// Mean clock while it ran, kHz; `None` if it did not.
    pub mean_khz: Option<f64>,
    /// Of the CPU time: on a core at a licence level above 0, whoever asked for it, ns.
    pub reduced_ns: u64,
    /// How often one of its tasks was put onto a CPU.
    pub starts: u64,
    /// Completions ([`crate::program::Step::Done`]).
    pub completed: u64,
    /// Time that its tasks waited for a CPU, by occasion.
    pub wait: Histogram,
    /// When its last task ended.
    pub ended_ns: Option<u64>,
}

/// What came out for a source of requests.
#[derive(Clone, Debug, PartialEq)]
pub struct SourceOutcome {
    /// Its name.
    pub name: String,
    /// Index of the group that it asks.
    pub to_group: usize,
    /// Requests sent.
    pub asked: u64,
    /// Times from request to answer.
    pub latency: Histogram,
}

/// What came out of a CPU.
#[derive(Clone, Debug, PartialEq)]
pub struct CpuOutcome {
    /// Time with a task, ns.
    pub busy_ns: u64,
    /// Mean clock while busy, kHz.
    pub mean_khz: Option<f64>,
    /// Busy time by granted level, ns.
    pub level_ns: Vec<u64>,
}

/// What came out.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// How long it was measured, ns.
    pub measured_ns: u64,
    /// Groups.
    pub groups: Vec<GroupOutcome>,
    /// Sources.
    pub sources: Vec<SourceOutcome>,
    /// CPUs.
    pub cpus: Vec<CpuOutcome>,
    /// Mean clock over all busy time, kHz.
    pub mean_khz: Option<f64>,
    /// Context switches.
    pub switches: u64,
    /// Tasks started elsewhere than where they ran before.
    pub migrations: u64,
    /// Wakeups.
    pub wakeups: u64,
    /// Timer ticks.
    pub ticks: u64,
    /// Events of the engine.
    pub events: u64,
    /// Estimate of the energy of all packages, J.
    pub energy_j: f64,
    /// What the scheduler counted.
    pub sched: SchedCounters,
}

impl Outcome {
    /// A group by name.
    pub fn group(&self, name: &str) -> Option<&GroupOutcome> {
        self.groups.iter().find(|group| group.name == name)
    }

    /// A source by name.
    pub fn source(&self, name: &str) -> Option<&SourceOutcome> {
        self.sources.iter().find(|source| source.name == name)
    }
}

impl super::Cpu {
    /// What its task got since this was last asked, or since it started.
    pub(super) fn take_run(&mut self) -> Run {
        let sums = &self.sums;
        let now = Run {
            ns: sums.busy_ns,
            khz_ns: sums.khz_ns,
            reduced_ns: sums.busy_ns - sums.level_ns[0],
        };
        let before = std::mem::replace(&mut self.started, now);
        Run {
            ns: now.ns - before.ns,
            khz_ns: now.khz_ns - before.khz_ns,
            reduced_ns: now.reduced_ns - before.reduced_ns,
        }
    }
}

fn mean(khz_ns: u128, ns: u128) -> Option<f64> {
    (ns > 0).then(|| khz_ns as f64 / ns as f64)
}

impl<S: Scheduler, K: Sink> Engine<S, K> {
    /// Counting begins now.
    pub(super) fn begin_measuring(&mut self) {
        self.sync_all();
        self.keep_energy_since_looks();
        for c in &mut self.cpus {
            c.sums = CpuSums::default();
            c.started = Run::default();
        }
        self.stats.restart(self.sys.now_ns, self.sched.counters());
    }

    fn sync_all(&mut self) {
        for cpu in 0..self.cpus.len() {
            self.sync(cpu);
        }
    }

    /// What came out so far.
    pub fn outcome(&mut self) -> Outcome {
        self.sync_all();
        for cpu in 0..self.cpus.len() {
            let c = &mut self.cpus[cpu];
            if c.curr != crate::sys::NO_TASK {
                let group = self.tasks[c.curr as usize].group as usize;
                let run = c.take_run();
                self.stats.ran(group, run);
            }
        }
        let stats = &self.stats;
        let measured_ns = self.sys.now_ns - stats.since_ns;
        let cpus = self.cpus.iter().map(|c| &c.sums);
        let all = |f: &dyn Fn(&CpuSums) -> u64| cpus.clone().map(f).map(u128::from).sum::<u128>();
        let idle_w = self.platform.idle_w * self.packages.len() as f64;
        Outcome {
            measured_ns,
            groups: self.groups_out(),
            sources: self.sources_out(),
            cpus: cpus.clone().map(|sums| self.cpu_out(sums)).collect(),
            mean_khz: mean(all(&|c| c.khz_ns), all(&|c| c.busy_ns)),
            switches: stats.switches,
            migrations: stats.migrations,
            wakeups: stats.wakeups,
            ticks: stats.ticks,
            events: stats.events - stats.events_before,
            energy_j: idle_w * measured_ns as f64 / 1e9 + all(&|c| c.mw_ns) as f64 / 1e12,
            sched: self.sched.counters().since(&stats.sched_before),
        }
    }

    fn cpu_out(&self, sums: &CpuSums) -> CpuOutcome {
        CpuOutcome {
            busy_ns: sums.busy_ns,
            mean_khz: mean(sums.khz_ns.into(), sums.busy_ns.into()),
            level_ns: sums.level_ns[..self.platform.nr_levels()].to_vec(),
        }
    }

    fn groups_out(&self) -> Vec<GroupOutcome> {
        let groups = self.workload.groups.iter().zip(&self.stats.groups);
        groups
            .map(|(group, sums)| GroupOutcome {
                name: group.name.clone(),
                cpu_ns: sums.cpu_ns,
                mean_khz: mean(sums.khz_ns, sums.cpu_ns.into()),
                reduced_ns: sums.reduced_ns,
                starts: sums.starts,
                completed: sums.completed,
                wait: sums.wait.clone(),
                ended_ns: sums.ended_ns,
            })
            .collect()
    }

    fn sources_out(&self) -> Vec<SourceOutcome> {
        let sources = self.workload.sources.iter().zip(&self.stats.sources);
        sources
            .map(|(source, sums)| SourceOutcome {
                name: source.name.clone(),
                to_group: source.to_group as usize,
                asked: sums.asked,
                latency: sums.latency.clone(),
            })
            .collect()
    }
}
