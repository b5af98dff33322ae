// SPDX-License-Identifier: MIT OR Apache-2.0
//! Classes of CPUs, and which of them a task's affinity reaches. As bpf/classes.bpf.h and
//! bpf/control.bpf.h.

use policy::{NR_CLASSES, QUEUE_NONE};

use super::{Lane, Wide};
use crate::bits::Mask;
use crate::sys::{Kick, Sys, Tid};
use crate::trace::Sink;

impl Lane {
    #[inline]
    pub(super) fn refresh_caps(&mut self, sys: &Sys, task: Tid) {
        if self.tasks[task as usize].caps_generation != self.generation {
            self.renew_caps(sys, task);
        }
    }

    #[cold]
    fn renew_caps(&mut self, sys: &Sys, task: Tid) {
        let caps = if sys.reaches_everything(task) {
            self.classes_present
        } else {
            let reaches = |class: &usize| self.class_masks[*class].intersects(sys.affinity(task));
            (0..NR_CLASSES as usize).filter(reaches).fold(0, |caps, class| caps | 1 << class)
        };
        let lane = &mut self.tasks[task as usize];
        lane.t.caps = caps;
        lane.caps_generation = self.generation;
    }

    /// Give so many cores to wide work, and look at every queued task again.
    pub(super) fn apply_size(&mut self, sys: &mut Sys, nr_wide: usize, sink: &mut impl Sink) {
        let (since_ns, now_ns) = (self.resized_ns, sys.now_ns);
        self.counters.wide_core_ns += (now_ns - since_ns) * self.nr_wide_cores as u64;
        self.counters.resizes += u64::from(now_ns > 0 && nr_wide != self.nr_wide_cores);
        self.resized_ns = now_ns;
        self.nr_wide_cores = nr_wide;
        let want = self.wanted_classes(sys, nr_wide);
        self.apply_classes(sys, &want);
        self.tell_classes(sys, sink);
        self.requeue_all(sys);
    }

    /// Class of every CPU, as the daemon computes it: whole cores that are online, the last in
    /// topology order first.
    fn wanted_classes(&self, sys: &Sys, nr_wide: usize) -> Vec<u8> {
        let mut want = vec![policy::CLASS_NONE; sys.layout.nr_cpus];
        for cpu in sys.online.iter() {
            want[cpu] = 0;
        }
        let cores = &sys.layout.cores;
        let online = |core: &&Vec<u16>| core.iter().any(|&cpu| sys.online.has(cpu as usize));
        let listed = |core: &&Vec<u16>| match &self.config.wide {
            Wide::Cpus(cpus) => core.iter().any(|&cpu| cpus.contains(&(cpu as usize))),
            _ => true,
        };
        let ranked = cores.iter().rev().filter(online).filter(listed);
        for (rank, core) in ranked.enumerate() {
            let class = policy::core_class(rank as u32, nr_wide as u32, self.config.tiers);
            for &cpu in core.iter().filter(|&&cpu| sys.online.has(cpu as usize)) {
                want[cpu as usize] = class as u8;
            }
        }
        want
    }

    fn apply_classes(&mut self, sys: &Sys, want: &[u8]) {
        let nr = sys.layout.nr_cpus;
        let running = self.running_queue.clone();
        for cpu in 0..nr {
            self.set_running_queue(cpu, QUEUE_NONE as u8);
        }
        self.class.copy_from_slice(want);
        self.running_queue.fill(QUEUE_NONE as u8);
        for (cpu, &queue) in running.iter().enumerate() {
            self.set_running_queue(cpu, queue);
        }
        let of_class =
            |class: usize| Mask::of(nr, (0..nr).filter(|&cpu| want[cpu] as usize == class));
        self.class_masks = std::array::from_fn(of_class);
        let present = |among: Option<&Mask>| {
            let holds = |mask: &Mask| among.map_or(!mask.is_empty(), |llc| mask.intersects(llc));
            let masks = self.class_masks.iter().enumerate();
            masks.fold(0, |bits, (class, mask)| bits | u8::from(holds(mask)) << class)
        };
        self.classes_present = present(None);
        self.llc_classes = sys.layout.llcs.iter().map(|llc| present(Some(llc))).collect();
        self.nr_scalar_cpus = self.class_masks[0].len();
        self.generation = self.generation.wrapping_add(1).max(1);
    }

    /// Move queued tasks whose queue is no longer theirs, then have every CPU look for work.
    pub(super) fn requeue_all(&mut self, sys: &mut Sys) {
        for index in 0..self.queues.len() - 1 {
            let nr_queues = policy::NR_QUEUES as usize;
            let (llc, queue) = (index / nr_queues, index % nr_queues);
            let tasks = self.queues[index].queue.drain();
            self.filled[queue] &= !(1 << llc);
            for task in tasks {
                self.requeue(sys, task, index);
            }
        }
        if sys.now_ns == 0 {
            return; // as before the scheduler is attached: nobody runs
        }
        for cpu in 0..sys.layout.nr_cpus {
            sys.kick(cpu, Kick::Preempt);
        }
    }

    /// Back to where it was, or to where it belongs now.
    fn requeue(&mut self, sys: &mut Sys, task: Tid, from: usize) {
        self.refresh_caps(sys, task);
        let here = sys.cpu_of[task as usize] as usize;
        let queue = self.memo.of(&self.tasks[task as usize].t).queue;
        let llc = self.home_llc(sys, task, here, queue);
        let index = Self::queue_index(llc, queue);
        let lane = &mut self.tasks[task as usize];
        if index != from {
            let (old_ns, shared) = (self.queues[from].clock_ns, &self.queues[index]);
            lane.t.place(shared.id, old_ns, shared.clock_ns, self.config.cfg.slice_ns);
            lane.clock_index = index as u32;
        }
        self.inserted = self.inserted.wrapping_add(1);
        self.queues[index].queue.insert(task, lane.t.vtime_ns as i64, self.inserted);
        self.filled[queue as usize] |= 1 << llc;
    }
}
