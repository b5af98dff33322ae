// SPDX-License-Identifier: MIT OR Apache-2.0
//! Classes of CPUs, and which of them a task's affinity reaches. As bpf/classes.bpf.h and
//! bpf/control.bpf.h.

use policy::{NR_CLASSES, NR_QUEUES, QUEUE_NONE, Split};

use super::{Lane, Wide};
use crate::bits::Mask;
use crate::events::Sink;
use crate::sys::{Kick, Sys, Tid};

impl Lane {
    #[inline]
    pub(super) fn refresh_caps(&mut self, sys: &Sys, task: Tid) {
        if self.tasks[task as usize].caps_generation != self.generation {
            self.renew_caps(sys, task);
        }
    }

    /// Whether any CPU is of another class than the scalar one.
    #[inline]
    pub(super) fn has_wide_cpus(&self) -> bool {
        self.classes_present > 1
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
        lane.pinned = sys.layout.nr_cpus > 1 && sys.affinity(task).len() == 1;
        lane.caps_generation = self.generation;
    }

    /// Give these cores to wide work, and look at every queued task again.
    pub(super) fn apply_split(&mut self, sys: &mut Sys, split: Split, sink: &mut impl Sink) {
        let (since_ns, now_ns) = (self.resized_ns, sys.now_ns);
        self.counters.wide_core_ns += (now_ns - since_ns) * self.split.nr_wide() as u64;
        self.counters.resizes += u64::from(now_ns > 0 && split != self.split);
        self.resized_ns = now_ns;
        self.split = split;
        let want = self.wanted_classes(sys);
        self.apply_classes(sys, &want);
        self.tell_classes(sys, sink);
        self.requeue_all(sys);
    }

    /// Whether the core may be wide.
    fn is_listed(&self, core: &[u16]) -> bool {
        match &self.config.wide {
            Wide::Cpus(cpus) => core.iter().any(|&cpu| cpus.contains(&(cpu as usize))),
            _ => true,
        }
    }

    /// The cores that may be wide and are online, in the order in which they become wide.
    fn ranked_cores<'a>(&'a self, sys: &'a Sys) -> impl Iterator<Item = &'a Vec<u16>> {
        let online = |core: &&Vec<u16>| core.iter().any(|&cpu| sys.online.has(cpu as usize));
        let order = self.bound.order.cores.iter().map(|&core| &sys.layout.cores[core]);
        order.filter(online).filter(|core| self.is_listed(core))
    }

    /// How many wide cores the settings ask for, and how many of them are online.
    pub(super) fn nr_asked(&self, sys: &Sys) -> (usize, usize) {
        let asked = match self.config.wide {
            Wide::Cores(cores) => cores,
            Wide::Cpus(_) => sys.layout.cores.iter().filter(|core| self.is_listed(core)).count(),
            Wide::Auto => 1,
        };
        (asked, self.ranked_cores(sys).take(asked).count())
    }

    /// Class of every CPU, as the daemon computes it.
    fn wanted_classes(&self, sys: &Sys) -> Vec<u8> {
        let mut want = vec![policy::CLASS_NONE; sys.layout.nr_cpus];
        for cpu in sys.online.iter() {
            want[cpu] = 0;
        }
        for (rank, core) in self.ranked_cores(sys).enumerate() {
            let class = self.split.core_class(rank as u32);
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
        self.divide_classes(sys, want);
        self.generation = self.generation.wrapping_add(1).max(1);
    }

    /// The classes within caches and nodes, and how many CPUs are there for each queue.
    fn divide_classes(&mut self, sys: &Sys, want: &[u8]) {
        let nr = sys.layout.nr_cpus;
        let among = |cpus: &dyn Fn(usize) -> bool| -> [Mask; NR_CLASSES as usize] {
            let of_class = |class| (0..nr).filter(move |&cpu| want[cpu] as usize == class);
            std::array::from_fn(|class| Mask::of(nr, of_class(class).filter(|&cpu| cpus(cpu))))
        };
        let place = &sys.layout.place;
        let nr_llcs = sys.layout.llcs.len();
        let nr_nodes = 1 + place.iter().map(|place| place.node as usize).max().unwrap_or(0);
        let llcs = (0..nr_llcs).map(|llc| among(&|cpu| place[cpu].llc as usize == llc));
        let llcs: Vec<_> = llcs.collect();
        for (index, shared) in self.queues[..self.pinned_at].iter_mut().enumerate() {
            let masks = &llcs[index / NR_QUEUES as usize];
            let class = self.memo.queue_class[index % NR_QUEUES as usize];
            let nr_cpus = match masks.get(class as usize) {
                Some(mask) => mask.len(),
                None => masks.iter().map(Mask::len).sum(),
            };
            shared.nr_cpus = nr_cpus.max(1) as u32;
        }
        let nodes = (0..nr_nodes).map(|node| among(&|cpu| place[cpu].node as usize == node));
        self.node_masks = if nr_nodes > 1 { nodes.collect() } else { Vec::new() };
        self.llc_masks = if nr_llcs > 1 { llcs } else { Vec::new() };
    }

    /// Move queued tasks whose queue is no longer theirs, then have every CPU look for work.
    pub(super) fn requeue_all(&mut self, sys: &mut Sys) {
        for index in 0..self.queues.len() - 1 {
            for task in self.drain(index) {
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
        let index = self.place_to_wait(sys, task, here, queue);
        let slice_ns = self.config.cfg.slice_ns;
        if index != from {
            self.change_clock(task, index, slice_ns);
        }
        // what it has waited counts
        let since_ns = self.tasks[task as usize].t.enqueued_ns;
        self.insert_by_key(task, index, slice_ns, since_ns);
    }
}
