// SPDX-License-Identifier: MIT OR Apache-2.0
//! Placing a runnable task: an idle CPU at once, or a queue and a kick. As bpf/place.bpf.h.

use policy::{Comer, NR_CLASSES, NR_QUEUES, QUEUE_NONE, QUEUE_WIDE, SIDE_NONE, WakeFrom};

use super::{Enqueue, Lane, LaneTask};
use crate::bits::Mask;
use crate::sys::{Kick, NO_CPU, Sys, Tid};

impl Lane {
    /// An idle CPU of the class within a scope (policy/locality.h), the last one first.
    fn claim_idle_in(
        &self,
        sys: &mut Sys,
        task: Tid,
        (class, scope): (u8, u8),
        prev: usize,
    ) -> Option<usize> {
        if scope == 0 && self.class[prev] == class && sys.allows(task, prev) && sys.claim(prev) {
            return Some(prev);
        }
        let masks = self.masks_around(sys, prev, scope)?;
        sys.claim_any(&masks[class as usize], task)
    }

    /// By class, the CPUs of a scope around this one; `None` if a smaller scope has the same CPUs.
    fn masks_around(
        &self,
        sys: &Sys,
        cpu: usize,
        scope: u8,
    ) -> Option<&[Mask; NR_CLASSES as usize]> {
        let place = sys.layout.place[cpu];
        let llc = self.llc_masks.get(place.llc as usize);
        let node = self.node_masks.get(place.node as usize);
        match (scope, llc, node) {
            (0, Some(near), _) | (0, None, Some(near)) | (1, Some(_), Some(near)) => Some(near),
            (0, None, None) | (2, Some(_), _) | (2, _, Some(_)) => Some(&self.class_masks),
            _ => None,
        }
    }

    /// Claim an idle CPU for the task, in the policy's order of classes and scopes.
    fn claim_idle(&self, sys: &mut Sys, task: Tid, prev: usize) -> Option<usize> {
        if sys.nr_idle == 0 {
            return None;
        }
        let t = &self.tasks[task as usize].t;
        let looks = self.memo.of(t).looks;
        let caps = t.caps;
        looks
            .into_iter()
            .take_while(|&(class, _)| u32::from(class) < NR_CLASSES)
            .filter(|&(class, _)| caps >> class & 1 == 1)
            .find_map(|look| self.claim_idle_in(sys, task, look, prev))
    }

    /// Whether a scalar CPU stands idle that a guest of a wide CPU could use.
    #[inline]
    pub(super) fn better_place_idle(&self, sys: &Sys, task: Tid) -> bool {
        if sys.nr_idle == 0 {
            return false;
        }
        let third = (!sys.reaches_everything(task)).then(|| sys.affinity(task));
        sys.idle.next_common(&self.class_masks[0], third, 0).is_some()
    }

    /// Whether a core of the CPU's class and cache stands idle, while its task shares its own.
    #[inline]
    pub(super) fn better_core_idle(&self, sys: &Sys, task: Tid, cpu: usize) -> bool {
        let siblings = &sys.layout.cores[sys.layout.place[cpu].core as usize];
        if sys.nr_idle == 0
            || !policy::leaves_core(siblings[0] as usize == cpu, self.ticks[cpu])
            || siblings.iter().all(|&other| other as usize == cpu || sys.idle.has(other as usize))
        {
            return false;
        }
        let third = (!sys.reaches_everything(task)).then(|| sys.affinity(task));
        let masks = self.masks_around(sys, cpu, 0);
        masks.is_some_and(|masks| {
            sys.idle_cores.next_common(&masks[self.class[cpu] as usize], third, 0).is_some()
        })
    }

    /// No idle CPU for wide work: displace what has less right to a wide CPU, if there is such.
    fn kick_victim(&mut self, sys: &mut Sys, task: Tid, need: u8, arrives: bool) -> bool {
        let candidates = &self.memo.victims[usize::from(arrives)][need as usize];
        let affinity = sys.affinity(task);
        let mut best: Option<(u8, usize)> = None;
        for victim in candidates {
            if best.is_some_and(|(rank, _)| rank > victim.rank) {
                break;
            }
            let running = &self.running[victim.class as usize][victim.queue as usize];
            if let Some(cpu) = running.first_common(affinity) {
                let cpu = best.map_or(cpu, |(_, other)| other.min(cpu));
                best = Some((victim.rank, cpu));
            }
        }
        let Some((_, cpu)) = best else { return false };
        // the next one that looks for a victim must find another
        self.set_running_queue(cpu, QUEUE_WIDE as u8 + need - 1);
        self.counters.preemptions += 1;
        sys.kick(cpu, Kick::Preempt);
        true
    }

    /// Index of the queue to wait in: the CPU's own if the task may use no other, else one of a
    /// cache that holds a CPU for it.
    #[inline]
    pub(super) fn place_to_wait(&self, sys: &mut Sys, task: Tid, here: usize, queue: u8) -> usize {
        if self.tasks[task as usize].pinned && sys.allows(task, here) && sys.online.has(here) {
            return self.pinned_at + here;
        }
        Self::queue_index(self.home_llc(sys, task, here, queue), queue)
    }

    /// The cache to wait at: the CPU's own if it holds a CPU that is there for the task's queue,
    /// else one that does.
    #[inline]
    fn home_llc(&self, sys: &mut Sys, task: Tid, here: usize, queue: u8) -> usize {
        let llc = sys.layout.place[here].llc as usize;
        if sys.layout.llcs.len() <= 1 {
            return llc;
        }
        let queue_class = u32::from(self.memo.queue_class[queue as usize & 7]);
        let caps = u32::from(self.tasks[task as usize].t.caps);
        // the kernel moves tasks away before their CPU goes off line: there, `here` is on line
        let usable = sys.online.has(here) && sys.allows(task, here);
        let everywhere = sys.reaches_everything(task);
        let here_class = u32::from(self.class[here]);
        let shard_classes = u32::from(self.llc_classes[llc]);
        if policy::waits_here(queue_class, caps, here_class, usable, everywhere, shard_classes) {
            return llc;
        }
        let class = policy::waits_at_class(queue_class, caps) as usize;
        let last = self.tasks[task as usize].scalar_cpu as usize;
        if last != usize::from(NO_CPU)
            && usize::from(self.class[last]) == class
            && sys.online.has(last)
            && sys.allows(task, last)
        {
            return sys.layout.place[last].llc as usize;
        }
        let node = self.node_masks.get(sys.layout.place[here].node as usize);
        let near = node.and_then(|masks| sys.any(&masks[class], task));
        let cpu = near.or_else(|| sys.any(&self.class_masks[class], task));
        cpu.map_or(llc, |cpu| sys.layout.place[cpu].llc as usize)
    }

    #[inline]
    pub(super) fn queue_index(llc: usize, queue: u8) -> usize {
        llc * NR_QUEUES as usize + queue as usize
    }

    /// The queue holds a task.
    #[inline]
    fn note_filled(&mut self, index: usize) {
        if index >= self.pinned_at {
            self.nr_pinned += 1;
        } else {
            let (llc, queue) = (index / NR_QUEUES as usize, index % NR_QUEUES as usize);
            self.filled[queue] |= 1 << llc;
        }
    }

    /// So many tasks have left the queue.
    #[inline]
    pub(super) fn note_emptied(&mut self, index: usize, nr_tasks: u32) {
        if index >= self.pinned_at {
            self.nr_pinned -= nr_tasks;
        } else if self.queues[index].queue.is_empty() {
            let (llc, queue) = (index / NR_QUEUES as usize, index % NR_QUEUES as usize);
            self.filled[queue] &= !(1 << llc);
        }
    }

    /// Take all tasks out of a queue.
    pub(super) fn drain(&mut self, index: usize) -> Vec<Tid> {
        let tasks = self.queues[index].queue.drain();
        self.note_emptied(index, tasks.len() as u32);
        tasks
    }

    /// Insert the task, which is on this queue's clock, as one that waits since then.
    #[inline]
    pub(super) fn insert_by_key(&mut self, task: Tid, index: usize, slice_ns: u64, since_ns: u64) {
        let shared = &mut self.queues[index];
        let (nr_tasks, nr_cpus) = (1 + shared.nr_tasks(), shared.nr_cpus);
        let most_ns = policy::most_wait_ns(slice_ns, nr_tasks, nr_cpus);
        let (t, clock) = (&self.tasks[task as usize].t, &shared.clock);
        let key_ns = clock.key(t, clock.vtime_ns, slice_ns, most_ns, since_ns);
        self.inserted = self.inserted.wrapping_add(1);
        shared.queue.insert(task, key_ns as i64, self.inserted);
        self.note_filled(index);
    }

    /// Put the task on the clock of this queue.
    #[inline]
    pub(super) fn change_clock(&mut self, task: Tid, index: usize, slice_ns: u64) {
        let lane = &mut self.tasks[task as usize];
        let old_ns = self.queues[lane.clock_index as usize].clock.vtime_ns;
        let shared = &self.queues[index];
        let most_ns = policy::most_wait_ns(slice_ns, 1 + shared.nr_tasks(), shared.nr_cpus);
        lane.t.place(shared.id, old_ns, &shared.clock, slice_ns, most_ns);
        lane.clock_index = index as u32;
    }

    /// Put the task into this queue.
    #[inline]
    fn insert_queued(&mut self, sys: &Sys, task: Tid, index: usize) {
        let slice_ns = self.memo.slice_ns[self.tasks[task as usize].t.task_type as usize & 3];
        self.change_clock(task, index, slice_ns);
        let (lane, shared) = (&mut self.tasks[task as usize], &self.queues[index]);
        lane.t.enqueued_ns = sys.now_ns;
        let (nr_tasks, nr_cpus) = (1 + shared.nr_tasks(), shared.nr_cpus);
        lane.slice_ns = shared.clock.slice_from_ns(&lane.t, slice_ns, nr_tasks, nr_cpus);
        self.insert_by_key(task, index, slice_ns, sys.now_ns);
    }

    /// To the CPU's own queue, behind what is there.
    pub(super) fn insert_local(&mut self, cpu: usize, task: Tid) {
        let lane = &mut self.tasks[task as usize];
        lane.slice_ns = self.memo.slice_ns[lane.t.task_type as usize];
        self.local[cpu].push_back(task);
    }

    pub(super) fn place(&mut self, sys: &mut Sys, task: Tid, flags: Enqueue) {
        let here = sys.cpu_of[task as usize] as usize;
        self.refresh_caps(sys, task);
        self.tasks[task as usize].went_first = false;
        if let Some(home) = self.home(sys, task) {
            self.insert_local(home, task);
            sys.kick(home, Kick::Idle);
            return;
        }
        if let Some(cpu) = self.claim_idle(sys, task, here) {
            self.insert_local(cpu, task);
            sys.kick(cpu, Kick::Idle);
            return;
        }
        if self.goes_first(sys, task, here, flags) {
            self.tasks[task as usize].went_first = true;
            self.insert_local(here, task);
            let task = self.local[here].pop_back().expect("just inserted");
            self.local[here].push_front(task);
            return;
        }
        let kind = self.memo.of(&self.tasks[task as usize].t);
        let (queue, need) = (kind.queue, kind.need);
        let index = self.place_to_wait(sys, task, here, queue);
        self.insert_queued(sys, task, index);
        let wakes = flags == Enqueue::Wakeup;
        let ran_fit = self.tasks[task as usize].t.flags & policy::FLAG_RAN_FIT != 0;
        let has_victim = need > 0 && self.kick_victim(sys, task, need, wakes || !ran_fit);
        if !has_victim {
            self.displace(sys, task, here, wakes);
        }
    }

    /// The task has come and waits: a CPU chooses anew if it serves that queue first, and if what
    /// it runs has had more.
    fn displace(&self, sys: &mut Sys, task: Tid, here: usize, wakes: bool) {
        let LaneTask { t, scalar_cpu, began_ns, .. } = &self.tasks[task as usize];
        let from = WakeFrom {
            cpu: here as u32,
            class: u32::from(self.class[here]),
            shard: u32::from(sys.layout.place[here].llc),
            scalar_cpu: if *scalar_cpu == NO_CPU { -1 } else { i32::from(*scalar_cpu) },
            began_ns: *began_ns,
        };
        let Some(cpu) = t.wake_cpu(&from, wakes, sys.now_ns) else { return };
        if u32::from(self.running_queue[cpu]) == QUEUE_NONE || !sys.allows(task, cpu) {
            return;
        }
        let llc = u32::from(sys.layout.place[cpu].llc);
        let side = t.wakes_on_side(cpu as u32, self.class[cpu], llc);
        let run = &self.run[cpu];
        let slice_ns = self.config.cfg.slice_ns;
        let comer = Comer {
            task: t,
            clock_ns: self.queues[self.tasks[task as usize].clock_index as usize].clock.vtime_ns,
            wakes,
            side,
        };
        if side != SIDE_NONE && run.is_displaced_by(&self.turns[cpu], &comer, slice_ns, sys.now_ns)
        {
            sys.kick(cpu, Kick::Preempt);
        }
    }

    /// Whether a wakeup of this task goes before everything: kernel threads, for half of the CPU.
    fn goes_first(&self, sys: &Sys, task: Tid, here: usize, flags: Enqueue) -> bool {
        let (kernel, wakes) = (self.tasks[task as usize].kernel, flags == Enqueue::Wakeup);
        let slice_ns = self.config.cfg.slice_ns;
        sys.online.has(here)
            && sys.allows(task, here)
            && (self.turns[here].goes_first(kernel, wakes, slice_ns)
                || (self.memo.kernel_first && kernel && wakes))
    }

    /// The CPU has nothing else to do: may the task go on here?
    #[inline]
    pub(super) fn may_stay(&mut self, sys: &Sys, task: Tid, cpu: usize) -> bool {
        let class = self.class[cpu];
        self.refresh_caps(sys, task);
        self.fits(task, class)
            && self.home(sys, task).is_none_or(|home| home == cpu)
            && !self.better_core_idle(sys, task, cpu)
            && (!self.is_guest(task, class) || !self.better_place_idle(sys, task))
    }
}
