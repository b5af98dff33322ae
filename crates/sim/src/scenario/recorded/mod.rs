// SPDX-License-Identifier: MIT OR Apache-2.0
//! A scenario from a recording: your own service, to be simulated on any CPU under any policy.
//!
//! Problem: a recording says *when* each task ran and slept, on one machine under one scheduler. On
//! another one all of these times change. What stays is what the program does: so many cycles of
//! this kind of code, then a wait for that.
//!
//! Idea: each task becomes a program that repeats what the task did, in its order:
//!
//! | recorded | in the program |
//! |---|---|
//! | time on a CPU | `work`, in cycles ([`cycles`]), wide where marks or licence levels say so |
//! | a system call, if recorded | `syscall_cycles` |
//! | a sleep that a recorded task ended | `take` from the task's own queue, and a `put` where the waker was |
//! | a sleep that something else ended | see below |
//!
//! Takes and puts keep the order of the recording whatever the speeds: each task reads its own
//! queue, in a fixed order, and writes to fixed queues (a process network, Kahn 1974). So what ran
//! to its end in the recording can do so under every scheduler.
//!
//! **Arrivals.** What ends other sleeps is outside of the recording: a device, a timer, a client
//! elsewhere. Two answers bound what it does on a faster machine ([`Arrivals`]):
//!
//! - *closed*: it answers after the same time. The sleep lasts as long as it did, and a faster
//!   machine gets more done. This is a server whose clients wait for it, and batch work.
//! - *open*: it comes when it comes. A source sends to the group at the recorded rate; a faster
//!   machine gets the same done, and answers sooner.
//!
//! Unless the user says which, a load is closed if its tasks seldom sleep, or wait for CPUs for a
//! tenth of the time that they run: it is the CPUs that limit it. Else it is open.
//!
//! **What is counted.** With closed arrivals work is counted in millions of cycles, or in returns
//! from a marked function that the user names; with open ones, in sleeps that ended.
//!
//! **What is missing.** Lost events would be work that no task does: a recording that lost some is
//! refused. One that was cut off is a recording of what came before; one of another kernel or
//! machine is read like any other, for it holds no kernel's structures. What a recording does not
//! show is in the file's head ([`Made::gaps`]).
//!
//! Limits: caches, memory and devices are as fast as they were; how much of the work waits for
//! memory is for the user to say. Priorities are not recorded. Sleeps that end by a timer of the
//! task itself count as arrivals. A task that ended sleeps until the others begin anew.

mod courses;
mod cycles;
mod groups;
mod text;

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

use cpumodel::{CpuSet, Platform};
use trace::follow::{Run, Task, TaskId, Visit, Wait};
use trace::levels::Levels;
use trace::{Event, Info, What};

pub use groups::GroupMade;

/// What ends the sleeps that no recorded task ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrivals {
    /// It comes when it is waited for.
    Closed,
    /// It comes at the recorded rate.
    Open,
}

/// How a recording becomes a scenario.
#[derive(Clone, Debug)]
pub struct Request<'a> {
    /// Name of the scenario.
    pub name: String,
    /// The machine that was recorded, by id or file.
    pub machine: String,
    /// The same.
    pub platform: &'a Platform,
    /// Its cores that were active; `None`: as many as the recorded tasks kept busy.
    pub active_cores: Option<usize>,
    /// `None`: see the module.
    pub arrivals: Option<Arrivals>,
    /// Number of the mark whose returns are counted as work.
    pub counts: Option<u32>,
    /// Cycles of wide code without wide instructions, as a multiple: for a variant `none`.
    pub none_scale: Option<f64>,
    /// CPUs that bound tasks run on instead of those that they were bound to: as many more tasks as
    /// there are more CPUs, and never fewer, since some may wait for others.
    pub onto: Option<CpuSet>,
    /// Part of the work that follows the clock, 0..=1; the rest waits for memory
    /// ([`crate::program::Memory`]).
    pub sensitive_frac: f64,
    /// The recording has no end: it was cut off, or is still being written.
    pub is_partial: bool,
}

/// Why a recording is no scenario.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Unusable {
    /// What is missing would be work that nobody did.
    #[error("{0} events were lost")]
    Lost(u64),
    /// Nothing says what is wide.
    #[error("it has neither marked functions that ran nor licence levels")]
    NoWide,
    /// Nobody ran.
    #[error("no task ran in it")]
    Empty,
    /// The CPU model is smaller than what was recorded.
    #[error("it has CPU {cpu}, and the machine has {nr_cpus} CPUs")]
    TooSmall {
        /// A recorded CPU.
        cpu: usize,
        /// CPUs of the model.
        nr_cpus: usize,
    },
    /// Nobody called the function that is counted.
    #[error("no task that is kept returned from the function whose calls are counted")]
    Uncounted,
}

/// A scenario, and what is to be said of it.
#[derive(Clone, Debug)]
pub struct Made {
    /// The file.
    pub text: String,
    /// What ends sleeps.
    pub arrivals: Arrivals,
    /// A unit of work, as the file has it.
    pub work: String,
    /// Groups of tasks, the busiest first.
    pub groups: Vec<GroupMade>,
    /// Tasks that were left out because they ran for too short a time, and their share of all CPU
    /// time, 0..=1.
    pub left_out: (usize, f64),
    /// Of the recording, what the scenario has; shorter than all of it where it has too many steps.
    pub window_ns: u64,
    /// Length of the recording.
    pub recorded_ns: u64,
    /// Cores whose clock was assumed.
    pub active_cores: usize,
    /// Cycles were counted, and not computed from time.
    pub counted: bool,
    /// What the recording does not show, in sentences; the file has them too.
    pub gaps: Vec<&'static str>,
}

/// Something that a task did at a moment, besides running.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Point {
    Enter,
    Exit,
    /// It returned from the function that is counted.
    Counts,
    /// It woke another.
    Wakes(TaskId),
}

/// A wake-up.
#[derive(Clone, Copy, Debug)]
struct Woken {
    task: TaskId,
    at_ns: u64,
    cpu: u16,
    /// The kernel's number; 0: none.
    waker: u32,
    /// How long before `at_ns` it was runnable.
    delay_ns: u32,
}

/// Collects what a recording has for a scenario.
#[derive(Debug)]
pub struct Collector {
    counts: Option<u32>,
    /// Of the recording, by its clock, what is taken.
    start_ns: u64,
    until_ns: u64,
    runs: Vec<Run>,
    levels: Levels,
    woken: Vec<Woken>,
    points: HashMap<TaskId, Vec<(u64, Point)>>,
    affinities: HashMap<TaskId, CpuSet>,
    /// By task: how long it waited for a CPU.
    waited_ns: BTreeMap<TaskId, u64>,
    lost: u64,
}

impl Collector {
    /// Takes what lies in this part of the recording, as time since its begin. Counts the returns
    /// from this mark, if one is given.
    pub fn new(info: &Info, window_ns: Range<u64>, counts: Option<u32>) -> Self {
        Collector {
            counts,
            start_ns: info.start_ns.saturating_add(window_ns.start),
            until_ns: info.start_ns.saturating_add(window_ns.end),
            runs: Vec::new(),
            levels: Levels::default(),
            woken: Vec::new(),
            points: HashMap::new(),
            affinities: HashMap::new(),
            waited_ns: BTreeMap::new(),
            lost: 0,
        }
    }

    /// What of a time lies in the window.
    fn within(&self, start_ns: u64, end_ns: u64) -> Option<(u64, u64)> {
        let (start_ns, end_ns) = (start_ns.max(self.start_ns), end_ns.min(self.until_ns));
        (start_ns < end_ns).then_some((start_ns, end_ns))
    }

    /// The scenario, after the recording's end.
    pub fn finish(
        self,
        info: &Info,
        tasks: &[Task],
        end_ns: u64,
        request: &Request<'_>,
    ) -> Result<Made, Unusable> {
        if self.lost > 0 {
            return Err(Unusable::Lost(self.lost));
        }
        let end_ns = end_ns.min(self.until_ns);
        let courses = courses::of(self, info, tasks, end_ns, request)?;
        if request.counts.is_some() && !courses.count() {
            return Err(Unusable::Uncounted);
        }
        let groups = groups::of(&courses, tasks);
        Ok(text::write(courses, groups, info, request))
    }
}

impl Visit for Collector {
    fn event(&mut self, event: &Event, task: Option<TaskId>) {
        self.levels.take(event);
        if let What::Lost { events } = event.what {
            self.lost = self.lost.saturating_add(events);
        }
        let Some(task) = task else { return };
        if let What::Affinity { cpus } = &event.what {
            self.affinities.insert(task, **cpus);
        }
        if !(self.start_ns..=self.until_ns).contains(&event.at_ns) {
            return;
        }
        let point = match &event.what {
            What::Wake { waker, delay_ns, .. } => {
                let (at_ns, cpu) = (event.at_ns, event.cpu);
                self.woken.push(Woken { task, at_ns, cpu, waker: *waker, delay_ns: *delay_ns });
                return;
            }
            What::Syscall { .. } => Point::Enter,
            What::SyscallReturn { .. } => Point::Exit,
            What::MarkReturn { mark } if Some(*mark) == self.counts => Point::Counts,
            _ => return,
        };
        self.points.entry(task).or_default().push((event.at_ns, point));
    }

    fn ran(&mut self, run: &Run, _task: &Task) {
        if let Some((start_ns, end_ns)) = self.within(run.start_ns, run.end_ns) {
            self.runs.push(Run { start_ns, end_ns, ..*run });
        }
    }

    fn waited(&mut self, wait: &Wait, _task: &Task) {
        if let Some((start_ns, end_ns)) = self.within(wait.start_ns, wait.end_ns) {
            *self.waited_ns.entry(wait.task).or_default() += end_ns - start_ns;
        }
    }
}
