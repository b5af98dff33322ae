// SPDX-License-Identifier: MIT OR Apache-2.0
//! Recordings of real machines, judged by the checkers of simulations ([`crate::check`]).
//!
//! Problem: a simulation reports every task from its begin, and every change when it happens. A
//! recording begins in the middle, and has a task's type only at its switches.
//!
//! Idea: only what was seen can be a violation. A task that is first seen running has just started,
//! one that starts without a wake-up was woken at that moment. A type counts from the switch that
//! records it. A task that may not migrate now is one whose affinity is its CPU.
//!
//! What can be checked depends on who scheduled: order and liveness always; class, wide first and
//! work conservation where the lane's scheduler ran, which promises them. The kernel's own
//! scheduler may leave CPUs idle for some milliseconds while tasks wait.
//!
//! Hidden tasks: some kernels let no program watch what certain tasks do (seen: process 1 of a
//! virtual machine whose kernel shields it). They start and wake, and never stop; what runs next is
//! not reported either. A task without any recorded stop is assumed to be hidden: its CPU's time
//! until the next event there, and the wait of the task that is found there, are not judged, and
//! the verdict counts them. If a stop of it is recorded later, its earlier ones are missing, and
//! that is a broken order.
//!
//! exec: a thread that calls it takes over the number of its process, and the process's first
//! thread, which has ended, takes its number. The kernel reports the new name when that is done,
//! and a moment later that the old number has ended; switches in between have the new one.
//!
//! Stalls: see [`stalls`]; a violation's time is the recording's, times in its text are without
//! stalls.
//!
//! Limits: a recording that lost events, or of some tasks only, cannot be judged. The lane's
//! classes are looked at once a second, so the check ends where they change. Real-time tasks go
//! before all others and are not distinguished.

mod stalls;

use std::collections::{BTreeSet, HashMap};

use cpumodel::CpuSet;
use trace::{Event, Info, Lane, What, Why};

use crate::bits::Mask;
use crate::check::{Bounds, Checker, Violation};
use crate::events::{Happened, Sink, Stop};
use crate::sys::Tid;

use stalls::Clock;
pub use stalls::{StallSum, Stalls};

/// Why a recording cannot be judged.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unjudged {
    /// Who ran in between is not known.
    #[error("it holds some tasks only")]
    SomeTasks,
    /// What is missing would look like a broken rule.
    #[error("{0} events were lost")]
    Lost(u64),
    /// Its online CPUs make no sense.
    #[error("its list of CPUs is damaged")]
    Cpus,
}

/// The verdict.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// Events that were checked, or the first rule that was broken.
    pub result: Result<u64, Violation>,
    /// Whether the lane's own promises were among the rules.
    pub lane: bool,
    /// Where the lane's classes changed, and the check ended.
    pub until_ns: Option<u64>,
    /// Time that was not judged because CPUs were stalled.
    pub stalls: StallSum,
    /// What could not be seen, and so was not judged.
    pub hidden: Hidden,
}

/// Tasks whose stops the kernel does not report.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Hidden {
    /// Their numbers.
    pub tids: BTreeSet<u32>,
    /// Stops that are not in the recording.
    pub stops: u64,
    /// Time of their CPUs from the missing stop, or before, to what was seen next.
    pub unseen_ns: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Waiting,
    Runnable,
    Running(u16),
    Ended,
}

#[derive(Clone)]
struct Task {
    id: Tid,
    state: State,
    kernel: bool,
    lane: Option<Lane>,
    affinity: Mask,
    /// Its affinity is recorded as the CPU that it may not leave now.
    bound: bool,
    /// Its number has ended: it has ended except for its last switch, or goes on under another.
    exited: bool,
    /// A stop of it was recorded: it is not hidden.
    told: bool,
}

/// What a CPU does, as far as was seen.
#[derive(Clone, Copy, Default)]
struct Cpu {
    runs: Option<u32>,
    since_ns: u64,
    /// A name was recorded here, of a task that did not seem to run here: perhaps the running one's
    /// new number.
    named: Option<u32>,
}

/// Turns a recording's events into the checkers'.
pub struct Judge {
    checker: Checker,
    nr_cpus: usize,
    lane: bool,
    start_ns: u64,
    clock: Clock,
    /// Time since the begin without stalls, and with them.
    now_ns: u64,
    real_ns: u64,
    /// When, with them, a rule was broken.
    broken_ns: Option<u64>,
    next_id: Tid,
    tasks: HashMap<u32, Task>,
    cpus: Vec<Cpu>,
    /// Affinities are known at all times; else no one is accused for where it runs.
    affinities: bool,
    until_ns: Option<u64>,
    lost: u64,
    hidden: Hidden,
    /// What the checker cannot see.
    contradiction: Option<Violation>,
}

impl Judge {
    /// For a recording that says this of itself, and has these stalls. The bounds count from its
    /// begin, as its times will be recorded.
    pub fn new(info: &Info, stalls: Stalls, bounds: Bounds) -> Result<Self, Unjudged> {
        if !info.everybody {
            return Err(Unjudged::SomeTasks);
        }
        let online: CpuSet = info.cpus.parse().map_err(|_| Unjudged::Cpus)?;
        let nr_cpus = online.highest().ok_or(Unjudged::Cpus)? + 1;
        let bounds = Bounds { conserves: bounds.conserves && info.lane, ..bounds };
        let mut judge = Judge {
            checker: Checker::new(nr_cpus, bounds),
            nr_cpus,
            lane: info.lane,
            start_ns: info.start_ns,
            clock: stalls.clock(info.start_ns),
            now_ns: 0,
            real_ns: 0,
            broken_ns: None,
            next_id: 0,
            tasks: HashMap::new(),
            cpus: vec![Cpu::default(); nr_cpus],
            affinities: info.affinities,
            until_ns: None,
            lost: 0,
            hidden: Hidden::default(),
            contradiction: None,
        };
        for cpu in (0..nr_cpus).filter(|cpu| !online.contains(*cpu)) {
            judge.tell(Happened::Online { cpu: cpu as u16, online: false });
        }
        Ok(judge)
    }

    /// Takes an event.
    pub fn take(&mut self, event: &Event) {
        if self.until_ns.is_some() {
            return;
        }
        self.real_ns = event.at_ns.saturating_sub(self.start_ns);
        self.now_ns = self.clock.at(event.at_ns);
        self.take_what(event);
        if self.checker.violation().is_some() || self.contradiction.is_some() {
            self.broken_ns.get_or_insert(self.real_ns);
        }
    }

    fn take_what(&mut self, event: &Event) {
        match &event.what {
            What::Task { kernel, .. } => self.create(event.tid, *kernel, None),
            What::Fork { parent, .. } => self.fork(event.tid, *parent),
            What::Exit => {
                if let Some(task) = self.tasks.get_mut(&event.tid) {
                    task.exited = true;
                }
            }
            What::Name { .. } => self.named(event.cpu, event.tid),
            What::Affinity { cpus } => self.affinity(event.tid, cpus),
            What::Wake { .. } => self.wake(event.tid),
            What::Switch { next, why, bound, lane, next_lane } => {
                self.stop(event.cpu, event.tid, *why, *bound, *lane);
                self.start(event.cpu, *next, *next_lane);
            }
            What::Class { class } => self.class(event.cpu, *class),
            What::Lost { events } => self.lost = self.lost.saturating_add(*events),
            _ => {}
        }
    }

    /// The verdict, at the end of the recording.
    pub fn finish(mut self, end_ns: u64) -> Result<Verdict, Unjudged> {
        if self.lost > 0 {
            return Err(Unjudged::Lost(self.lost));
        }
        let end_ns = self.until_ns.unwrap_or(end_ns);
        let real_ns = end_ns.saturating_sub(self.start_ns).max(self.real_ns);
        let judged_ns = self.clock.at(self.start_ns + real_ns);
        let result = self.checker.finish(judged_ns);
        let result = match (result, self.contradiction) {
            (Err(found), Some(ours)) if found.at_ns <= ours.at_ns => Err(found),
            (_, Some(ours)) => Err(ours),
            (result, None) => result,
        };
        let at_ns = self.broken_ns.unwrap_or(real_ns);
        Ok(Verdict {
            result: result.map_err(|violation| Violation { at_ns, ..violation }),
            lane: self.lane,
            until_ns: self.until_ns,
            stalls: self.clock.sum,
            hidden: self.hidden,
        })
    }

    fn tell(&mut self, what: Happened<'_>) {
        self.checker.happened(self.now_ns, &what);
    }

    /// A task that is met. Without a parent it may run everywhere until its affinity is recorded.
    fn create(&mut self, tid: u32, kernel: bool, affinity: Option<Mask>) {
        let affinity = affinity.unwrap_or_else(|| Mask::full(self.nr_cpus));
        let id = self.next_id;
        self.next_id += 1;
        self.tell(Happened::New { task: id, affinity: &affinity, kernel });
        let state = State::Waiting;
        let task = Task {
            id,
            state,
            kernel,
            lane: None,
            affinity,
            bound: false,
            exited: false,
            told: false,
        };
        self.tasks.insert(tid, task);
    }

    /// A child is a kernel thread if its parent is one, and may run where its parent may.
    fn fork(&mut self, tid: u32, parent: u32) {
        // The number may have been another task's, whose end was lost.
        self.tasks.remove(&tid);
        let parent = self.tasks.get(&parent).map(|task| (task.kernel, task.affinity.clone()));
        let (kernel, affinity) = parent.unzip();
        self.create(tid, kernel.unwrap_or(false), affinity);
    }

    /// A task has a name. If it is not the one that runs here, whose number has ended, then it is:
    /// exec.
    fn named(&mut self, cpu: u16, tid: u32) {
        let at = usize::from(cpu);
        let Some(runs) = self.cpus.get(at).and_then(|cpu| cpu.runs) else { return };
        if runs == tid {
            return;
        }
        self.cpus[at].named = Some(tid);
        if self.tasks.get(&runs).is_some_and(|task| task.exited) {
            self.takes_over(at, runs, tid);
        }
    }

    /// The task that runs on the CPU has the number `new`; the one that had it has `old`, if it has
    /// not ended.
    fn takes_over(&mut self, at: usize, old: u32, new: u32) {
        let (caller, leader) = (self.tasks.remove(&old), self.tasks.remove(&new));
        if let Some(leader) = leader.filter(|task| task.state != State::Ended) {
            if let State::Running(cpu) = leader.state {
                self.cpus[usize::from(cpu)].runs = Some(old);
            }
            self.tasks.insert(old, leader);
        }
        if let Some(caller) = caller {
            self.tasks.insert(new, Task { exited: false, ..caller });
        }
        self.cpus[at] = Cpu { runs: Some(new), named: None, ..self.cpus[at] };
    }

    fn task(&mut self, tid: u32) -> &mut Task {
        if self.tasks.get(&tid).is_none_or(|task| task.state == State::Ended) {
            self.create(tid, false, None);
        }
        self.tasks.get_mut(&tid).expect("just created")
    }

    fn affinity(&mut self, tid: u32, cpus: &CpuSet) {
        if !self.affinities {
            return;
        }
        let nr_cpus = self.nr_cpus;
        let task = self.task(tid);
        task.affinity = Mask::of(nr_cpus, cpus.iter().filter(|cpu| *cpu < nr_cpus));
        if !task.bound {
            let (id, affinity) = (task.id, task.affinity.clone());
            self.tell(Happened::Affinity { task: id, affinity: &affinity });
        }
    }

    fn wake(&mut self, tid: u32) {
        let task = self.task(tid);
        if task.state == State::Waiting {
            task.state = State::Runnable;
            let id = task.id;
            self.tell(Happened::Wake { task: id });
        }
    }

    /// What the scheduler takes the task for, as a switch records it.
    fn lane(&mut self, tid: u32, lane: Option<Lane>) {
        let task = self.task(tid);
        let Some(now) = lane.filter(|_| task.lane != lane) else { return };
        task.lane = lane;
        let id = task.id;
        self.tell(Happened::Type { task: id, task_type: now.task_type, level: now.level });
    }

    fn start(&mut self, cpu: u16, tid: u32, lane: Option<Lane>) {
        let at = usize::from(cpu);
        if tid == 0 || at >= self.nr_cpus {
            return;
        }
        if let State::Running(other) = self.task(tid).state
            && !self.task(tid).told
        {
            self.stopped_unseen(usize::from(other), tid);
        }
        self.wake(tid);
        self.lane(tid, lane);
        let task = self.task(tid);
        task.state = State::Running(cpu);
        let id = task.id;
        self.tell(Happened::Start { task: id, cpu });
        self.cpus[at] = Cpu { runs: Some(tid), since_ns: self.now_ns, named: None };
        let task = self.task(tid);
        if std::mem::take(&mut task.bound) {
            let affinity = task.affinity.clone();
            self.tell(Happened::Affinity { task: id, affinity: &affinity });
        }
    }

    fn stop(&mut self, cpu: u16, tid: u32, why: Why, bound: bool, lane: Option<Lane>) {
        let at = usize::from(cpu);
        if at >= self.nr_cpus {
            return;
        }
        let seen = self.finds(at, tid);
        if tid == 0 {
            return;
        }
        if !seen {
            // The first that is seen of this CPU, or after something hidden.
            self.start(cpu, tid, lane);
        }
        self.lane(tid, lane);
        if bound && why == Why::Preempted {
            self.task(tid).bound = true;
            let (id, here) = (self.task(tid).id, Mask::of(self.nr_cpus, [at]));
            self.tell(Happened::Affinity { task: id, affinity: &here });
        }
        let task = self.task(tid);
        let (state, why) = match why {
            Why::Preempted => (State::Runnable, Stop::Preempted),
            Why::Sleeps | Why::Blocks => (State::Waiting, Stop::Blocked),
            Why::Ends => (State::Ended, Stop::Ended),
        };
        (task.state, task.told) = (state, true);
        let id = task.id;
        self.tell(Happened::Stop { task: id, cpu, why });
        self.cpus[at].runs = None;
        if self.hidden.tids.contains(&tid) {
            let what =
                format!("task {id} (number {tid}) stops, but an earlier stop of it is missing");
            let violation = Violation { at_ns: self.now_ns, rule: "order", what };
            self.contradiction.get_or_insert(violation);
        }
    }

    /// The event says that this task ran here: brings what was known in line with it, as far as
    /// something may have been hidden. False: it is not known since when it ran.
    fn finds(&mut self, at: usize, tid: u32) -> bool {
        let Some(runs) = self.cpus[at].runs.filter(|runs| *runs != tid) else {
            return self.cpus[at].runs.is_some();
        };
        let told = self.tasks.get(&runs).is_some_and(|task| task.told);
        if self.cpus[at].named == Some(tid) && (told || self.has_ended(tid)) {
            self.takes_over(at, runs, tid);
        } else if !told {
            self.stopped_unseen(at, runs);
            if let Some(task) = self.tasks.get(&tid) {
                // Its wait ended while no one saw it.
                self.checker.excuse(self.now_ns, task.id);
            }
            return false;
        }
        true
    }

    /// A task whose number another one may have taken; else it was found after a hidden one, and
    /// has called itself something else.
    fn has_ended(&self, tid: u32) -> bool {
        let state = self.tasks.get(&tid).map(|task| task.state);
        matches!(state, Some(State::Ended | State::Running(_)))
    }

    /// A hidden task has stopped on the CPU, some time since it started there.
    fn stopped_unseen(&mut self, at: usize, tid: u32) {
        self.hidden.tids.insert(tid);
        self.hidden.stops += 1;
        self.hidden.unseen_ns += self.now_ns - self.cpus[at].since_ns;
        self.cpus[at].runs = None;
        let task = self.task(tid);
        task.state = State::Waiting;
        let id = task.id;
        self.tell(Happened::Stop { task: id, cpu: at as u16, why: Stop::Blocked });
    }

    fn class(&mut self, cpu: u16, class: u8) {
        // 255: offline, by policy/types.h.
        let class = if class == u8::MAX { 0 } else { class };
        if self.now_ns > 0 {
            self.until_ns = Some(self.start_ns + self.real_ns);
        } else if usize::from(cpu) < self.nr_cpus {
            self.tell(Happened::Class { cpu, class });
        }
    }
}

#[cfg(test)]
mod tests;
