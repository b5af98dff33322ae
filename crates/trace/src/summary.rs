// SPDX-License-Identifier: MIT OR Apache-2.0
//! A recording in numbers: who ran how long, how much of it inside of marked functions, who waited
//! how long.

use std::collections::BTreeMap;

use cpumodel::MAX_LEVELS;
use report::record::{
    CpuLevels, LatencySummary, LevelsSummary, MarkSummary, RecordSummary, StallSummary, TaskLevels,
    TaskSummary,
};

use crate::event::{Event, What, Why};
use crate::follow::{Follower, Run, Task, TaskId, Visit, Wait};
use crate::info::Info;
use crate::reader::Ending;

/// Counts as a recording is read.
#[derive(Default)]
pub struct Summary {
    tasks: Vec<Counted>,
    marks: Vec<u64>,
    waits_ns: Vec<u64>,
    switches: u64,
    wakes: u64,
    migrations: u64,
    syscalls: u64,
    traps: u64,
    events: u64,
    lost: u64,
    lost_cpus: Vec<u64>,
    idle_ns: u64,
    stalls: StallSummary,
    level_samples: u64,
    level_cycles: Vec<u64>,
    cpu_level_cycles: BTreeMap<u16, Vec<u64>>,
}

#[derive(Clone, Default)]
struct Counted {
    /// Who it is, is added at the end.
    sums: TaskSummary,
    level_cycles: Vec<u64>,
}

impl Summary {
    fn task(&mut self, task: TaskId) -> &mut Counted {
        if task >= self.tasks.len() {
            self.tasks.resize(task + 1, Counted::default());
        }
        &mut self.tasks[task]
    }

    /// Cycles by licence level, if there were samples.
    fn levels(&self, follower: &Follower) -> Option<LevelsSummary> {
        let counted = follower.tasks().iter().zip(&self.tasks);
        let mut tasks: Vec<TaskLevels> = counted
            .filter(|(_, counted)| !counted.level_cycles.is_empty())
            .map(|(task, counted)| TaskLevels {
                tid: task.tid,
                name: task.name.to_string(),
                level_cycles: counted.level_cycles.clone(),
            })
            .collect();
        let all = |cycles: &[u64]| cycles.iter().fold(0, |sum: u64, one| sum.saturating_add(*one));
        tasks.sort_by_key(|task| (std::cmp::Reverse(all(&task.level_cycles)), task.tid));
        let cpus = self.cpu_level_cycles.iter();
        let cpus = cpus.map(|(&cpu, level_cycles)| CpuLevels {
            cpu: cpu.into(),
            level_cycles: level_cycles.clone(),
        });
        (self.level_samples > 0).then(|| LevelsSummary {
            samples: self.level_samples,
            level_cycles: self.level_cycles.clone(),
            cpus: cpus.collect(),
            tasks,
        })
    }

    /// What was counted.
    pub fn finish(self, info: &Info, follower: &Follower, ending: Ending) -> RecordSummary {
        let (complete, late) = match ending {
            Ending::Complete(end) => (true, end.late),
            Ending::Partial { .. } => (false, 0),
        };
        let contradictions = follower.contradictions();
        let marks = info.marks.iter().enumerate().map(|(at, mark)| MarkSummary {
            name: mark.name.clone(),
            level: mark.level,
            calls: self.marks.get(at).copied().unwrap_or(0),
        });
        let lost_cpus = self.lost_cpus.iter().enumerate().filter(|(_, lost)| **lost > 0);
        RecordSummary {
            target: info.target.clone(),
            kernel: info.kernel.clone(),
            processor: info.processor.clone(),
            cpus: info.cpus.clone(),
            license_counters: info.license_counters.clone(),
            complete,
            duration_ns: follower.now_ns().saturating_sub(info.start_ns),
            events: self.events,
            lost_events: self.lost,
            lost_cpus: lost_cpus.map(|(cpu, lost)| (cpu as u32, *lost)).collect(),
            late_events: late,
            contradicting_switches: contradictions.switches,
            unpaired_returns: contradictions.returns,
            switches: self.switches,
            wakes: self.wakes,
            migrations: self.migrations,
            syscalls: info.syscalls.then_some(self.syscalls),
            traps: self.traps,
            idle_ns: info.everybody.then_some(self.idle_ns),
            stalls: info.stalls.then_some(self.stalls),
            levels: self.levels(follower),
            wake_latency: latency(self.waits_ns),
            marks: marks.collect(),
            tasks: tasks(&self.tasks, follower),
        }
    }
}

/// Adds cycles at a level, those above the highest to the highest; what no counter can count sticks
/// at the largest number.
fn add_cycles(sums: &mut Vec<u64>, license_level: u8, cycles: u64) {
    // A file may name 256; each task would have a list of them.
    let level = usize::from(license_level).min(MAX_LEVELS - 1);
    sums.resize(sums.len().max(level + 1), 0);
    sums[level] = sums[level].saturating_add(cycles);
}

/// Tasks that ran, those that ran longest first.
fn tasks(counted: &[Counted], follower: &Follower) -> Vec<TaskSummary> {
    let ran = follower.tasks().iter().zip(counted).filter(|(_, counted)| counted.sums.runs > 0);
    let mut tasks: Vec<TaskSummary> = ran
        .map(|(task, counted)| TaskSummary {
            tid: task.tid,
            pid: task.tgid,
            name: task.name.to_string(),
            ..counted.sums.clone()
        })
        .collect();
    tasks.sort_by_key(|task| (std::cmp::Reverse(task.run_ns), task.tid));
    tasks
}

/// Exact percentiles by the nearest rank: a recording's waits fit into memory, at 8 bytes each.
fn latency(mut waits_ns: Vec<u64>) -> Option<LatencySummary> {
    if waits_ns.is_empty() {
        return None;
    }
    waits_ns.sort_unstable();
    let count = waits_ns.len();
    let percentile = |per_mille: usize| waits_ns[(count * per_mille).div_ceil(1000).max(1) - 1];
    Some(LatencySummary {
        count: count as u64,
        p50_ns: percentile(500),
        p90_ns: percentile(900),
        p99_ns: percentile(990),
        p999_ns: percentile(999),
        max_ns: waits_ns[count - 1],
    })
}

impl Visit for Summary {
    fn ran(&mut self, run: &Run, _: &Task) {
        let ran_ns = run.end_ns.saturating_sub(run.start_ns);
        let task = &mut self.task(run.task).sums;
        task.run_ns = task.run_ns.saturating_add(ran_ns);
        let wide_ns = if run.level > 0 { ran_ns } else { 0 };
        task.wide_ns = task.wide_ns.saturating_add(wide_ns);
        task.runs += u64::from(run.why.is_some());
        task.sleeps += u64::from(matches!(run.why, Some(Why::Sleeps | Why::Blocks)));
    }

    fn waited(&mut self, wait: &Wait, _: &Task) {
        let waited_ns = wait.end_ns.saturating_sub(wait.start_ns);
        let task = &mut self.task(wait.task).sums;
        task.wait_ns = task.wait_ns.saturating_add(waited_ns);
        task.longest_wait_ns = task.longest_wait_ns.max(waited_ns);
        if wait.woken {
            self.waits_ns.push(waited_ns);
        }
    }

    fn idled(&mut self, _: u16, start_ns: u64, end_ns: u64) {
        self.idle_ns = self.idle_ns.saturating_add(end_ns.saturating_sub(start_ns));
    }

    fn event(&mut self, event: &Event, task: Option<TaskId>) {
        self.events += 1;
        if let What::Stall { ns } = event.what {
            let StallSummary { count, total_ns, longest_ns } = &mut self.stalls;
            (*count, *total_ns) = (*count + 1, total_ns.saturating_add(ns));
            *longest_ns = ns.max(*longest_ns);
        }
        if let What::Lost { events } = event.what {
            self.lost = self.lost.saturating_add(events);
            let cpu = usize::from(event.cpu);
            self.lost_cpus.resize(self.lost_cpus.len().max(cpu + 1), 0);
            self.lost_cpus[cpu] = self.lost_cpus[cpu].saturating_add(events);
        }
        let Some(task) = task else { return };
        match event.what {
            What::Switch { .. } => self.switches += 1,
            What::Wake { .. } => {
                self.wakes += 1;
                self.task(task).sums.wakes += 1;
            }
            What::Migrate { .. } => {
                self.migrations += 1;
                self.task(task).sums.migrations += 1;
            }
            What::Syscall { .. } => self.syscalls += 1,
            What::Trap { .. } => {
                self.traps += 1;
                self.task(task).sums.traps += 1;
            }
            What::LevelCycles { license_level, cycles } => {
                self.level_samples += 1;
                add_cycles(&mut self.level_cycles, license_level, cycles);
                let cpu = self.cpu_level_cycles.entry(event.cpu).or_default();
                add_cycles(cpu, license_level, cycles);
                add_cycles(&mut self.task(task).level_cycles, license_level, cycles);
            }
            What::Mark { mark } => {
                let mark = mark as usize;
                // As many as there can be: a damaged file must not name others.
                self.marks.resize(self.marks.len().max((mark + 1).min(MARKS_MAX)), 0);
                if let Some(calls) = self.marks.get_mut(mark) {
                    *calls += 1;
                }
                self.task(task).sums.marks += 1;
            }
            _ => {}
        }
    }
}

/// More marks than a block of information can name.
const MARKS_MAX: usize = 1 << 18;
