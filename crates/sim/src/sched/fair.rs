// SPDX-License-Identifier: MIT OR Apache-2.0
//! The kernel's fair scheduling, as far as it decides who runs where.
//!
//! Per CPU a queue by virtual run time. A waking task goes back to its CPU if that is idle, else to
//! an idle core of the same last-level cache, else to an idle CPU there, else it queues up where it
//! was. A CPU that runs dry pulls from the longest queue, its own cache first, then its package,
//! then everywhere (newidle balance); at ticks a CPU pulls from one that has two more than itself,
//! and, now and then, from one that has one more (balance.rs). It knows nothing of licences.
//!
//! How long a task runs before another one gets its turn has changed with the kernel, and matters
//! where what happens at a switch is the question (power scores): [`Slices`].
//!
//! Limits: no groups, no wake-affine towards the waker.

use policy::KernelUse;

use super::balance::Balance;
use super::queue::Queue;
use super::{NewTask, OnCpu, Pick, Ran, SchedCounters, Scheduler};
use crate::events::Sink;
use crate::sys::{Kick, NO_CPU, NO_TASK, Sys, Tid};
use crate::timers::NEVER;

/// How a CPU's time is divided. Constants are the kernel's defaults from eight CPUs on: four times
/// those of one CPU (1 + log2 8; kernel/sched/fair.c).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Slices {
    /// Since Linux 6.6 (EEVDF): a slice of 2.8 ms, which is also the lead that a waking task needs
    /// to preempt, and the most that it is ahead or behind when it wakes.
    #[default]
    Fixed,
    /// Before (CFS; DIM 6.1 used 5.2): all tasks of the CPU get their turn within 24 ms, but none
    /// less than 3 ms; a task that has slept is at most 12 ms behind, and preempts if it is more
    /// than 4 ms behind who runs.
    Latency,
    /// As [`Slices::Fixed`], but a turn ends to the moment, by a timer of its own (hrtick), as in
    /// Linux 7.3; seen there, on five CPUs: turns of 2.09 ms where a tick is 4 ms
    /// (docs/experiments/silicon.md). With ticks alone, two tasks of one CPU have turns of 8 ms.
    /// The slice is that of so few CPUs.
    Exact,
}

const SLICE_NS: i64 = 2_800_000;
/// The slice on one CPU.
const BASE_SLICE_NS: u64 = 700_000;
const LATENCY_NS: i64 = 24_000_000;
const GRANULARITY_NS: i64 = 3_000_000;
const WAKEUP_NS: i64 = 4_000_000;

impl Slices {
    /// What a waking or migrating task keeps of its lead over the queue's clock.
    fn placed_ns(self, lead_ns: i64) -> i64 {
        match self {
            Slices::Fixed | Slices::Exact => lead_ns.clamp(-SLICE_NS, SLICE_NS),
            Slices::Latency => lead_ns.max(-LATENCY_NS / 2),
        }
    }

    /// How far behind who runs a waking task must be to preempt it.
    fn preempts_ns(self) -> i64 {
        match self {
            Slices::Fixed | Slices::Exact => SLICE_NS,
            Slices::Latency => WAKEUP_NS,
        }
    }

    /// Whether someone else's turn has come: `load` tasks share the CPU, who runs has done so for
    /// `ran_ns` and is `ahead_ns` ahead of who is next.
    fn is_over(self, load: usize, ran_ns: i64, ahead_ns: i64) -> bool {
        match self {
            Slices::Fixed => ran_ns >= SLICE_NS,
            // it has a timer
            Slices::Exact => false,
            Slices::Latency => {
                let turn_ns = (LATENCY_NS / load.max(1) as i64).max(GRANULARITY_NS);
                ran_ns > turn_ns || (ran_ns >= GRANULARITY_NS && ahead_ns > turn_ns)
            }
        }
    }
}

#[derive(Clone, Debug)]
struct FairTask {
    /// Relative to the clock of its queue while it sleeps, absolute while it is queued or runs.
    vruntime_ns: i64,
    weight: u32,
    started_ns: u64,
    /// It sleeps, and its virtual time is still that of this CPU's queue, which goes on.
    slept_on: Option<u16>,
    /// What the kernel counts of it: `sum_exec_runtime`, `run_delay`, `nr_migrations`.
    counted: KernelUse,
    /// When it was queued.
    queued_ns: u64,
    /// Where it last started.
    last_cpu: u16,
}

/// One CPU's queue.
#[derive(Clone, Debug)]
struct Rq {
    queue: Queue,
    clock_ns: i64,
    curr: Tid,
    curr_since_ns: u64,
}

impl Rq {
    /// Tasks that wait, and who runs.
    fn load(&self) -> usize {
        self.queue.len() + usize::from(self.curr != NO_TASK)
    }
}

/// The scheduler.
#[derive(Clone, Debug)]
pub struct Fair {
    slices: Slices,
    /// Of [`Slices::Exact`].
    exact_slice_ns: u64,
    tasks: Vec<FairTask>,
    rqs: Vec<Rq>,
    balance: Balance,
    inserted: u32,
    counters: SchedCounters,
}

impl Fair {
    /// For a machine, of today's kernels.
    pub fn new(sys: &Sys) -> Self {
        Fair::with_slices(sys, Slices::default())
    }

    /// For a machine.
    pub fn with_slices(sys: &Sys, slices: Slices) -> Self {
        let rq = Rq { queue: Queue::default(), clock_ns: 0, curr: NO_TASK, curr_since_ns: 0 };
        Fair {
            slices,
            exact_slice_ns: BASE_SLICE_NS * u64::from(1 + sys.layout.nr_cpus.clamp(1, 8).ilog2()),
            tasks: Vec::new(),
            rqs: vec![rq; sys.layout.nr_cpus],
            balance: Balance::new(&sys.layout),
            inserted: 0,
            counters: SchedCounters::default(),
        }
    }

    /// Charge the running task; the clock follows the least advanced.
    fn charge(&mut self, sys: &Sys, cpu: usize, task: Tid) {
        let t = &mut self.tasks[task as usize];
        let used_ns = sys.now_ns - t.started_ns;
        t.started_ns = sys.now_ns;
        t.counted.run_ns += used_ns;
        t.vruntime_ns += (used_ns * 100 / u64::from(t.weight.max(1))) as i64;
        let rq = &mut self.rqs[cpu];
        let least = rq.queue.head_ns().map_or(t.vruntime_ns, |head| head.min(t.vruntime_ns));
        rq.clock_ns = rq.clock_ns.max(least);
    }

    /// Into a CPU's queue, with as much of the lead or lag that it had as [`Slices`] says.
    fn enqueue(&mut self, sys: &Sys, cpu: usize, task: Tid, relative: bool) {
        self.inserted = self.inserted.wrapping_add(1);
        let rq = &mut self.rqs[cpu];
        let t = &mut self.tasks[task as usize];
        t.queued_ns = sys.now_ns;
        if relative {
            t.vruntime_ns = rq.clock_ns + self.slices.placed_ns(t.vruntime_ns);
        }
        rq.queue.insert(task, t.vruntime_ns, self.inserted);
    }

    /// Its virtual time as lead over the queue's clock, to take along.
    fn make_relative(&mut self, cpu: usize, task: Tid) {
        self.tasks[task as usize].vruntime_ns -= self.rqs[cpu].clock_ns;
    }

    fn place(&mut self, sys: &mut Sys, task: Tid) {
        let prev = sys.cpu_of[task as usize] as usize;
        let llc = sys.layout.place[prev].llc as usize;
        let idle = if sys.allows(task, prev) && sys.claim(prev) {
            Some(prev)
        } else {
            let near = sys.layout.llcs[llc].clone();
            sys.claim_any(&near, task)
        };
        if let Some(cpu) = idle {
            self.enqueue(sys, cpu, task, true);
            sys.kick(cpu, Kick::Idle);
            return;
        }
        let usable = sys.online.has(prev) && sys.allows(task, prev);
        let online = sys.online.clone();
        let cpu = if usable { prev } else { sys.any(&online, task).unwrap_or(prev) };
        self.enqueue(sys, cpu, task, true);
        self.preempt(sys, cpu, task);
        if sys.idle.has(cpu) {
            sys.kick(cpu, Kick::Idle);
        }
    }

    fn preempt(&mut self, sys: &mut Sys, cpu: usize, task: Tid) {
        let curr = self.rqs[cpu].curr;
        if curr == NO_TASK {
            return;
        }
        let c = &self.tasks[curr as usize];
        let now_ns = c.vruntime_ns + (sys.now_ns - c.started_ns) as i64;
        if self.tasks[task as usize].vruntime_ns + self.slices.preempts_ns() < now_ns {
            self.counters.preemptions += 1;
            sys.kick(cpu, Kick::Preempt);
        }
    }

    /// Whether the head of a queue goes before who runs. Of two that are even it does if turns end
    /// to the moment, for then who runs has just had his.
    fn goes_before(&self, head_ns: i64, vruntime_ns: i64) -> bool {
        head_ns < vruntime_ns || (self.slices == Slices::Exact && head_ns == vruntime_ns)
    }

    /// Schedule what runs, by CPU, and what can run, with the CPU where it waits, which until now
    /// another scheduler did.
    pub(super) fn take_over(&mut self, sys: &Sys, running: &[Tid], runnable: Vec<(Tid, usize)>) {
        for (cpu, &task) in running.iter().enumerate().filter(|(_, task)| **task != NO_TASK) {
            let t = &mut self.tasks[task as usize];
            t.vruntime_ns = self.rqs[cpu].clock_ns + self.slices.placed_ns(t.vruntime_ns);
            self.begin(sys, cpu, task);
        }
        // Each stays in the queue of its CPU, as in a change of the scheduling class.
        for (task, cpu) in runnable {
            let usable = sys.online.has(cpu) && sys.allows(task, cpu);
            let other = || sys.online.iter().find(|&cpu| sys.allows(task, cpu)).unwrap_or(cpu);
            self.enqueue(sys, if usable { cpu } else { other() }, task, true);
        }
    }

    /// What each task did until now, by number.
    pub(super) fn counted(&self) -> impl Iterator<Item = KernelUse> {
        self.tasks.iter().map(|task| task.counted)
    }

    /// Leave what runs to another scheduler, and what can run, which is returned.
    pub(super) fn give_up(&mut self, sys: &Sys) -> Vec<Tid> {
        let mut runnable = Vec::new();
        for cpu in 0..self.rqs.len() {
            let curr = std::mem::replace(&mut self.rqs[cpu].curr, NO_TASK);
            if curr != NO_TASK {
                self.charge(sys, cpu, curr);
                self.make_relative(cpu, curr);
            }
            for task in self.rqs[cpu].queue.drain() {
                self.make_relative(cpu, task);
                runnable.push(task);
            }
        }
        runnable
    }

    /// The task runs on the CPU from now on.
    fn begin(&mut self, sys: &Sys, cpu: usize, task: Tid) {
        let t = &mut self.tasks[task as usize];
        t.started_ns = sys.now_ns;
        t.counted.moves += u64::from(![NO_CPU, cpu as u16].contains(&t.last_cpu));
        t.last_cpu = cpu as u16;
        self.rqs[cpu].curr = task;
        self.rqs[cpu].curr_since_ns = sys.now_ns;
    }

    fn load(&self, cpu: usize) -> usize {
        self.rqs[cpu].load()
    }

    /// A task from the longest queue that has one for this CPU, near ones first.
    fn pull(&mut self, sys: &Sys, cpu: usize, at_least: usize) -> Option<Tid> {
        let here = sys.layout.place[cpu];
        let distance = |other: usize| {
            let there = sys.layout.place[other];
            u8::from(there.llc != here.llc) + u8::from(there.package != here.package)
        };
        for level in 0..3 {
            let longest = (0..self.rqs.len())
                .filter(|&other| other != cpu && distance(other) == level)
                .filter(|&other| !self.rqs[other].queue.is_empty() && self.load(other) >= at_least)
                .filter(|&other| self.rqs[other].queue.first_ns(|t| sys.allows(t, cpu)).is_some())
                .max_by_key(|&other| (self.load(other), usize::MAX - other));
            if let Some(other) = longest {
                let task = self.rqs[other].queue.take(|t| sys.allows(t, cpu))?;
                self.make_relative(other, task);
                return Some(task);
            }
        }
        None
    }

    /// A waiting task of a busier CPU, if it is time to look and one is to move.
    fn rebalance(&mut self, sys: &Sys, cpu: usize) -> Option<Tid> {
        let busiest = self.balance.looks(sys, cpu, |cpu| self.rqs[cpu].load())?;
        let task = self.rqs[busiest].queue.take(|t| sys.allows(t, cpu))?;
        self.make_relative(busiest, task);
        Some(task)
    }
}

impl Scheduler for Fair {
    fn new_task(&mut self, _: &mut Sys, new: &NewTask) {
        let weight = new.weight;
        self.tasks.push(FairTask {
            vruntime_ns: 0,
            weight,
            started_ns: 0,
            slept_on: None,
            counted: KernelUse::default(),
            queued_ns: 0,
            last_cpu: NO_CPU,
        });
    }

    fn wake(&mut self, sys: &mut Sys, task: Tid, _: &mut impl Sink) {
        self.counters.decisions += 1;
        if let Some(cpu) = self.tasks[task as usize].slept_on.take() {
            self.make_relative(cpu.into(), task);
        }
        self.place(sys, task);
    }

    fn pick(&mut self, sys: &mut Sys, cpu: usize, prev: Option<Ran>, _: &mut impl Sink) -> Pick {
        self.counters.decisions += 1;
        let Some(Ran { task: prev, yields }) = prev else {
            if let Some(task) = self.rqs[cpu].queue.take(|_| true) {
                return Pick::Run(task);
            }
            let Some(task) = self.pull(sys, cpu, 1) else { return Pick::Idle };
            self.enqueue(sys, cpu, task, true);
            return self.rqs[cpu].queue.take(|_| true).map_or(Pick::Idle, Pick::Run);
        };
        self.charge(sys, cpu, prev);
        let vruntime_ns = self.tasks[prev as usize].vruntime_ns;
        match self.rqs[cpu].queue.head_ns() {
            Some(head_ns) if self.goes_before(head_ns, vruntime_ns) || yields => {
                Pick::Run(self.rqs[cpu].queue.take(|_| true).expect("it has a head"))
            }
            _ => {
                self.rqs[cpu].curr_since_ns = sys.now_ns;
                Pick::Keep
            }
        }
    }

    fn stops(&mut self, sys: &mut Sys, on: OnCpu, runnable: bool, _: &mut impl Sink) {
        let OnCpu { cpu, task } = on;
        self.charge(sys, cpu, task);
        self.rqs[cpu].curr = NO_TASK;
        match self.slices {
            _ if runnable => {}
            // the lag stays as it was
            Slices::Fixed | Slices::Exact => self.make_relative(cpu, task),
            // who sleeps falls behind
            Slices::Latency => self.tasks[task as usize].slept_on = Some(cpu as u16),
        }
    }

    fn put(&mut self, sys: &mut Sys, OnCpu { cpu, task }: OnCpu, _idles: bool) {
        if sys.online.has(cpu) && sys.allows(task, cpu) {
            self.enqueue(sys, cpu, task, false);
        } else {
            self.make_relative(cpu, task);
            self.place(sys, task);
        }
    }

    fn starts(&mut self, sys: &mut Sys, OnCpu { cpu, task }: OnCpu, _: &mut impl Sink) -> bool {
        let t = &mut self.tasks[task as usize];
        t.counted.wait_ns += sys.now_ns - t.queued_ns;
        self.begin(sys, cpu, task);
        false
    }

    fn tick(&mut self, sys: &mut Sys, OnCpu { cpu, task }: OnCpu, _: &mut impl Sink) -> bool {
        self.counters.decisions += 1;
        self.charge(sys, cpu, task);
        let load = self.load(cpu);
        let pulled = self.pull(sys, cpu, load + 2).or_else(|| self.rebalance(sys, cpu));
        if let Some(pulled) = pulled {
            self.enqueue(sys, cpu, pulled, true);
        }
        let rq = &self.rqs[cpu];
        let Some(next_ns) = rq.queue.head_ns() else { return false };
        let ran_ns = (sys.now_ns - rq.curr_since_ns) as i64;
        let ahead_ns = self.tasks[task as usize].vruntime_ns - next_ns;
        self.slices.is_over(self.load(cpu), ran_ns, ahead_ns)
    }

    fn turn_ends_ns(&self, cpu: usize) -> u64 {
        match self.slices {
            Slices::Exact => self.rqs[cpu].curr_since_ns + self.exact_slice_ns,
            Slices::Fixed | Slices::Latency => NEVER,
        }
    }

    fn idles(&mut self, _: &mut Sys, cpu: usize) -> bool {
        !self.rqs[cpu].queue.is_empty()
    }

    fn affinity_changed(&mut self, sys: &mut Sys, task: Tid) {
        for cpu in 0..self.rqs.len() {
            if !sys.allows(task, cpu) && self.rqs[cpu].queue.take(|t| t == task).is_some() {
                self.make_relative(cpu, task);
                self.place(sys, task);
            }
        }
    }

    fn hotplug(&mut self, sys: &mut Sys, _: &mut impl Sink) {
        for cpu in 0..self.rqs.len() {
            if sys.online.has(cpu) {
                sys.kick(cpu, Kick::Idle);
                continue;
            }
            for task in self.rqs[cpu].queue.drain() {
                self.make_relative(cpu, task);
                self.place(sys, task);
            }
        }
    }

    fn counters(&self) -> SchedCounters {
        self.counters
    }
}
