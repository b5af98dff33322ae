// SPDX-License-Identifier: MIT OR Apache-2.0
//! KIT's prototypes, which SFMA, SYSTOR and THESIS measured: core specialisation in MuQSS.
//!
//! Problem: the papers' mitigated figures are those of another policy than ours. Our policy in its
//! place would be compared with figures that it never promised.
//!
//! Idea: what the papers say of the prototypes, and nothing else:
//!
//! | what | where it is said |
//! |---|---|
//! | MuQSS's deadlines, a queue per task type; any CPU takes any task that it may | SFMA 3.2, SYSTOR 3.2, THESIS 2.4 |
//! | wide CPUs: wide and default tasks by deadline, scalar ones only without either | SFMA 3.2, SYSTOR 3.2 |
//! | or scalar ones never (`guests=no`) | THESIS 2.4 says so of the implementation that it extends, 4.2 the contrary |
//! | other CPUs: default and scalar tasks by deadline | all |
//! | single CPUs are wide, not complete cores | THESIS 5.2.2 |
//! | a task that turns wide interrupts a random wide CPU that runs nothing wide, if there is one | SYSTOR 3.2 |
//! | tasks are default until they use wide code or inherit a type; there is no other word for them | SYSTOR 3.2, THESIS 2.4 |
//! | explicit marks are system calls | SFMA 4, THESIS 2.4 |
//! | a wide task that enters a system call on a wide CPU becomes scalar; it is re-scheduled there and on return (`entry`), or on return only (`return`) | SYSTOR 3.3; THESIS 4.4, 5.2.2 |
//! | or at any context switch, with a slice of its own for wide tasks | THESIS 4.4 |
//! | or some time after it became wide | SYSTOR 3.3 |
//! | scalar tasks go to idle CPUs that are not wide first; one that has just become scalar is fetched by such a CPU | THESIS 4.2; SFMA 3.2 |
//! | else no one leaves a wide CPU because a better one is idle | follows from MuQSS: only queued tasks are taken |
//! | automatic sizing | `sizing.rs` |
//!
//! Limits: one machine-wide queue per type, as in `deadline.rs`. The penalty on deadlines of scalar
//! tasks (THESIS 4.2) is infinite: they go last. Lock contention (SFMA 4.2, footnote) does not
//! exist.

mod sizing;

use cpumodel::InsnClass;
use policy::{LEVEL_MAX, TYPE_DEFAULT, TYPE_SCALAR, TYPE_WIDE};

use super::queue::Queue;
use super::turn::{INTERVAL_NS, Turn};
use super::{Act, NewTask, OnCpu, Pick, Ran, SchedCounters, Scheduler, Verdict};
use crate::bits::Mask;
use crate::events::{Happened, Sink};
use crate::rng::Rng;
use crate::sys::{Kick, NO_CPU, NO_TASK, Sys, Tid};
use crate::timers::NEVER;
use sizing::Sizing;

/// What a system call that changes a task's type costs, as in `lane::DetectCosts`.
const SYSCALL_NS: u32 = 120;

/// What ends a wide period.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Nothing but an explicit mark.
    Never,
    /// Entry of a system call, with a look for another task at once.
    Entry,
    /// Entry of a system call; another task is looked for on return.
    Return,
    /// A context switch.
    Switch,
}

/// Settings.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PrototypeConfig {
    /// So many CPUs are wide, whole cores first, the last in topology order; the most if `alpha`.
    pub cpus: usize,
    /// Automatic sizing with averages that take so much of the last tick; `None`: fixed.
    pub alpha: Option<f64>,
    /// The cost of a trap, ns; `None`: explicit marks instead.
    pub trap_ns: Option<u32>,
    /// End of wide periods.
    pub end: End,
    /// End of wide periods by time, ns.
    pub timeout_ns: u64,
    /// Slice of wide tasks.
    pub slice_wide_ns: u64,
    /// Whether wide CPUs run scalar tasks when they have nothing else.
    pub guests: bool,
}

impl Default for PrototypeConfig {
    /// SYSTOR's, with one wide core.
    fn default() -> Self {
        PrototypeConfig {
            cpus: 2,
            alpha: None,
            trap_ns: Some(370),
            end: End::Entry,
            timeout_ns: u64::MAX,
            slice_wide_ns: INTERVAL_NS,
            guests: true,
        }
    }
}

#[derive(Clone, Debug)]
struct PrototypeTask {
    turn: Turn,
    task_type: u8,
    /// When it became wide.
    wide_ns: u64,
    /// It changed its type in this system call: to be re-scheduled on return.
    on_return: bool,
    /// It has become scalar, and no CPU has chosen since.
    just_scalar: bool,
    /// The idle CPU that was woken for it, `NO_CPU` if none was.
    sent_to: u16,
}

/// The scheduler.
#[derive(Clone, Debug)]
pub struct Prototype {
    config: PrototypeConfig,
    tasks: Vec<PrototypeTask>,
    /// By type.
    queues: [Queue; 3],
    inserted: u32,
    curr: Vec<Tid>,
    wide_cpus: Mask,
    sizing: Sizing,
    rng: Rng,
    counters: SchedCounters,
}

const DEFAULT: usize = TYPE_DEFAULT as usize;
const SCALAR: usize = TYPE_SCALAR as usize;
const WIDE: usize = TYPE_WIDE as usize;

impl Prototype {
    /// For a machine.
    pub fn new(sys: &Sys, config: PrototypeConfig) -> Self {
        let nr = sys.layout.nr_cpus;
        let siblings_first = sys.layout.cores.iter().rev().flatten().map(|&cpu| cpu as usize);
        let fixed = if config.alpha.is_some() { 0 } else { config.cpus };
        Prototype {
            config,
            tasks: Vec::new(),
            queues: Default::default(),
            inserted: 0,
            curr: vec![NO_TASK; nr],
            wide_cpus: Mask::of(nr, siblings_first.take(fixed)),
            sizing: Sizing::new(nr),
            rng: Rng::new(0, 0),
            counters: SchedCounters::default(),
        }
    }

    /// The queue of a task: a wide one that reaches no wide CPU may run where it is (SYSTOR 3.2).
    fn queue_of(&self, sys: &Sys, task: Tid) -> usize {
        match self.tasks[task as usize].task_type as usize {
            WIDE if !self.wide_cpus.intersects(sys.affinity(task)) => SCALAR,
            task_type => task_type,
        }
    }

    /// Queues of a CPU, those of one row by deadline, an earlier row first.
    fn rows(&self, cpu: usize) -> &'static [&'static [usize]] {
        match (self.wide_cpus.has(cpu), self.config.guests) {
            (false, _) => &[&[SCALAR, DEFAULT]],
            (true, true) => &[&[WIDE, DEFAULT], &[SCALAR]],
            (true, false) => &[&[WIDE, DEFAULT]],
        }
    }

    fn change(&mut self, sys: &Sys, task: Tid, to: usize, sink: &mut impl Sink) {
        let t = &mut self.tasks[task as usize];
        t.task_type = to as u8;
        t.wide_ns = sys.now_ns;
        t.just_scalar = to == SCALAR;
        self.counters.type_changes += 1;
        let level = if to == WIDE { LEVEL_MAX as u8 } else { 0 };
        sink.happened(sys.now_ns, &Happened::Type { task, task_type: to as u8, level });
    }

    fn is_wide(&self, task: Tid) -> bool {
        task != NO_TASK && self.tasks[task as usize].task_type as usize == WIDE
    }

    fn charge(&mut self, sys: &Sys, OnCpu { cpu, task }: OnCpu) {
        let t = &mut self.tasks[task as usize];
        let used_ns = t.turn.charge(sys.now_ns);
        let wide = t.task_type as usize == WIDE;
        self.sizing.ran(cpu, used_ns, wide);
        if t.task_type as usize == SCALAR && self.wide_cpus.has(cpu) {
            self.counters.guest_ns += used_ns;
        }
    }

    fn slice_ns(&self, task: Tid) -> u64 {
        if self.is_wide(task) { self.config.slice_wide_ns } else { INTERVAL_NS }
    }

    fn renew(&mut self, sys: &Sys, task: Tid) {
        let slice_ns = self.slice_ns(task);
        self.tasks[task as usize].turn.renew(sys.now_ns, slice_ns);
    }

    /// Queue the task; an idle CPU or one with less right to run takes it.
    fn place(&mut self, sys: &mut Sys, task: Tid) {
        let kind = self.queue_of(sys, task);
        self.inserted = self.inserted.wrapping_add(1);
        let deadline_ns = self.tasks[task as usize].turn.deadline_ns;
        self.queues[kind].insert(task, deadline_ns as i64, self.inserted);
        match self.claim_idle(sys, task, kind) {
            Some(cpu) => {
                self.tasks[task as usize].sent_to = cpu as u16;
                sys.kick(cpu, Kick::Idle);
            }
            None if kind == WIDE => self.interrupt_wide_cpu(sys, task),
            None => self.preempt(sys, task, kind),
        }
    }

    /// Whether the CPU may take the queued task.
    fn may_take(&self, sys: &Sys, task: Tid, cpu: usize) -> bool {
        let sent_to = self.tasks[task as usize].sent_to;
        sys.allows(task, cpu) && (sent_to == NO_CPU || usize::from(sent_to) == cpu)
    }

    /// CPUs or affinities changed: whoever may, takes what is queued.
    fn look_again(&mut self, sys: &mut Sys) {
        self.tasks.iter_mut().for_each(|t| t.sent_to = NO_CPU);
        (0..sys.layout.nr_cpus).for_each(|cpu| sys.kick(cpu, Kick::Idle));
    }

    fn may_run(&self, kind: usize, cpu: usize) -> bool {
        self.rows(cpu).iter().any(|row| row.contains(&kind))
    }

    fn claim_idle(&self, sys: &mut Sys, task: Tid, kind: usize) -> Option<usize> {
        if sys.idle.is_empty() {
            return None;
        }
        let best = |cpu: usize| kind != SCALAR || !self.wide_cpus.has(cpu);
        self.claim_idle_of(sys, task, |cpu| best(cpu) && self.may_run(kind, cpu))
            .or_else(|| self.claim_idle_of(sys, task, |cpu| self.may_run(kind, cpu)))
    }

    /// MuQSS: the task's last CPU, its cache, any.
    fn claim_idle_of(
        &self,
        sys: &mut Sys,
        task: Tid,
        fits: impl Fn(usize) -> bool,
    ) -> Option<usize> {
        let prev = sys.cpu_of[task as usize] as usize;
        if fits(prev) && sys.allows(task, prev) && sys.claim(prev) {
            return Some(prev);
        }
        let idle = Mask::of(sys.layout.nr_cpus, sys.idle.iter().filter(|&cpu| fits(cpu)));
        let near = idle.and(&sys.layout.llcs[sys.layout.place[prev].llc as usize]);
        sys.claim_any(&near, task).or_else(|| sys.claim_any(&idle, task))
    }

    /// Whether a task has just become scalar, and a CPU that is not wide idles and fetches it.
    fn is_fetched(&mut self, sys: &Sys, task: Tid) -> bool {
        let may = |cpu: usize| !self.wide_cpus.has(cpu) && sys.allows(task, cpu);
        let fetched = self.tasks[task as usize].just_scalar && sys.idle.iter().any(may);
        self.tasks[task as usize].just_scalar = false;
        fetched
    }

    /// SYSTOR 3.2: "a random AVX-512 core that is currently not executing AVX-512 threads".
    fn interrupt_wide_cpu(&mut self, sys: &mut Sys, task: Tid) {
        let others = |cpu: &usize| sys.allows(task, *cpu) && !self.is_wide(self.curr[*cpu]);
        let candidates: Vec<usize> = self.wide_cpus.iter().filter(others).collect();
        if !candidates.is_empty() {
            self.counters.preemptions += 1;
            let cpu = candidates[self.rng.below(candidates.len() as u64) as usize];
            sys.kick(cpu, Kick::Preempt);
        }
    }

    /// MuQSS: the task with the latest deadline goes, if its deadline is later.
    fn preempt(&mut self, sys: &mut Sys, task: Tid, kind: usize) {
        let deadline_of = |task: Tid| self.tasks[task as usize].turn.deadline_ns;
        let latest = (0..self.curr.len())
            .filter(|&cpu| self.curr[cpu] != NO_TASK && sys.allows(task, cpu))
            .filter(|&cpu| self.may_run(kind, cpu) && !self.is_wide(self.curr[cpu]))
            .max_by_key(|&cpu| (deadline_of(self.curr[cpu]), cpu));
        if let Some(cpu) = latest.filter(|&cpu| deadline_of(self.curr[cpu]) > deadline_of(task)) {
            self.counters.preemptions += 1;
            sys.kick(cpu, Kick::Preempt);
        }
    }

    /// A wide instruction on a CPU that withholds it. With automatic sizing the CPU may become
    /// wide instead (THESIS 4.2).
    fn trap(&mut self, sys: &Sys, OnCpu { cpu, task }: OnCpu, sink: &mut impl Sink) -> Verdict {
        let Some(cost_ns) = self.config.trap_ns else { return Verdict::default() };
        if self.wide_cpus.has(cpu) || self.is_wide(task) {
            return Verdict::default();
        }
        self.counters.traps += 1;
        self.change(sys, task, WIDE, sink);
        if self.config.alpha.is_some()
            && self.sizing.may_grow(self.wide_cpus.len(), self.config.cpus)
        {
            self.wide_cpus.set(cpu);
            self.counters.resizes += 1;
            tell_class(sys, cpu, true, sink);
        }
        Verdict { cost_ns, resched: !self.wide_cpus.has(cpu), yields: false }
    }

    /// A system call ends a wide period.
    fn syscall(&mut self, sys: &Sys, OnCpu { cpu, task }: OnCpu, sink: &mut impl Sink) -> Verdict {
        let ends = matches!(self.config.end, End::Entry | End::Return);
        if !ends || !self.is_wide(task) || !self.wide_cpus.has(cpu) {
            return Verdict::default();
        }
        self.change(sys, task, SCALAR, sink);
        self.tasks[task as usize].on_return = true;
        Verdict { resched: self.config.end == End::Entry, ..Default::default() }
    }
}

fn tell_class(sys: &Sys, cpu: usize, wide: bool, sink: &mut impl Sink) {
    let class = if wide { LEVEL_MAX as u8 } else { 0 };
    sink.happened(sys.now_ns, &Happened::Class { cpu: cpu as u16, class });
}

impl Scheduler for Prototype {
    fn new_task(&mut self, sys: &mut Sys, new: &NewTask) {
        let parent = new.parent.map(|parent| self.tasks[parent as usize].task_type);
        let inherited = parent.filter(|_| !new.kernel);
        self.tasks.push(PrototypeTask {
            turn: Turn::new(sys.now_ns, new.weight),
            task_type: inherited.unwrap_or(DEFAULT as u8),
            wide_ns: sys.now_ns,
            on_return: false,
            just_scalar: false,
            sent_to: NO_CPU,
        });
    }

    fn wake(&mut self, sys: &mut Sys, task: Tid, _: &mut impl Sink) {
        self.counters.decisions += 1;
        if self.tasks[task as usize].turn.left_ns == 0 {
            self.renew(sys, task);
        }
        self.place(sys, task);
    }

    fn pick(&mut self, sys: &mut Sys, cpu: usize, prev: Option<Ran>, _: &mut impl Sink) -> Pick {
        self.counters.decisions += 1;
        let prev = prev.map(|prev| prev.task);
        if let Some(task) = prev {
            self.charge(sys, OnCpu { cpu, task });
            if self.tasks[task as usize].turn.left_ns == 0 {
                self.renew(sys, task);
            }
        }
        let stays = prev.filter(|&task| !self.is_fetched(sys, task));
        let stays = stays.map(|task| (task, self.queue_of(sys, task)));
        for row in self.rows(cpu) {
            let first = |&kind: &usize| {
                let ns = self.queues[kind].first_ns(|task| self.may_take(sys, task, cpu))?;
                Some((ns, kind))
            };
            let queued = row.iter().filter_map(first).min();
            if let Some((task, _)) =
                stays.filter(|&(task, kind)| row.contains(&kind) && sys.allows(task, cpu))
            {
                let own_ns = self.tasks[task as usize].turn.deadline_ns as i64;
                if queued.is_none_or(|(ns, _)| ns >= own_ns) {
                    return Pick::Keep;
                }
            }
            if let Some((_, kind)) = queued {
                let mut queue = std::mem::take(&mut self.queues[kind]);
                let task = queue.take(|task| self.may_take(sys, task, cpu));
                self.queues[kind] = queue;
                return task.map_or(Pick::Idle, Pick::Run);
            }
        }
        Pick::Idle
    }

    fn stops(&mut self, sys: &mut Sys, on: OnCpu, _: bool, sink: &mut impl Sink) {
        let OnCpu { cpu, task } = on;
        self.charge(sys, on);
        self.curr[cpu] = NO_TASK;
        if self.config.end == End::Switch && self.is_wide(task) && self.wide_cpus.has(cpu) {
            self.change(sys, task, SCALAR, sink);
        }
    }

    fn put(&mut self, sys: &mut Sys, on: OnCpu, _: bool) {
        self.place(sys, on.task);
    }

    fn starts(&mut self, sys: &mut Sys, OnCpu { cpu, task }: OnCpu, _: &mut impl Sink) -> bool {
        let slice_ns = self.slice_ns(task);
        let t = &mut self.tasks[task as usize];
        t.sent_to = NO_CPU;
        t.turn.started_ns = sys.now_ns;
        t.turn.left_ns = t.turn.left_ns.min(slice_ns);
        self.curr[cpu] = task;
        false
    }

    fn tick(&mut self, sys: &mut Sys, on: OnCpu, sink: &mut impl Sink) -> bool {
        self.counters.decisions += 1;
        let task = on.task;
        self.charge(sys, on);
        let t = &self.tasks[task as usize];
        let used_up = t.turn.left_ns == 0 && self.queues.iter().any(|queue| !queue.is_empty());
        let late = self.is_wide(task) && sys.now_ns - t.wide_ns >= self.config.timeout_ns;
        if late {
            self.change(sys, task, SCALAR, sink);
        }
        used_up || late
    }

    fn act(&mut self, sys: &mut Sys, on: OnCpu, act: Act, sink: &mut impl Sink) -> Verdict {
        let marked = self.config.trap_ns.is_none();
        let on_wide_cpu = self.wide_cpus.has(on.cpu);
        match act {
            Act::WideBegin(_) if marked => {
                self.change(sys, on.task, WIDE, sink);
                Verdict { cost_ns: SYSCALL_NS, resched: !on_wide_cpu, yields: false }
            }
            Act::WideEnd { .. } if marked => {
                self.change(sys, on.task, SCALAR, sink);
                Verdict { cost_ns: SYSCALL_NS, resched: on_wide_cpu, yields: false }
            }
            Act::WideBegin(_) | Act::WideEnd { .. } => Verdict::default(),
            Act::Enter | Act::Yield => self.syscall(sys, on, sink),
            Act::Exit => {
                let resched = std::mem::take(&mut self.tasks[on.task as usize].on_return);
                Verdict { resched, ..Default::default() }
            }
            Act::Code { .. } => self.trap(sys, on, sink),
        }
    }

    fn idles(&mut self, sys: &mut Sys, cpu: usize) -> bool {
        let fits = |&kind: &usize| self.queues[kind].first_ns(|task| self.may_take(sys, task, cpu));
        self.rows(cpu).iter().any(|row| row.iter().any(|kind| fits(kind).is_some()))
    }

    fn affinity_changed(&mut self, sys: &mut Sys, _: Tid) {
        self.look_again(sys);
    }

    fn hotplug(&mut self, sys: &mut Sys, _: &mut impl Sink) {
        self.look_again(sys);
    }

    fn control(&mut self, sys: &mut Sys, sink: &mut impl Sink) -> u64 {
        if sys.now_ns == 0 {
            self.wide_cpus.iter().for_each(|cpu| tell_class(sys, cpu, true, sink));
        }
        let Some(alpha) = self.config.alpha else { return NEVER };
        self.sizing.tick(alpha);
        let unused: Vec<usize> =
            self.wide_cpus.iter().filter(|&cpu| !self.is_wide(self.curr[cpu])).collect();
        for cpu in unused {
            self.wide_cpus.clear(cpu);
            self.counters.resizes += 1;
            tell_class(sys, cpu, false, sink);
        }
        sys.now_ns + sizing::TICK_NS
    }

    fn watches_from(&self) -> InsnClass {
        // above every class: never
        if self.config.trap_ns.is_some() { InsnClass::Light512 } else { InsnClass::Amx }
    }

    fn counters(&self) -> SchedCounters {
        self.counters
    }
}
