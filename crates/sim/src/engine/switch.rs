// SPDX-License-Identifier: MIT OR Apache-2.0
//! CPUs choose, start, stop and idle; ticks; kicks.

use super::rates::end_ns;
use super::{CpuState, Engine, Load, TaskState, Todo};
use crate::events::{Happened, Sink, Stop};
use crate::sched::{OnCpu, Pick, Ran, Scheduler};
use crate::sys::{Kick, NO_TASK, Tid};
use crate::timers::NEVER;

impl<S: Scheduler, K: Sink> Engine<S, K> {
    /// The CPU has no task, or is to look for a better one.
    pub(super) fn choose(&mut self, cpu: usize, yields: bool) -> Todo {
        self.cpus[cpu].resched_ns = NEVER;
        let curr = self.cpus[cpu].curr;
        let prev = (curr != NO_TASK).then_some(Ran { task: curr, yields });
        self.sync(cpu);
        match self.sched.pick(&mut self.sys, cpu, prev, &mut self.sink) {
            Pick::Keep => {
                debug_assert!(prev.is_some(), "keeps what it has not");
                self.cpus[cpu].resched_ns = self.sched.turn_ends_ns(cpu);
                self.cpus[cpu].alarm_ns = self.sched.alarm_ns(cpu);
                self.goes_on(cpu)
            }
            Pick::Run(next) => {
                if prev.is_some() {
                    self.evict(cpu);
                }
                self.start(cpu, next)
            }
            Pick::Idle => self.idle(cpu),
        }
    }

    /// A task that keeps its CPU goes on where it was.
    fn goes_on(&mut self, cpu: usize) -> Todo {
        let task = self.cpus[cpu].curr as usize;
        if self.cpus[cpu].load != Load::None {
            self.arm(cpu);
            return Todo::Settled;
        }
        if self.tasks[task].left_q > 0 { Todo::Segment } else { Todo::Steps }
    }

    fn idle(&mut self, cpu: usize) -> Todo {
        if self.cpus[cpu].curr != NO_TASK {
            self.stop_and_put(cpu, true);
        }
        if self.sched.idles(&mut self.sys, cpu)
            && let Pick::Run(next) = self.sched.pick(&mut self.sys, cpu, None, &mut self.sink)
        {
            return self.start(cpu, next);
        }
        self.set_state(cpu, CpuState::Idle);
        self.asks(cpu, 0);
        self.arm(cpu);
        self.sys.set_idle(cpu);
        Todo::Settled
    }

    /// Keep track of who is busy: siblings share, active cores lower the clocks.
    fn set_state(&mut self, cpu: usize, state: CpuState) {
        self.sync(cpu);
        let c = &mut self.cpus[cpu];
        let (was, is) = (c.state == CpuState::Busy, state == CpuState::Busy);
        c.state = state;
        if was == is {
            return;
        }
        c.rate_holds = false;
        let (core, package) = (c.core as usize, c.package as usize);
        let nr_busy = &mut self.cores[core].nr_busy;
        *nr_busy = if is { *nr_busy + 1 } else { *nr_busy - 1 };
        let nr_busy = *nr_busy;
        if nr_busy == u8::from(is) {
            let active = &mut self.packages[package].nr_active;
            *active = if is { *active + 1 } else { *active - 1 };
            self.active_changed(package);
        }
        if nr_busy > u8::from(is) {
            for i in 0..self.cores[core].cpus.len() {
                let sibling = self.cores[core].cpus[i] as usize;
                if sibling != cpu {
                    self.retime(sibling);
                }
            }
        }
    }

    /// The CPU's task stops running.
    pub(super) fn stop(&mut self, cpu: usize, why: Stop) {
        self.sync(cpu);
        let c = &mut self.cpus[cpu];
        let task = c.curr;
        c.curr = NO_TASK;
        c.last = task;
        c.alarm_ns = NEVER;
        let t = &mut self.tasks[task as usize];
        match c.load {
            Load::None => {}
            Load::Debt => t.debt_q = c.left_q,
            Load::Work => t.left_q = c.left_q,
        }
        (c.load, c.left_q) = (Load::None, 0);
        let run = c.take_run();
        self.stats.ran(t.group as usize, run);
        t.state = match why {
            Stop::Blocked => TaskState::Waiting,
            Stop::Preempted => TaskState::Runnable,
            Stop::Ended => TaskState::Ended,
        };
        if why == Stop::Preempted {
            t.woken_ns = self.sys.now_ns;
        }
        let runnable = why == Stop::Preempted;
        self.sched.stops(&mut self.sys, OnCpu { cpu, task }, runnable, &mut self.sink);
        if K::WANTED {
            let what = Happened::Stop { task, cpu: cpu as u16, why };
            self.sink.happened(self.sys.now_ns, &what);
        }
    }

    /// The CPU runs a task from now on.
    fn start(&mut self, cpu: usize, task: Tid) -> Todo {
        let now_ns = self.sys.now_ns;
        if K::WANTED {
            self.sink.happened(now_ns, &Happened::Start { task, cpu: cpu as u16 });
        }
        if self.cpus[cpu].state != CpuState::Busy {
            self.sys.set_busy(cpu);
            self.set_state(cpu, CpuState::Busy);
        }
        let t = &self.tasks[task as usize];
        debug_assert_eq!(t.state, TaskState::Runnable, "task {task} starts on CPU {cpu}");
        self.stats.started(t.group as usize, now_ns - t.woken_ns);
        let debt_q = self.moving_costs_q(cpu, task);
        let t = &mut self.tasks[task as usize];
        t.state = TaskState::Running;
        t.asked = false;
        t.debt_q += debt_q;
        let has_work = t.left_q > 0;
        let period_ns = self.options.tick_ns;
        let c = &mut self.cpus[cpu];
        c.curr = task;
        c.synced_ns = now_ns;
        if c.tick_ns <= now_ns {
            let phase_ns = period_ns * cpu as u64 / self.sys.layout.nr_cpus as u64;
            c.tick_ns = now_ns + period_ns - (now_ns + period_ns - phase_ns) % period_ns;
        }
        self.sys.cpu_of[task as usize] = cpu as u16;
        let is_unwanted = self.sched.starts(&mut self.sys, OnCpu { cpu, task }, &mut self.sink);
        let kick_ns = if is_unwanted { now_ns + self.platform.costs.ipi_ns } else { NEVER };
        let c = &mut self.cpus[cpu];
        c.resched_ns = c.resched_ns.min(kick_ns).min(self.sched.turn_ends_ns(cpu));
        c.alarm_ns = self.sched.alarm_ns(cpu);
        if has_work { Todo::Segment } else { Todo::Steps }
    }

    /// The CPU's task must leave it.
    pub(super) fn evict(&mut self, cpu: usize) {
        self.stop_and_put(cpu, false);
    }

    fn stop_and_put(&mut self, cpu: usize, idles: bool) {
        let task = self.cpus[cpu].curr;
        self.stop(cpu, Stop::Preempted);
        self.sched.put(&mut self.sys, OnCpu { cpu, task }, idles);
    }

    /// The CPU is off line: its task leaves, and it gets no other one.
    pub(super) fn take_down(&mut self, cpu: usize) {
        if self.cpus[cpu].state == CpuState::Offline {
            return;
        }
        if self.cpus[cpu].curr != NO_TASK {
            self.evict(cpu);
        }
        self.set_state(cpu, CpuState::Offline);
        self.asks(cpu, 0);
        self.sys.set_busy(cpu);
        self.arm(cpu);
    }

    /// What it costs that the task runs here now.
    fn moving_costs_q(&mut self, cpu: usize, task: Tid) -> u64 {
        let costs = &self.platform.costs;
        let mut ns = 0;
        if self.cpus[cpu].last != task {
            ns += costs.context_switch_ns;
            self.stats.switches += 1;
        }
        let from = self.sys.cpu_of[task as usize] as usize;
        if from != cpu {
            self.stats.migrations += 1;
            let (a, b) = (self.sys.layout.place[from], self.sys.layout.place[cpu]);
            let refill_ns = if a.llc != b.llc {
                costs.refill_llc_ns
            } else if a.core != b.core {
                costs.refill_core_ns
            } else {
                0
            };
            let refill_q10 = u64::from(self.tasks[task as usize].refill_q10);
            ns += costs.migration_ns + ((refill_ns * refill_q10) >> 10);
        }
        self.cost_q(ns)
    }

    /// The handler of the timer's interrupt takes the task's time; a segment that has just ended
    /// stays ended.
    fn interrupt(&mut self, cpu: usize) -> OnCpu {
        let cost_q = self.cost_q(self.platform.costs.tick_ns);
        let c = &mut self.cpus[cpu];
        if c.left_q > 0 {
            c.left_q += cost_q;
            c.work_end_ns = end_ns(self.sys.now_ns, c.left_q, c.now.rate_q);
        }
        OnCpu { cpu, task: c.curr }
    }

    /// The scheduler's timer fires.
    pub(super) fn alarm(&mut self, cpu: usize) {
        let on = self.interrupt(cpu);
        if self.sched.alarm(&mut self.sys, on, &mut self.sink) {
            self.cpus[cpu].resched_ns = self.sys.now_ns;
        }
        self.cpus[cpu].alarm_ns = self.sched.alarm_ns(cpu);
    }

    pub(super) fn tick(&mut self, cpu: usize) {
        let now_ns = self.sys.now_ns;
        self.cpus[cpu].tick_ns += self.options.tick_ns;
        let on = self.interrupt(cpu);
        self.stats.ticks += 1;
        if self.sched.tick(&mut self.sys, on, &mut self.sink) {
            self.cpus[cpu].resched_ns = now_ns;
        }
    }

    /// A task becomes runnable.
    pub(super) fn wake(&mut self, task: Tid) {
        let t = &mut self.tasks[task as usize];
        debug_assert_eq!(t.state, TaskState::Waiting, "task {task} wakes");
        t.state = TaskState::Runnable;
        t.woken_ns = self.sys.now_ns;
        self.stats.wakeups += 1;
        if K::WANTED {
            self.sink.happened(self.sys.now_ns, &Happened::Wake { task });
        }
        self.sched.wake(&mut self.sys, task, &mut self.sink);
    }

    /// Interrupts to other CPUs go out at the end of an event.
    pub(super) fn serve_kicks(&mut self) {
        while let Some((cpu, kick)) = self.sys.next_kick() {
            let (now_ns, costs) = (self.sys.now_ns, &self.platform.costs);
            let c = &mut self.cpus[cpu as usize];
            match (c.state, kick) {
                (CpuState::Idle, _) => {
                    c.resched_ns = now_ns + costs.ipi_ns + costs.idle_exit_ns;
                    c.state = CpuState::Waking;
                    self.sys.set_busy(cpu as usize);
                }
                (CpuState::Busy, Kick::Preempt) => {
                    c.resched_ns = c.resched_ns.min(now_ns + costs.ipi_ns);
                }
                _ => continue,
            }
            self.arm(cpu as usize);
        }
    }
}
