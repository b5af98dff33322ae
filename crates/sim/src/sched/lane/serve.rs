// SPDX-License-Identifier: MIT OR Apache-2.0
//! A CPU looks for its next task: the policy's steps, each through all caches, nearest first. As
//! bpf/serve.bpf.h.

use policy::{NR_QUEUES, QUEUE_DEFAULT};

use super::Lane;
use crate::sched::Pick;
use crate::sys::{Sys, Tid};
use crate::trace::Sink;

impl Lane {
    #[inline]
    pub(super) fn nr_steps(&self, cpu: usize) -> u8 {
        self.memo.nr_steps[self.class[cpu] as usize]
    }

    #[inline(always)]
    fn take(&mut self, sys: &Sys, cpu: usize, llc: usize, queue: u8) -> Option<Tid> {
        let index = Self::queue_index(llc, queue);
        let waiting = &mut self.queues[index].queue;
        let task = waiting.take(|task| sys.allows(task, cpu))?;
        if waiting.is_empty() {
            self.filled[queue as usize] &= !(1 << llc);
        }
        Some(task)
    }

    /// Take a task from one of the step's queues at this cache; while both have tasks, they take
    /// turns.
    fn take_from(&mut self, sys: &Sys, cpu: usize, step: u8, llc: usize) -> Option<Tid> {
        const SHARED: u8 = QUEUE_DEFAULT as u8;
        let own = self.memo.step_queue[self.class[cpu] as usize][step as usize];
        let filled = |queue: u8| self.filled[queue as usize] >> llc & 1 == 1;
        if !self.memo.has_default[step as usize] || !filled(SHARED) {
            return if filled(own) { self.take(sys, cpu, llc, own) } else { None };
        }
        if !filled(own) {
            return self.take(sys, cpu, llc, SHARED);
        }
        let own_first = self.turns[cpu].own_first();
        let (first, second) = if own_first { (own, SHARED) } else { (SHARED, own) };
        let shared = &self.queues[Self::queue_index(llc, first)];
        let (id, nr_tasks) = (shared.id, shared.queue.len() as u32);
        if let Some(task) = self.take(sys, cpu, llc, first) {
            self.turns[cpu].begin(id, nr_tasks);
            return Some(task);
        }
        // a queue may hold only tasks that this CPU may not run
        self.take(sys, cpu, llc, second)
    }

    #[inline(always)]
    fn take_step(&mut self, sys: &Sys, cpu: usize, step: u8) -> Option<Tid> {
        let own = self.memo.step_queue[self.class[cpu] as usize][step as usize];
        let mut filled = self.filled[own as usize];
        if self.memo.has_default[step as usize] {
            filled |= self.filled[QUEUE_DEFAULT as usize];
        }
        if filled == 0 {
            return None;
        }
        let here = sys.layout.place[cpu].llc as usize;
        if filled >> here & 1 == 1
            && let Some(task) = self.take_from(sys, cpu, step, here)
        {
            return Some(task);
        }
        for &llc in &sys.layout.llc_order[here][1..] {
            if filled >> llc & 1 == 1
                && let Some(task) = self.take_from(sys, cpu, step, llc as usize)
            {
                return Some(task);
            }
        }
        None
    }

    fn end_turn(&mut self, sys: &Sys, cpu: usize, prev: Option<Tid>) {
        if let Some(task) = prev {
            self.account_run(sys, cpu, task);
        }
        self.turns[cpu].end();
    }

    /// What the CPU runs next, if its own queue is empty.
    pub(super) fn serve(
        &mut self,
        sys: &mut Sys,
        cpu: usize,
        prev: Option<Tid>,
        sink: &mut impl Sink,
    ) -> Pick {
        if self.turns[cpu].queue != 0 {
            self.end_turn(sys, cpu, prev);
        }
        let class = self.class[cpu];
        let stays = prev.filter(|&task| {
            self.read_hint(sys, cpu, task, sink);
            self.may_stay(sys, task, class)
        });
        let nr_steps = stays.map_or(self.nr_steps(cpu), |task| {
            let queue = self.memo.of(&self.tasks[task as usize].t).queue;
            let step = self.memo.queue_step[class as usize][queue as usize];
            (step + 1).min(self.nr_steps(cpu))
        });
        for step in 0..nr_steps {
            if let Some(task) = self.take_step(sys, cpu, step) {
                return Pick::Run(task);
            }
        }
        let Some(task) = stays else { return Pick::Idle };
        let lane = &mut self.tasks[task as usize];
        lane.slice_ns = self.memo.slice_ns[lane.t.task_type as usize];
        lane.slice_end_ns = sys.now_ns + lane.slice_ns;
        // its type may have changed since it started: who may displace it, may know
        let queue = self.memo.of(&self.tasks[task as usize].t).queue;
        self.set_running_queue(cpu, queue);
        Pick::Keep
    }

    /// Whether a guest should go now: something waits that goes before it, or a scalar CPU is idle.
    #[inline(always)]
    pub(super) fn guest_should_go(&self, sys: &Sys, cpu: usize, task: Tid) -> bool {
        self.better_place_idle(sys, task) || self.has_work_in_steps(cpu, self.nr_steps(cpu) - 1)
    }

    /// Whether a queue that the CPU serves in one of these steps holds anything.
    pub(super) fn has_work_in_steps(&self, cpu: usize, nr_steps: u8) -> bool {
        let steps = &self.memo.queue_step[self.class[cpu] as usize];
        (0..NR_QUEUES as usize).any(|queue| self.filled[queue] != 0 && steps[queue] < nr_steps)
    }
}
