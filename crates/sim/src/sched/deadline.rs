// SPDX-License-Identifier: MIT OR Apache-2.0
//! Earliest virtual deadline first, machine-wide: MuQSS; and core scheduling on top of it.
//!
//! **MuQSS** (Kolivas; the baseline of SFMA, SYSTOR and THESIS) keeps a queue per physical core,
//! but each CPU looks at the heads of all queues whenever it schedules and takes the earliest
//! deadline. That is one queue for the machine, which is what this is. A task's deadline is a
//! round-robin interval of 6 ms, scaled by its weight, after it got its slice; a waking task
//! preempts the CPU with the latest deadline.
//!
//! **Core scheduling** (SYSTOR 6.1, Li): tasks that have announced wide code, and all others, never
//! run on siblings of one core at the same time. A core belongs to the kind of task that runs on
//! it; a CPU whose queue holds only the other kind idles. When the first of the other kind has been
//! late for a slice, the core changes hands: both siblings finish, then the kind changes.
//!
//! Limits: MuQSS's preference for near queues is only in the choice of an idle CPU.

use super::queue::Queue;
use super::turn::{INTERVAL_NS, Turn};
use super::{Act, NewTask, OnCpu, Pick, Ran, SchedCounters, Scheduler, Verdict};
use crate::events::Sink;
use crate::sys::{Kick, NO_TASK, Sys, Tid};

#[derive(Clone, Debug)]
struct DeadlineTask {
    turn: Turn,
    /// It has announced wide code.
    wide: bool,
}

/// The scheduler.
#[derive(Clone, Debug)]
pub struct Deadline {
    /// Wide and other tasks never share a core.
    core_scheduling: bool,
    tasks: Vec<DeadlineTask>,
    queue: Queue,
    inserted: u32,
    curr: Vec<Tid>,
    /// By core: the kind that it must change to.
    change_to: Vec<Option<bool>>,
    counters: SchedCounters,
}

impl Deadline {
    /// MuQSS, for a machine.
    pub fn muqss(sys: &Sys) -> Self {
        Deadline {
            core_scheduling: false,
            tasks: Vec::new(),
            queue: Queue::default(),
            inserted: 0,
            curr: vec![NO_TASK; sys.layout.nr_cpus],
            change_to: vec![None; sys.layout.cores.len()],
            counters: SchedCounters::default(),
        }
    }

    /// The same with core scheduling.
    pub fn core_scheduling(sys: &Sys) -> Self {
        Deadline { core_scheduling: true, ..Deadline::muqss(sys) }
    }

    fn turn(&mut self, task: Tid) -> &mut Turn {
        &mut self.tasks[task as usize].turn
    }

    fn enqueue(&mut self, task: Tid) {
        self.inserted = self.inserted.wrapping_add(1);
        let deadline_ns = self.tasks[task as usize].turn.deadline_ns as i64;
        self.queue.insert(task, deadline_ns, self.inserted);
    }

    /// The kind of task that the CPU may run now; `None`: any.
    fn kind_for(&self, sys: &Sys, cpu: usize) -> Option<bool> {
        if !self.core_scheduling {
            return None;
        }
        let core = sys.layout.place[cpu].core as usize;
        let others = sys.layout.cores[core].iter().filter(|&&other| other as usize != cpu);
        let busy = others.map(|&other| self.curr[other as usize]).find(|&task| task != NO_TASK);
        busy.map(|task| self.tasks[task as usize].wide)
    }

    fn may(&self, sys: &Sys, cpu: usize, kind: Option<bool>, task: Tid) -> bool {
        sys.allows(task, cpu) && kind.is_none_or(|wide| self.tasks[task as usize].wide == wide)
    }

    fn place(&mut self, sys: &mut Sys, task: Tid) {
        let prev = sys.cpu_of[task as usize] as usize;
        if self.core_scheduling {
            self.enqueue(task);
            self.wake_somebody(sys, task);
            return;
        }
        let llc = sys.layout.llcs[sys.layout.place[prev].llc as usize].clone();
        let idle = if sys.allows(task, prev) && sys.claim(prev) {
            Some(prev)
        } else {
            let online = sys.online.clone();
            sys.claim_any(&llc, task).or_else(|| sys.claim_any(&online, task))
        };
        self.enqueue(task);
        match idle {
            Some(cpu) => sys.kick(cpu, Kick::Idle),
            None => self.preempt(sys, task),
        }
    }

    /// An idle CPU whose core is of the task's kind or free.
    fn wake_somebody(&mut self, sys: &mut Sys, task: Tid) {
        let fits = |cpu: &usize| {
            let kind = self.kind_for(sys, *cpu);
            self.may(sys, *cpu, kind, task)
        };
        let idle = sys.idle.iter().find(fits);
        match idle {
            Some(cpu) if sys.claim(cpu) => sys.kick(cpu, Kick::Idle),
            _ => self.preempt(sys, task),
        }
    }

    /// Displace the task with the latest deadline, if it is later.
    fn preempt(&mut self, sys: &mut Sys, task: Tid) {
        let wide = self.tasks[task as usize].wide;
        let deadline_ns = self.tasks[task as usize].turn.deadline_ns;
        let latest = (0..self.curr.len())
            .filter(|&cpu| self.curr[cpu] != NO_TASK && sys.allows(task, cpu))
            .filter(|&cpu| {
                !self.core_scheduling || self.tasks[self.curr[cpu] as usize].wide == wide
            })
            .max_by_key(|&cpu| (self.tasks[self.curr[cpu] as usize].turn.deadline_ns, cpu));
        if let Some(cpu) = latest
            && self.tasks[self.curr[cpu] as usize].turn.deadline_ns > deadline_ns
        {
            self.counters.preemptions += 1;
            sys.kick(cpu, Kick::Preempt);
        }
    }

    /// At a tick: does the other kind wait too long for this core?
    fn must_change(&mut self, sys: &Sys, cpu: usize, wide: bool) -> bool {
        let core = sys.layout.place[cpu].core as usize;
        if !self.core_scheduling {
            return false;
        }
        if self.change_to[core].is_some() {
            return true;
        }
        let other = |task: Tid| sys.allows(task, cpu) && self.tasks[task as usize].wide != wide;
        let late = self.queue.first_ns(other).is_some_and(|ns| ns < sys.now_ns as i64);
        if late {
            self.change_to[core] = Some(!wide);
        }
        late
    }

    /// Kind that the CPU may run, with a change of hands in progress.
    fn kind_or_change(&mut self, sys: &mut Sys, cpu: usize) -> Result<Option<bool>, ()> {
        let core = sys.layout.place[cpu].core as usize;
        let kind = self.kind_for(sys, cpu);
        match (self.change_to[core], kind) {
            (None, kind) => Ok(kind),
            (Some(to), None) => {
                self.change_to[core] = None;
                for &sibling in &sys.layout.cores[core].clone() {
                    sys.kick(sibling as usize, Kick::Idle);
                }
                Ok(Some(to))
            }
            (Some(to), Some(now)) if to == now => {
                self.change_to[core] = None;
                Ok(Some(now))
            }
            // the sibling has not finished yet
            (Some(_), Some(_)) => Err(()),
        }
    }
}

impl Scheduler for Deadline {
    fn new_task(&mut self, sys: &mut Sys, new: &NewTask) {
        let wide = new.parent.is_some_and(|parent| self.tasks[parent as usize].wide);
        self.tasks.push(DeadlineTask { turn: Turn::new(sys.now_ns, new.weight), wide });
    }

    fn wake(&mut self, sys: &mut Sys, task: Tid, _: &mut impl Sink) {
        self.counters.decisions += 1;
        if self.turn(task).left_ns == 0 {
            self.turn(task).renew(sys.now_ns, INTERVAL_NS);
        }
        self.place(sys, task);
    }

    fn pick(&mut self, sys: &mut Sys, cpu: usize, prev: Option<Ran>, _: &mut impl Sink) -> Pick {
        self.counters.decisions += 1;
        let Ok(kind) = self.kind_or_change(sys, cpu) else { return Pick::Idle };
        if let Some(Ran { task: prev, .. }) = prev {
            let turn = self.turn(prev);
            turn.charge(sys.now_ns);
            if turn.left_ns == 0 {
                turn.renew(sys.now_ns, INTERVAL_NS);
            }
            if self.may(sys, cpu, kind, prev) {
                let own_ns = self.tasks[prev as usize].turn.deadline_ns as i64;
                let first_ns = self.queue.first_ns(|task| self.may(sys, cpu, kind, task));
                if first_ns.is_none_or(|first_ns| first_ns >= own_ns) {
                    return Pick::Keep;
                }
            }
        }
        let mut queue = std::mem::take(&mut self.queue);
        let task = queue.take(|task| self.may(sys, cpu, kind, task));
        // a change of hands may find that no one of that kind is left
        let task = task.or_else(|| {
            let kind = self.kind_for(sys, cpu);
            queue.take(|task| self.may(sys, cpu, kind, task))
        });
        self.queue = queue;
        task.map_or(Pick::Idle, Pick::Run)
    }

    fn stops(&mut self, sys: &mut Sys, OnCpu { cpu, task }: OnCpu, _: bool, _: &mut impl Sink) {
        self.turn(task).charge(sys.now_ns);
        self.curr[cpu] = NO_TASK;
        if self.core_scheduling {
            // the sibling may have been idle for want of its kind
            let core = sys.layout.place[cpu].core as usize;
            for &sibling in &sys.layout.cores[core].clone() {
                if sibling as usize != cpu && !self.queue.is_empty() {
                    sys.kick(sibling as usize, Kick::Idle);
                }
            }
        }
    }

    fn put(&mut self, sys: &mut Sys, on: OnCpu, _idles: bool) {
        self.place(sys, on.task);
    }

    fn starts(&mut self, sys: &mut Sys, OnCpu { cpu, task }: OnCpu, _: &mut impl Sink) -> bool {
        self.turn(task).started_ns = sys.now_ns;
        self.curr[cpu] = task;
        false
    }

    fn tick(&mut self, sys: &mut Sys, OnCpu { cpu, task }: OnCpu, _: &mut impl Sink) -> bool {
        self.counters.decisions += 1;
        self.turn(task).charge(sys.now_ns);
        let t = &self.tasks[task as usize];
        let (used_up, wide) = (t.turn.left_ns == 0, t.wide);
        self.must_change(sys, cpu, wide) || (used_up && !self.queue.is_empty())
    }

    fn act(&mut self, _: &mut Sys, on: OnCpu, act: Act, _: &mut impl Sink) -> Verdict {
        if matches!(act, Act::WideBegin(_)) && self.core_scheduling {
            let first = !std::mem::replace(&mut self.tasks[on.task as usize].wide, true);
            // its core may hold another kind now
            return Verdict { cost_ns: 0, resched: first, yields: false };
        }
        Verdict::default()
    }

    fn idles(&mut self, sys: &mut Sys, cpu: usize) -> bool {
        let kind = self.kind_for(sys, cpu);
        self.queue.first_ns(|task| self.may(sys, cpu, kind, task)).is_some()
    }

    fn affinity_changed(&mut self, sys: &mut Sys, _: Tid) {
        let idle: Vec<usize> = sys.idle.iter().collect();
        idle.into_iter().for_each(|cpu| sys.kick(cpu, Kick::Idle));
    }

    fn hotplug(&mut self, sys: &mut Sys, _: &mut impl Sink) {
        for cpu in 0..sys.layout.nr_cpus {
            sys.kick(cpu, Kick::Idle);
        }
    }

    fn counters(&self) -> SchedCounters {
        self.counters
    }
}
