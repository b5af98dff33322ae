// SPDX-License-Identifier: MIT OR Apache-2.0
//! Intervals from events: which task ran, waited, or was inside of a marked function, from when to
//! when.
//!
//! A recording may begin, and lose events, anywhere; so nothing is assumed. A task's run is
//! reported when its begin and its end were seen, or the recording's begin or end replaces one of
//! them. Events that do not pair are counted, and the state is corrected by what the event says.
//!
//! Runs are cut where the task enters or leaves the outermost marked functions: in a [`Run`] the
//! level is constant. A task is inside of marks from entry to return; a return that was never
//! entered (it was inside when the recording began) is passed over.
//!
//! A wait begins with a wake-up (`delay_ns` before its event), or when a task is preempted, and
//! ends when the task runs.
//!
//! Where only some tasks were followed, what ran on a CPU between two switches of theirs is not
//! known, and not reported.

use std::collections::HashMap;

use crate::event::{Event, Name, What, Why};
use crate::info::Info;

/// Index of a task into [`Follower::tasks`]. Numbers of the kernel are used again; these are not.
pub type TaskId = usize;

/// A piece of a task's time on a CPU, in which its level is constant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// Who.
    pub task: TaskId,
    /// Where.
    pub cpu: u16,
    /// From when.
    pub start_ns: u64,
    /// To when.
    pub end_ns: u64,
    /// Highest licence level of the marked functions that it is inside of; 0: of none.
    pub level: u8,
    /// Why it stopped; `None`: it goes on, with another level, or after the recording's end.
    pub why: Option<Why>,
}

/// A task's wait for a CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wait {
    /// Who.
    pub task: TaskId,
    /// From when.
    pub start_ns: u64,
    /// To when: it runs.
    pub end_ns: u64,
    /// It was woken; else it had been preempted.
    pub woken: bool,
}

/// Takes what follows from events.
pub trait Visit {
    /// A piece of time on a CPU.
    fn ran(&mut self, _run: &Run, _task: &Task) {}
    /// A wait has ended.
    fn waited(&mut self, _wait: &Wait, _task: &Task) {}
    /// A CPU has no one to run, from when to when.
    fn idled(&mut self, _cpu: u16, _start_ns: u64, _end_ns: u64) {}
    /// The event itself, before what follows from it; about this task unless about none.
    fn event(&mut self, _event: &Event, _task: Option<TaskId>) {}
}

/// What is known of a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Task {
    /// The kernel's number.
    pub tid: u32,
    /// Its process's number; 0: unknown.
    pub tgid: u32,
    /// Its last name.
    pub name: Name,
    /// A kernel thread.
    pub kernel: bool,
    /// Its begins and ends are all recorded.
    pub followed: bool,
    /// It has ended, except for its last switch.
    exited: bool,
    state: State,
    marks: Marks,
}

/// The marks that a task is inside of.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Marks {
    /// Number of each, the outermost first, and the highest level up to it.
    entered: Vec<(u32, u8)>,
    /// Further ones inside, which are only counted.
    deeper: u64,
}

/// Marks of a task that are known by number. Stacks are not that deep; a recording that lost its
/// returns, or a made-up one, would take ever longer for each event.
const MARKS_DEEP_MAX: usize = 1024;

impl Marks {
    fn level(&self) -> u8 {
        self.entered.last().map_or(0, |(_, level)| *level)
    }

    fn enter(&mut self, mark: u32, level: u8) {
        if self.entered.len() < MARKS_DEEP_MAX {
            self.entered.push((mark, level.max(self.level())));
        } else {
            self.deeper = self.deeper.saturating_add(1);
        }
    }

    /// False: it was not entered.
    fn leave(&mut self, mark: u32) -> bool {
        if self.deeper > 0 {
            self.deeper -= 1;
            return true;
        }
        let Some(at) = self.entered.iter().rposition(|(entered, _)| *entered == mark) else {
            return false;
        };
        // What was entered inside of it has been left without a return, by longjmp or an exception.
        self.entered.truncate(at);
        true
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Unknown,
    Sleeping,
    Waiting { since_ns: u64, woken: bool },
    Running { cpu: u16 },
}

/// Events that contradict what was known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Contradictions {
    /// Switches whose first task did not run there, or whose second ran elsewhere.
    pub switches: u64,
    /// Returns from marks that were not entered.
    pub returns: u64,
}

/// Follows a recording.
pub struct Follower {
    everybody: bool,
    levels: Vec<u8>,
    start_ns: u64,
    now_ns: u64,
    tasks: Vec<Task>,
    by_tid: HashMap<u32, TaskId>,
    /// Who runs on each CPU, and since when, as far as is known.
    cpus: Vec<Option<(TaskId, u64)>>,
    /// CPUs of which a switch was seen.
    switched: Vec<bool>,
    contradictions: Contradictions,
}

/// The task that stands for every CPU's idle one.
const IDLE: TaskId = 0;

impl Follower {
    /// For a recording that says this of itself.
    pub fn new(info: &Info) -> Self {
        let mut follower = Follower {
            everybody: info.everybody,
            levels: info.marks.iter().map(|mark| mark.level).collect(),
            start_ns: info.start_ns,
            now_ns: info.start_ns,
            tasks: Vec::new(),
            by_tid: HashMap::new(),
            cpus: Vec::new(),
            switched: Vec::new(),
            contradictions: Contradictions::default(),
        };
        let idle = follower.add(0);
        follower.tasks[idle].name = Name::new(b"idle");
        follower
    }

    /// The tasks that were met.
    pub fn tasks(&self) -> &[Task] {
        &self.tasks
    }

    /// What did not fit together.
    pub fn contradictions(&self) -> Contradictions {
        self.contradictions
    }

    /// The last event's time.
    pub fn now_ns(&self) -> u64 {
        self.now_ns
    }

    /// Takes an event.
    pub fn take(&mut self, event: &Event, to: &mut dyn Visit) {
        self.now_ns = event.at_ns;
        if event.what.is_of_cpu() {
            return to.event(event, None);
        }
        if let What::Fork { .. } = event.what {
            // The number may have been another task's, whose end was lost.
            self.by_tid.remove(&event.tid);
        }
        let task = self.task(event.tid);
        to.event(event, Some(task));
        match &event.what {
            What::Switch { next, why, .. } => self.switch(event, task, *next, *why, to),
            What::Wake { delay_ns, .. } => self.wake(event.at_ns, *delay_ns, task),
            What::Fork { parent, tgid } => self.fork(task, *parent, *tgid),
            What::Exit => self.tasks[task].exited = true,
            What::Mark { mark } => {
                let level = self.levels.get(*mark as usize).copied().unwrap_or(1);
                self.mark(event.at_ns, task, |marks| marks.enter(*mark, level), to);
            }
            What::MarkReturn { mark } => {
                let mut entered = true;
                self.mark(event.at_ns, task, |marks| entered = marks.leave(*mark), to);
                self.contradictions.returns += u64::from(!entered);
            }
            What::Task { tgid, kernel, running, followed, name } => {
                let t = &mut self.tasks[task];
                (t.tgid, t.kernel, t.followed, t.name) = (*tgid, *kernel, *followed, *name);
                if *running && (self.everybody || *followed) {
                    self.runs_from_the_start(task, event.cpu);
                }
            }
            What::Name { tgid, name } => {
                (self.tasks[task].tgid, self.tasks[task].name) = (*tgid, *name);
                self.takes_over(event, task, to);
            }
            _ => {}
        }
    }

    /// The recording ends: what runs has run until now.
    pub fn finish(&mut self, end_ns: u64, to: &mut dyn Visit) {
        self.now_ns = end_ns.max(self.now_ns);
        for cpu in 0..self.cpus.len() {
            self.stop(cpu as u16, self.now_ns, None, to);
        }
    }

    fn add(&mut self, tid: u32) -> TaskId {
        self.tasks.push(Task {
            tid,
            tgid: 0,
            name: Name::new(b"?"),
            kernel: false,
            followed: self.everybody,
            exited: false,
            state: State::Unknown,
            marks: Marks::default(),
        });
        self.by_tid.insert(tid, self.tasks.len() - 1);
        self.tasks.len() - 1
    }

    fn task(&mut self, tid: u32) -> TaskId {
        match self.by_tid.get(&tid) {
            Some(&task) => task,
            None => self.add(tid),
        }
    }

    fn fork(&mut self, child: TaskId, parent: u32, tgid: u32) {
        let parent = self.task(parent);
        let (name, kernel) = (self.tasks[parent].name, self.tasks[parent].kernel);
        let t = &mut self.tasks[child];
        (t.name, t.kernel, t.tgid, t.followed, t.state) =
            (name, kernel, tgid, true, State::Sleeping);
    }

    /// A thread that calls exec goes on under the number of its process: it was recorded that its
    /// old number has ended, and its name under the new one.
    fn takes_over(&mut self, event: &Event, task: TaskId, to: &mut dyn Visit) {
        let Some((runs, _)) = *self.cpu(event.cpu) else { return };
        if runs != task && self.tasks[runs].exited {
            self.stop(event.cpu, event.at_ns, None, to);
            self.tasks[runs].state = State::Unknown;
            self.tasks[task].state = State::Unknown;
            self.start(task, event.cpu, event.at_ns, to);
        }
    }

    fn cpu(&mut self, cpu: u16) -> &mut Option<(TaskId, u64)> {
        let cpu = usize::from(cpu);
        if cpu >= self.cpus.len() {
            self.cpus.resize(cpu + 1, None);
        }
        &mut self.cpus[cpu]
    }

    /// When the recording began: a damaged file may have events before that.
    fn begin_ns(&self) -> u64 {
        self.start_ns.min(self.now_ns)
    }

    /// It ran when the recording began, as far as the recording shows: tasks are listed a moment
    /// later.
    fn runs_from_the_start(&mut self, task: TaskId, cpu: u16) {
        let start_ns = self.begin_ns();
        if self.cpu(cpu).is_none() && self.tasks[task].state == State::Unknown {
            *self.cpu(cpu) = Some((task, start_ns));
            self.tasks[task].state = State::Running { cpu };
        }
    }

    /// Whether all of a task's switches are in the recording.
    fn is_whole(&self, task: TaskId) -> bool {
        self.everybody || self.tasks[task].followed
    }

    fn switch(&mut self, event: &Event, prev: TaskId, next: u32, why: Why, to: &mut dyn Visit) {
        let (at_ns, cpu) = (event.at_ns, event.cpu);
        let known = *self.cpu(cpu);
        let starts_known = self.is_first(cpu) && self.is_whole(prev);
        match known {
            Some((task, _)) if task == prev => {}
            // The first switch of the CPU corrects what the list of tasks said.
            Some((task, _)) if starts_known => self.forget(task, cpu),
            Some((task, _)) => {
                self.contradictions.switches +=
                    u64::from(self.is_whole(prev) && self.is_whole(task));
                self.forget(task, cpu);
            }
            None => {}
        }
        if self.cpu(cpu).is_none() && starts_known {
            *self.cpu(cpu) = Some((prev, self.begin_ns()));
        }
        self.switched[usize::from(cpu)] = true;
        self.stop(cpu, at_ns, Some(why), to);
        self.tasks[prev].state = match why {
            Why::Preempted => State::Waiting { since_ns: at_ns, woken: false },
            Why::Sleeps | Why::Blocks => State::Sleeping,
            Why::Ends => {
                self.by_tid.remove(&event.tid);
                State::Unknown
            }
        };
        let next = self.task(next);
        self.start(next, cpu, at_ns, to);
    }

    /// No switch of the CPU has been seen yet.
    fn is_first(&mut self, cpu: u16) -> bool {
        let cpu = usize::from(cpu);
        self.switched.resize(self.switched.len().max(cpu + 1), false);
        !self.switched[cpu]
    }

    /// It does not run there, although it seemed so.
    fn forget(&mut self, task: TaskId, cpu: u16) {
        self.tasks[task].state = State::Unknown;
        *self.cpu(cpu) = None;
    }

    fn start(&mut self, task: TaskId, cpu: u16, at_ns: u64, to: &mut dyn Visit) {
        match self.tasks[task].state {
            State::Waiting { since_ns, woken } => {
                let wait = Wait { task, start_ns: since_ns, end_ns: at_ns, woken };
                to.waited(&wait, &self.tasks[task]);
            }
            State::Running { cpu: other } if task != IDLE => {
                // Unless it is only the list of tasks that said so, a moment too late.
                let seen = !self.is_first(other) && self.is_whole(task);
                self.contradictions.switches += u64::from(seen);
                *self.cpu(other) = None;
            }
            _ => {}
        }
        let whole = self.is_whole(task);
        *self.cpu(cpu) = whole.then_some((task, at_ns));
        self.tasks[task].state = State::Running { cpu };
    }

    /// Who runs on the CPU has done so until now.
    fn stop(&mut self, cpu: u16, at_ns: u64, why: Option<Why>, to: &mut dyn Visit) {
        let Some((task, since_ns)) = self.cpu(cpu).take() else { return };
        if task == IDLE {
            return to.idled(cpu, since_ns, at_ns);
        }
        let level = self.tasks[task].marks.level();
        let run = Run { task, cpu, start_ns: since_ns, end_ns: at_ns, level, why };
        to.ran(&run, &self.tasks[task]);
    }

    fn wake(&mut self, at_ns: u64, delay_ns: u32, task: TaskId) {
        // One that runs or waits was about to sleep and now will not.
        if matches!(self.tasks[task].state, State::Unknown | State::Sleeping) {
            let since_ns = at_ns.saturating_sub(delay_ns.into());
            self.tasks[task].state = State::Waiting { since_ns, woken: true };
        }
    }

    fn mark(
        &mut self,
        at_ns: u64,
        task: TaskId,
        change: impl FnOnce(&mut Marks),
        to: &mut dyn Visit,
    ) {
        let before = self.tasks[task].marks.level();
        change(&mut self.tasks[task].marks);
        let State::Running { cpu } = self.tasks[task].state else { return };
        if self.tasks[task].marks.level() == before {
            return;
        }
        if let Some((_, since_ns)) = self.cpu(cpu).filter(|(runs, _)| *runs == task) {
            let run =
                Run { task, cpu, start_ns: since_ns, end_ns: at_ns, level: before, why: None };
            to.ran(&run, &self.tasks[task]);
            *self.cpu(cpu) = Some((task, at_ns));
        }
    }
}
