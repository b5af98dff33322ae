// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is read at one moment: counts of CPUs and tasks, and what the lane says.
//!
//! Two sources. /proc and cpufreq are there on every machine, and know how busy a CPU is. The lane
//! knows types, levels and roles, and accounts for tasks by the nanosecond; where it does, the
//! threads in /proc are not read: on a machine with ten thousand of them that costs ten thousand
//! files an interval, the lane's list none.
//!
//! The lane is asked anew each time, over a connection of its own: its control socket serves one
//! client at a time, and a monitor that stays must not keep `turbolane ctl` out. One that comes,
//! ends or restarts meanwhile is followed.

use std::io;

use hw::Source;
use hw::activity::{self, CpuTicks, TaskTicks};
use hw::levels::{LevelCounters, LevelCycles, why_not};
use report::lane::{LaneStats, LaneStatus, LaneTasks};

/// Samples after which all tasks are asked for again, so that those that have ended are forgotten.
const FULL_LIST_EVERY: u32 = 60;

/// What the lane answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaneAnswer {
    /// Which lane it is, and its CPUs.
    pub status: LaneStatus,
    /// What it has counted.
    pub stats: LaneStats,
    /// Tasks that ran since the time that was asked about.
    pub tasks: LaneTasks,
}

/// Someone who can ask the lane.
pub trait AskLane: Send {
    /// Its answer, or why there is none.
    fn ask(&mut self, tasks_since_ns: u64) -> Result<LaneAnswer, String>;
}

/// Someone who counts cycles at licence levels.
pub trait CountLevels: Send {
    /// Of each of these CPUs, or why there is no count.
    fn count(&mut self, cpus: &[u32]) -> Result<Vec<LevelCycles>, String>;
}

impl CountLevels for LevelCounters {
    fn count(&mut self, cpus: &[u32]) -> Result<Vec<LevelCycles>, String> {
        cpus.iter().map(|cpu| self.read(*cpu).map_err(|error| why_not(&error))).collect()
    }
}

/// No counters, and why.
pub struct NoCounters(pub String);

impl CountLevels for NoCounters {
    fn count(&mut self, _cpus: &[u32]) -> Result<Vec<LevelCycles>, String> {
        Err(self.0.clone())
    }
}

/// One moment.
#[derive(Clone, Debug)]
pub struct Sample {
    /// When, by any clock that only grows.
    pub at_ns: u64,
    /// Times of the online CPUs.
    pub cpus: Vec<CpuTicks>,
    /// Frequencies of the same CPUs, kHz.
    pub frequencies_khz: Vec<Option<u32>>,
    /// Cycles at licence levels of the same CPUs, or why there are none.
    pub levels: Result<Vec<LevelCycles>, String>,
    /// The lane's answer, or why there is none.
    pub lane: Result<LaneAnswer, String>,
    /// The lane listed every task that ever ran, not only those that ran lately.
    pub is_full_list: bool,
    /// Threads of /proc, where the lane does not account for tasks.
    pub proc_tasks: Vec<TaskTicks>,
}

/// Takes samples.
pub struct Sampler<S> {
    source: S,
    lane: Box<dyn AskLane>,
    levels: Box<dyn CountLevels>,
    pids: Vec<u32>,
    since_ns: u64,
    lane_pid: Option<u32>,
    samples_to_full_list: u32,
}

impl<S: Source> Sampler<S> {
    /// Samples of this machine and this lane; threads of these processes only, or of all.
    pub fn new(
        source: S,
        lane: Box<dyn AskLane>,
        levels: Box<dyn CountLevels>,
        pids: Vec<u32>,
    ) -> Self {
        let samples_to_full_list = 0;
        Sampler { source, lane, levels, pids, since_ns: 0, lane_pid: None, samples_to_full_list }
    }

    /// The state of things at `at_ns`. An error if the machine does not report its CPUs.
    pub fn sample(&mut self, at_ns: u64) -> io::Result<Sample> {
        let cpus = activity::cpus(&self.source)?;
        let frequency = |cpu: &CpuTicks| activity::frequency_khz(&self.source, cpu.cpu);
        let frequencies_khz = cpus.iter().map(frequency).collect();
        let numbers: Vec<u32> = cpus.iter().map(|cpu| cpu.cpu).collect();
        let levels = self.levels.count(&numbers);
        let (lane, is_full_list) = self.ask_lane();
        let proc_tasks = match &lane {
            Ok(LaneAnswer { tasks: LaneTasks { tasks: Some(_), .. }, .. }) => Vec::new(),
            _ => activity::tasks(&self.source, &self.pids)?,
        };
        Ok(Sample { at_ns, cpus, frequencies_khz, levels, lane, is_full_list, proc_tasks })
    }

    fn ask_lane(&mut self) -> (Result<LaneAnswer, String>, bool) {
        if self.samples_to_full_list == 0 {
            self.since_ns = 0;
        }
        let mut answer = self.lane.ask(self.since_ns);
        let pid = answer.as_ref().ok().map(|answer| answer.status.pid);
        if pid.is_some() && pid != self.lane_pid && self.since_ns != 0 {
            // Another lane, of whose tasks nothing is known yet.
            self.since_ns = 0;
            answer = self.lane.ask(0);
        }
        let is_full_list = self.since_ns == 0;
        self.lane_pid = answer.as_ref().ok().map(|answer| answer.status.pid);
        self.since_ns = answer.as_ref().map_or(0, |answer| answer.tasks.now_ns);
        self.samples_to_full_list =
            if is_full_list { FULL_LIST_EVERY } else { self.samples_to_full_list - 1 };
        (answer, is_full_list)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{Machine, answer};
    use std::sync::{Arc, Mutex};

    /// A lane that plays back answers and keeps what it was asked.
    struct Played {
        answers: Vec<Result<LaneAnswer, String>>,
        asked: Arc<Mutex<Vec<u64>>>,
    }

    impl AskLane for Played {
        fn ask(&mut self, since_ns: u64) -> Result<LaneAnswer, String> {
            self.asked.lock().unwrap().push(since_ns);
            if self.answers.len() > 1 { self.answers.remove(0) } else { self.answers[0].clone() }
        }
    }

    fn sampler(
        machine: &Machine,
        answers: Vec<Result<LaneAnswer, String>>,
    ) -> (Sampler<hw::Rooted>, Arc<Mutex<Vec<u64>>>) {
        let asked = Arc::new(Mutex::new(Vec::new()));
        let lane = Box::new(Played { answers, asked: Arc::clone(&asked) });
        let levels = Box::new(NoCounters("no counters".into()));
        (Sampler::new(machine.source(), lane, levels, Vec::new()), asked)
    }

    fn at(pid: u32, now_ns: u64) -> Result<LaneAnswer, String> {
        let mut answer = answer();
        answer.status.pid = pid;
        answer.tasks.now_ns = now_ns;
        Ok(answer)
    }

    /// Without a lane, CPUs, frequencies and threads come from the files, and the reason is kept.
    #[test]
    fn a_machine_without_a_lane_is_sampled() {
        let machine = Machine::new();
        machine.cpu(0, 50, 50).cpu(1, 10, 90).frequency(1, 2_800_000).task(7, 9, "worker", 30);
        let (mut sampler, _) = sampler(&machine, vec![Err("none runs".into())]);
        let sample = sampler.sample(5).unwrap();
        assert_eq!((sample.at_ns, sample.cpus.len()), (5, 2));
        assert_eq!(sample.frequencies_khz, [None, Some(2_800_000)]);
        assert_eq!(sample.lane, Err("none runs".into()));
        assert_eq!(sample.levels, Err("no counters".into()));
        assert_eq!(sample.proc_tasks[0].name, "worker");
    }

    /// The lane's account replaces the threads of /proc; in affinity mode there is none.
    #[test]
    fn the_lane_accounts_for_tasks_if_it_can() {
        let machine = Machine::new();
        machine.cpu(0, 50, 50).task(7, 9, "worker", 30);
        let mut affinity = answer();
        affinity.tasks.tasks = None;
        let (mut sampler, _) = sampler(&machine, vec![at(1, 10), Ok(affinity)]);
        assert_eq!(sampler.sample(0).unwrap().proc_tasks, []);
        assert_eq!(sampler.sample(1).unwrap().proc_tasks.len(), 1);
    }

    /// After the first list only what ran since is asked for; another lane is asked for all.
    #[test]
    fn another_lane_is_asked_anew() {
        let machine = Machine::new();
        machine.cpu(0, 50, 50);
        let answers = vec![at(1, 10), at(1, 20), at(2, 30), at(2, 31), at(2, 40)];
        let (mut sampler, asked) = sampler(&machine, answers);
        let full: Vec<bool> = (0..4).map(|at| sampler.sample(at).unwrap().is_full_list).collect();
        assert_eq!(full, [true, false, true, false]);
        assert_eq!(*asked.lock().unwrap(), [0, 10, 20, 0, 31]);
    }

    /// Now and then the list is a full one, whatever happens.
    #[test]
    fn the_full_list_is_asked_for_again() {
        let machine = Machine::new();
        machine.cpu(0, 50, 50);
        let (mut sampler, _) = sampler(&machine, vec![at(1, 10)]);
        let full = (0..130).filter(|at| sampler.sample(*at).unwrap().is_full_list).count();
        assert_eq!(full, 3);
    }

    /// A machine without /proc cannot be sampled.
    #[test]
    fn no_proc_fails() {
        let (mut sampler, _) = sampler(&Machine::new(), vec![at(1, 10)]);
        assert_eq!(sampler.sample(0).unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
