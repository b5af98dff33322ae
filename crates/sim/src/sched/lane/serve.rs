// SPDX-License-Identifier: MIT OR Apache-2.0
//! A CPU looks for its next task: the policy's steps, each through all caches, nearest first. As
//! bpf/serve.bpf.h.

use policy::{
    Backlog, NR_QUEUES, QUEUE_DEFAULT, SIDE_DEFAULT, SIDE_NONE, SIDE_OWN, SIDE_PINNED, Sides,
};

use super::Lane;
use crate::events::Sink;
use crate::sched::{OnCpu, Pick};
use crate::sys::{Sys, Tid};

/// What ran on a CPU until now and may go on.
#[derive(Clone, Copy)]
struct Prev {
    step: u8,
    side: usize,
    key_ns: u64,
    /// Of the queue whose clock it is on.
    id: u32,
}

impl Lane {
    #[inline]
    pub(super) fn nr_steps(&self, cpu: usize) -> u8 {
        self.memo.nr_steps[self.class[cpu] as usize]
    }

    #[inline(always)]
    fn take(&mut self, sys: &Sys, cpu: usize, index: usize) -> Option<Tid> {
        let task = self.queues[index].queue.take(|task| sys.allows(task, cpu))?;
        self.note_emptied(index, 1);
        Some(task)
    }

    /// The queues of a step in the CPU's shard, by side, and what they hold. What ran until now
    /// counts as one of them.
    fn sides(&self, cpu: usize, step: u8, llc: usize, prev: Option<Prev>) -> ([usize; 3], Sides) {
        let own = self.memo.step_queue[self.class[cpu] as usize][step as usize];
        let at = |queue| Self::queue_index(llc, queue);
        let index = [at(own), at(QUEUE_DEFAULT as u8), self.pinned_at + cpu];
        let mut sides = Sides::default();
        let nr_sides = if self.memo.has_default[step as usize] { 3 } else { 1 };
        for (side, &at) in index.iter().enumerate().take(nr_sides) {
            let queue = &self.queues[at].queue;
            sides.nr_tasks[side] = queue.len() as u32;
            sides.key_ns[side] = queue.head_ns().unwrap_or(0) as u64;
        }
        if let Some(prev) = prev.filter(|prev| prev.step == step) {
            let empty = sides.nr_tasks[prev.side] == 0;
            let first = empty || ((prev.key_ns.wrapping_sub(sides.key_ns[prev.side])) as i64) < 0;
            sides.nr_tasks[prev.side] += 1;
            if first {
                sides.key_ns[prev.side] = prev.key_ns;
            }
        }
        (index, sides)
    }

    /// Take a task from one of the step's queues in this shard; where more than one has tasks, they
    /// take turns. `None`: there is none that goes before what ran until now.
    fn take_from(
        &mut self,
        sys: &Sys,
        cpu: usize,
        step: u8,
        llc: usize,
        prev: Option<Prev>,
    ) -> Option<Tid> {
        let (index, sides) = self.sides(cpu, step, llc, prev);
        let shares = self.memo.has_default[step as usize];
        let side = match shares {
            true => self.turns[cpu].choose(&sides, self.config.cfg.slice_ns, sys.now_ns),
            false if sides.nr_tasks[SIDE_OWN as usize] > 0 => SIDE_OWN,
            false => SIDE_NONE,
        };
        if side == SIDE_NONE {
            return None;
        }
        let side = side as usize;
        let shared = &self.queues[index[side]];
        let (id, nr_cpus) = (shared.id, shared.nr_cpus);
        let nr_tasks = shared.nr_tasks().max(sides.nr_tasks[side]);
        if let Some(prev) = prev.filter(|prev| prev.step == step && prev.side == side)
            && sides.key_ns[side] == prev.key_ns
        {
            if shares {
                self.turns[cpu].begin(side as u32, prev.id, nr_tasks, nr_cpus);
            }
            return None;
        }
        if let Some(task) = self.take(sys, cpu, index[side]) {
            if shares {
                self.turns[cpu].begin(side as u32, id, nr_tasks, nr_cpus);
            }
            return Some(task);
        }
        // a queue may hold only tasks that this CPU may not run
        let others = (0..3).filter(|&other| other != side && sides.nr_tasks[other] > 0);
        others.map(|other| index[other]).find_map(|index| self.take(sys, cpu, index))
    }

    /// The other shard that this CPU is to help: it has waited longer there, or more wait
    /// (policy/locality.h).
    fn needs_help(&mut self, sys: &Sys, cpu: usize, step: u8, prev: Option<Prev>) -> Option<usize> {
        let here = sys.layout.place[cpu].llc as usize;
        let others = &sys.layout.llc_order[here][1..];
        let next = self.helped[cpu] as usize + 1;
        self.helped[cpu] = if next < others.len() { next as u16 } else { 0 };
        let other = others[self.helped[cpu] as usize] as usize;
        let running = prev.map(|prev| {
            let key_ns = policy::running_key(prev.key_ns, sys.now_ns);
            Prev { key_ns, ..prev }
        });
        let own = self.backlog(cpu, step, here, self.sides(cpu, step, here, running), 3)?;
        let theirs = self.backlog(cpu, step, other, self.sides(cpu, step, other, None), 2)?;
        policy::helps(&own, &theirs, self.config.cfg.slice_ns).then_some(other)
    }

    /// What waits on the first so many sides of a step in a shard; `None`: nothing.
    fn backlog(
        &self,
        cpu: usize,
        step: u8,
        llc: usize,
        (index, sides): ([usize; 3], Sides),
        nr_sides: usize,
    ) -> Option<Backlog> {
        let filled = (0..nr_sides).filter(|&side| sides.nr_tasks[side] > 0);
        let first = filled.min_by_key(|&side| sides.key_ns[side] as i64)?;
        let queue = if self.memo.has_default[step as usize] {
            QUEUE_DEFAULT as u8
        } else {
            self.memo.step_queue[self.class[cpu] as usize][step as usize]
        };
        Some(Backlog {
            key_ns: sides.key_ns[first],
            nr_waiting: sides.nr_tasks[SIDE_OWN as usize] + sides.nr_tasks[SIDE_DEFAULT as usize],
            nr_cpus: self.queues[Self::queue_index(llc, queue)].nr_cpus,
            pace_q10: self.queues[index[first]].clock.pace_q10,
            reserved: 0,
        })
    }

    #[inline(always)]
    fn take_step(&mut self, sys: &Sys, cpu: usize, step: u8, prev: Option<Prev>) -> Option<Tid> {
        let own = self.memo.step_queue[self.class[cpu] as usize][step as usize];
        let mut filled = self.filled[own as usize];
        let first = self.memo.has_default[step as usize];
        if first {
            filled |= self.filled[QUEUE_DEFAULT as usize];
        }
        let here = sys.layout.place[cpu].llc as usize;
        let pinned = first && !self.queues[self.pinned_at + cpu].queue.is_empty();
        if filled == 0 && !pinned {
            return None;
        }
        let prev_here = prev.is_some_and(|prev| prev.step == step);
        if filled & !(1 << here) != 0
            && policy::compares_now(self.looks[cpu])
            && (prev_here || pinned || filled >> here & 1 == 1)
            && let Some(other) = self.needs_help(sys, cpu, step, prev)
            && let Some(task) = self.take_other(sys, cpu, step, other)
        {
            return Some(task);
        }
        if (pinned || filled >> here & 1 == 1)
            && let Some(task) = self.take_from(sys, cpu, step, here, prev)
        {
            return Some(task);
        }
        if prev_here {
            return None;
        }
        for &llc in &sys.layout.llc_order[here][1..] {
            if filled >> llc & 1 == 1
                && let Some(task) = self.take_other(sys, cpu, step, llc as usize)
            {
                return Some(task);
            }
        }
        None
    }

    /// Take a task of another shard: of the step's queues the one whose head is due first.
    fn take_other(&mut self, sys: &Sys, cpu: usize, step: u8, llc: usize) -> Option<Tid> {
        let own = self.memo.step_queue[self.class[cpu] as usize][step as usize];
        let own = Self::queue_index(llc, own);
        if !self.memo.has_default[step as usize] {
            return self.take(sys, cpu, own);
        }
        let shared = Self::queue_index(llc, QUEUE_DEFAULT as u8);
        let key = |index: usize| self.queues[index].queue.head_ns().unwrap_or(i64::MAX);
        let own_first = key(own) <= key(shared);
        let order = if own_first { [own, shared] } else { [shared, own] };
        order.into_iter().find_map(|index| self.take(sys, cpu, index))
    }

    /// What ran until now, as one that competes for the CPU: its side and step, and the key that it
    /// would wait by.
    fn compete(&mut self, sys: &Sys, OnCpu { cpu, task }: OnCpu) -> Prev {
        let lane = &self.tasks[task as usize];
        let queue = self.memo.of(&lane.t).queue;
        let step = self.memo.queue_step[self.class[cpu] as usize][queue as usize];
        let side = match (lane.pinned, u32::from(queue)) {
            (true, _) => SIDE_PINNED,
            (_, QUEUE_DEFAULT) => SIDE_DEFAULT,
            _ => SIDE_OWN,
        };
        let index = if lane.pinned {
            self.pinned_at + cpu
        } else {
            Self::queue_index(sys.layout.place[cpu].llc as usize, queue)
        };
        let slice_ns = self.memo.slice_ns[lane.t.task_type as usize & 3];
        if lane.t.clock == 0 {
            // it came past all queues so far; its turns count from now on
            self.account_stop(task);
            self.change_clock(task, index, slice_ns);
            self.queues[index].nr_running += 1;
            self.run[cpu].note(&self.tasks[task as usize].t, sys.now_ns);
        }
        let lane = &self.tasks[task as usize];
        let (shared, old) = (&self.queues[index], &self.queues[lane.clock_index as usize]);
        let most_ns = policy::most_wait_ns(slice_ns, 1 + shared.nr_tasks(), shared.nr_cpus);
        let old_ns = old.clock.vtime_ns;
        Prev {
            step: if lane.pinned { 0 } else { step },
            side: side as usize,
            key_ns: shared.clock.key(&lane.t, old_ns, slice_ns, most_ns, sys.now_ns),
            id: old.id,
        }
    }

    /// What the CPU runs next, if its own queue is empty.
    pub(super) fn serve(
        &mut self,
        sys: &mut Sys,
        cpu: usize,
        prev: Option<Tid>,
        sink: &mut impl Sink,
    ) -> Pick {
        if let Some(task) = prev {
            self.account_run(sys, OnCpu { cpu, task });
        }
        self.turns[cpu].end();
        self.looks[cpu] = self.looks[cpu].wrapping_add(1);
        let stays = prev.filter(|&task| {
            self.read_hint(sys, OnCpu { cpu, task }, sink);
            self.may_stay(sys, task, cpu)
        });
        let competes = stays.map(|task| self.compete(sys, OnCpu { cpu, task }));
        let nr_steps =
            competes.map_or(self.nr_steps(cpu), |prev| (prev.step + 1).min(self.nr_steps(cpu)));
        if self.nr_pinned > 0 || self.filled.iter().any(|&shards| shards != 0) {
            for step in 0..nr_steps {
                if let Some(task) = self.take_step(sys, cpu, step, competes) {
                    return Pick::Run(task);
                }
            }
        }
        let Some(task) = stays else { return Pick::Idle };
        let lane = &mut self.tasks[task as usize];
        lane.slice_ns = self.memo.slice_ns[lane.t.task_type as usize];
        lane.slice_end_ns = sys.now_ns + lane.slice_ns;
        self.time_stay(sys, OnCpu { cpu, task });
        // its type may have changed since it started: who may displace it, may know
        let queue = self.memo.of(&self.tasks[task as usize].t).queue;
        self.set_running_queue(cpu, queue);
        Pick::Keep
    }

    /// Whether a guest should go now: something waits that goes before it, or a scalar CPU is idle.
    #[inline(always)]
    pub(super) fn guest_should_go(&self, sys: &Sys, OnCpu { cpu, task }: OnCpu) -> bool {
        self.better_place_idle(sys, task)
            || !self.queues[self.pinned_at + cpu].queue.is_empty()
            || self.has_work_in_steps(cpu, self.nr_steps(cpu) - 1)
    }

    /// Whether a queue that the CPU serves in one of these steps holds anything.
    pub(super) fn has_work_in_steps(&self, cpu: usize, nr_steps: u8) -> bool {
        let steps = &self.memo.queue_step[self.class[cpu] as usize];
        (0..NR_QUEUES as usize).any(|queue| self.filled[queue] != 0 && steps[queue] < nr_steps)
    }
}
