// SPDX-License-Identifier: MIT OR Apache-2.0
//! Checkers: what must hold in every trace, of simulations and of real machines.
//!
//! Problem: a policy that starves one task in ten thousand passes every benchmark.
//!
//! Idea: a model of the machine that knows only what the trace says (who may run where, who waits
//! since when, which CPU idles since when), and rules over it that do not use the policy's code.
//!
//! | rule | says |
//! |---|---|
//! | order | tasks start when runnable, once, on CPUs that are online and theirs |
//! | class | a wide task starts on a CPU of its level, or the highest class that it reaches; if that changes, it leaves within a moment |
//! | liveness | no task waits longer than a bound |
//! | conservation | no CPU idles for more than a moment while a task waits that fits |
//! | wide first | no guest keeps a wide CPU for more than a tick while wide work waits that fits |
//!
//! "A moment" is what interrupts and idle exits take, "a tick" what a lost occasion costs; both are
//! [`Bounds`], because a real machine's are longer than a simulated one's. A rule over two
//! intervals (a task waits, a CPU idles) is checked when either ends, and at the end of the trace.
//!
//! Kernel threads that find no idle CPU wait for their own CPU, at the head of its queue
//! (bpf/place.bpf.h, `goes_first`): conservation does not hold for them.
//!
//! Limits: one violation is reported, the first; then the checker is silent.

use policy::{TYPE_SCALAR, TYPE_WIDE};

use crate::bits::Mask;
use crate::events::{Happened, Sink, Stop};
use crate::sys::Tid;

/// How long is too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Interrupts, idle exits, and what else delays what was decided.
    pub moment_ns: u64,
    /// Until the next tick.
    pub tick_ns: u64,
    /// Longest wait for a CPU.
    pub wait_ns: u64,
    /// Whether the rules of conservation and wide first hold for this scheduler.
    pub conserves: bool,
}

/// A rule is broken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("at {at_ns} ns rule \"{rule}\" is broken: {what}")]
pub struct Violation {
    /// When it was seen.
    pub at_ns: u64,
    /// Which.
    pub rule: &'static str,
    /// What is wrong.
    pub what: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Waiting,
    Runnable { since_ns: u64 },
    Running { cpu: u16 },
    Ended,
}

#[derive(Clone, Debug)]
struct TaskModel {
    state: State,
    affinity: Mask,
    task_type: u8,
    level: u8,
    kernel: bool,
    /// Its type, affinity or reachable classes changed last.
    changed_ns: u64,
}

#[derive(Clone, Copy, Debug)]
struct CpuModel {
    task: Option<Tid>,
    class: u8,
    online: bool,
    /// Since when it idles, or runs what it runs.
    since_ns: u64,
}

/// The checker.
#[derive(Clone, Debug)]
pub struct Checker {
    bounds: Bounds,
    tasks: Vec<TaskModel>,
    cpus: Vec<CpuModel>,
    /// Tasks that wait, in no order.
    runnable: Vec<Tid>,
    now_ns: u64,
    /// Classes or online CPUs changed last.
    classes_ns: u64,
    violation: Option<Violation>,
    nr_checked: u64,
}

impl Checker {
    /// For a machine with so many CPUs.
    pub fn new(nr_cpus: usize, bounds: Bounds) -> Self {
        let cpu = CpuModel { task: None, class: 0, online: true, since_ns: 0 };
        Checker {
            bounds,
            tasks: Vec::new(),
            cpus: vec![cpu; nr_cpus],
            runnable: Vec::new(),
            now_ns: 0,
            classes_ns: 0,
            violation: None,
            nr_checked: 0,
        }
    }

    /// The verdict at the end of the trace: the number of events checked.
    pub fn finish(mut self, now_ns: u64) -> Result<u64, Violation> {
        self.now_ns = now_ns;
        if self.violation.is_none() {
            for task in self.runnable.clone() {
                self.check_wait(task);
            }
            for cpu in 0..self.cpus.len() {
                self.check_class(cpu);
            }
        }
        self.violation.map_or(Ok(self.nr_checked), Err)
    }

    /// What is wrong so far.
    pub fn violation(&self) -> Option<&Violation> {
        self.violation.as_ref()
    }

    /// The task has waited until now, and how much of it was right is not known: it is not judged.
    pub fn excuse(&mut self, now_ns: u64, task: Tid) {
        // One that began after a violation is not known.
        let state = self.tasks.get_mut(task as usize).map(|task| &mut task.state);
        if let Some(State::Runnable { since_ns }) = state {
            *since_ns = now_ns;
        }
    }

    fn broken(&mut self, rule: &'static str, what: String) {
        if self.violation.is_none() {
            self.violation = Some(Violation { at_ns: self.now_ns, rule, what });
        }
    }

    /// The class that the task must have: its level, or the highest that it reaches.
    fn needed_class(&self, task: Tid) -> u8 {
        let t = &self.tasks[task as usize];
        if u32::from(t.task_type) != TYPE_WIDE {
            return 0;
        }
        let reached = self.cpus.iter().enumerate();
        let reached = reached.filter(|(cpu, c)| c.online && t.affinity.has(*cpu));
        reached.map(|(_, c)| c.class).max().unwrap_or(0).min(t.level)
    }

    /// Whether the task could run on the CPU.
    fn fits(&self, task: Tid, needed: u8, cpu: usize) -> bool {
        let c = &self.cpus[cpu];
        c.online && c.class >= needed && self.tasks[task as usize].affinity.has(cpu)
    }

    /// A wait ends, or the trace does.
    fn check_wait(&mut self, task: Tid) {
        let State::Runnable { since_ns } = self.tasks[task as usize].state else { return };
        let waited_ns = self.now_ns - since_ns;
        if waited_ns > self.bounds.wait_ns {
            let t = &self.tasks[task as usize];
            let what = format!(
                "task {task} of type {} and level {} waits since {since_ns} ns, longer than {} ns",
                t.task_type, t.level, self.bounds.wait_ns
            );
            self.broken("liveness", what);
        }
        if waited_ns <= self.bounds.moment_ns || !self.bounds.conserves {
            return;
        }
        // both must have been so for the whole time
        let stable_ns = since_ns.max(self.tasks[task as usize].changed_ns).max(self.classes_ns);
        let needed = self.needed_class(task);
        for cpu in 0..self.cpus.len() {
            if self.fits(task, needed, cpu) {
                self.check_pair(task, needed, cpu, stable_ns);
            }
        }
    }

    /// A task waits and fits on a CPU: is it right that the CPU does what it does?
    fn check_pair(&mut self, task: Tid, needed: u8, cpu: usize, stable_ns: u64) {
        let c = self.cpus[cpu];
        let both_ns = self.now_ns - c.since_ns.max(stable_ns).min(self.now_ns);
        match c.task {
            _ if self.tasks[task as usize].kernel => {}
            None if both_ns > self.bounds.moment_ns => {
                let what = format!("CPU {cpu} idles for {both_ns} ns while task {task} waits");
                self.broken("conservation", what);
            }
            Some(guest) if needed > 0 && both_ns > self.bounds.tick_ns + self.bounds.moment_ns => {
                let g = &self.tasks[guest as usize];
                let changed_ns = self.now_ns - g.changed_ns.max(stable_ns).min(self.now_ns);
                let leaves = self
                    .cpus
                    .iter()
                    .enumerate()
                    .any(|(other, o)| o.online && o.class == 0 && g.affinity.has(other));
                if u32::from(g.task_type) == TYPE_SCALAR
                    && leaves
                    && changed_ns > self.bounds.tick_ns + self.bounds.moment_ns
                {
                    let what = format!(
                        "CPU {cpu} runs guest {guest} for {both_ns} ns while wide task {task} waits"
                    );
                    self.broken("wide first", what);
                }
            }
            _ => {}
        }
    }

    /// What a CPU ran until now was in its place, or not for long.
    fn check_class(&mut self, cpu: usize) {
        let c = self.cpus[cpu];
        let Some(task) = c.task else { return };
        let needed = self.needed_class(task);
        let changed_ns = self.tasks[task as usize].changed_ns.max(self.classes_ns);
        let wrong_ns = self.now_ns - c.since_ns.max(changed_ns);
        if c.class < needed && wrong_ns > self.bounds.moment_ns {
            let what = format!(
                "task {task} needs class {needed} and is on CPU {cpu} of class {} for {wrong_ns} ns",
                c.class
            );
            self.broken("class", what);
        }
    }

    fn start(&mut self, task: Tid, cpu: usize) {
        let t = &self.tasks[task as usize];
        let (state, allowed) = (t.state, t.affinity.has(cpu));
        if !matches!(state, State::Runnable { .. }) {
            self.broken("order", format!("task {task} starts on CPU {cpu}, but is {state:?}"));
        }
        if let Some(other) = self.cpus[cpu].task {
            self.broken("order", format!("task {task} starts on CPU {cpu}, which runs {other}"));
        }
        if !self.cpus[cpu].online || !allowed {
            self.broken("order", format!("task {task} may not start on CPU {cpu}"));
        }
        self.check_wait(task);
        self.check_start(task, cpu);
        self.runnable.retain(|&other| other != task);
        self.tasks[task as usize].state = State::Running { cpu: cpu as u16 };
        self.idle_ends(cpu);
        self.cpus[cpu].task = Some(task);
        self.cpus[cpu].since_ns = self.now_ns;
    }

    /// A task that was what it is when it began to wait is sent where it belongs; only one that
    /// changed meanwhile may start elsewhere, to be sent on at once.
    fn check_start(&mut self, task: Tid, cpu: usize) {
        let State::Runnable { since_ns } = self.tasks[task as usize].state else { return };
        let needed = self.needed_class(task);
        let changed_ns = self.tasks[task as usize].changed_ns.max(self.classes_ns);
        let class = self.cpus[cpu].class;
        if class < needed && changed_ns < since_ns {
            let what = format!(
                "task {task} needs class {needed} and starts on CPU {cpu} of class {class}"
            );
            self.broken("class", what);
        }
    }

    /// A CPU that idled has work: was there other work before?
    fn idle_ends(&mut self, cpu: usize) {
        let idle_ns = self.now_ns - self.cpus[cpu].since_ns;
        if idle_ns <= self.bounds.moment_ns || !self.bounds.conserves {
            return;
        }
        for i in 0..self.runnable.len() {
            let task = self.runnable[i];
            let t = &self.tasks[task as usize];
            let State::Runnable { since_ns } = t.state else { continue };
            let stable_ns = since_ns.max(t.changed_ns).max(self.classes_ns);
            let needed = self.needed_class(task);
            if self.fits(task, needed, cpu) {
                self.check_pair(task, needed, cpu, stable_ns);
            }
        }
    }

    fn stop(&mut self, task: Tid, cpu: usize, why: Stop) {
        if self.cpus[cpu].task != Some(task) {
            self.broken("order", format!("task {task} stops on CPU {cpu} without running there"));
        }
        self.check_class(cpu);
        self.cpus[cpu].task = None;
        self.cpus[cpu].since_ns = self.now_ns;
        self.tasks[task as usize].state = match why {
            Stop::Blocked => State::Waiting,
            Stop::Ended => State::Ended,
            Stop::Preempted => {
                self.runnable.push(task);
                State::Runnable { since_ns: self.now_ns }
            }
        };
    }

    /// A task is another than before: waits and places are judged anew.
    fn changes(&mut self, task: Tid, change: impl FnOnce(&mut TaskModel)) {
        if let State::Running { cpu } = self.tasks[task as usize].state {
            self.check_class(cpu as usize);
        }
        let t = &mut self.tasks[task as usize];
        change(t);
        t.changed_ns = self.now_ns;
    }

    fn take(&mut self, what: &Happened<'_>) {
        match *what {
            Happened::New { task, affinity, kernel } => {
                debug_assert_eq!(task as usize, self.tasks.len());
                self.tasks.push(TaskModel {
                    state: State::Waiting,
                    affinity: affinity.clone(),
                    task_type: 0,
                    level: 0,
                    kernel,
                    changed_ns: self.now_ns,
                });
            }
            Happened::Affinity { task, affinity } => {
                self.changes(task, |t| t.affinity = affinity.clone());
            }
            Happened::Type { task, task_type, level } => {
                self.changes(task, |t| (t.task_type, t.level) = (task_type, level));
            }
            Happened::Wake { task } => {
                if self.tasks[task as usize].state != State::Waiting {
                    self.broken("order", format!("task {task} wakes, but does not wait"));
                }
                self.tasks[task as usize].state = State::Runnable { since_ns: self.now_ns };
                self.runnable.push(task);
            }
            Happened::Start { task, cpu } => self.start(task, cpu as usize),
            Happened::Stop { task, cpu, why } => self.stop(task, cpu as usize, why),
            Happened::Class { cpu, class } => {
                if self.cpus[cpu as usize].class != class {
                    self.cpus[cpu as usize].class = class;
                    self.classes_ns = self.now_ns;
                }
            }
            Happened::Online { cpu, online } => {
                self.cpus[cpu as usize].online = online;
                self.cpus[cpu as usize].since_ns = self.now_ns;
                self.classes_ns = self.now_ns;
            }
            Happened::Asks { .. } | Happened::License { .. } => {}
        }
    }
}

impl Sink for Checker {
    const WANTED: bool = true;

    fn happened(&mut self, at_ns: u64, what: &Happened<'_>) {
        if self.violation.is_none() {
            self.now_ns = at_ns;
            self.nr_checked += 1;
            self.take(what);
        }
    }
}
