// SPDX-License-Identifier: MIT OR Apache-2.0
//! The lane goes while it stands by, and comes back. As `Scheduler::leave` and `come_back`
//! in crates/sched/src/scx/away.rs, and bpf/away.bpf.h.

use std::collections::VecDeque;

use policy::{KernelUse, NR_PARTIES, QUEUE_NONE, Turns};

use super::shared::queues;
use super::{Detect, Enqueue, Lane};
use crate::events::Sink;
use crate::sched::{Act, OnCpu, Scheduler, Verdict};
use crate::sys::{Kick, NO_CPU, NO_TASK, Sys, Tid};

impl Lane {
    /// Whether the kernel's own scheduler is to be at work.
    pub(in crate::sched) fn stands_by(&self) -> bool {
        self.watch.is_away()
    }

    /// Have each task go where another scheduler had it, before the lane goes.
    pub(in crate::sched) fn send_home(&mut self, sys: &mut Sys) {
        self.sends_home = true;
        for index in 0..self.queues.len() - 1 {
            for task in self.drain(index) {
                self.place(sys, task, Enqueue::Again);
            }
        }
        for cpu in 0..self.local.len() {
            sys.kick(cpu, Kick::Preempt);
        }
    }

    /// Where the task is to go before the lane goes; `None`: wherever else the lane would have it.
    pub(super) fn home(&self, sys: &Sys, task: Tid) -> Option<usize> {
        let home = self.tasks[task as usize].home;
        let is_there = || sys.online.has(home.into()) && sys.allows(task, home.into());
        (self.sends_home && home != NO_CPU && is_there()).then_some(home.into())
    }

    /// Leave what runs, by CPU, to another scheduler, and what can run, which is returned with
    /// the CPU where it waits.
    pub(in crate::sched) fn give_up(
        &mut self,
        sys: &mut Sys,
        running: &[Tid],
        sink: &mut impl Sink,
    ) -> Vec<(Tid, usize)> {
        for (cpu, &task) in running.iter().enumerate().filter(|(_, task)| **task != NO_TASK) {
            self.stops(sys, OnCpu { cpu, task }, true, sink);
        }
        let local = self.local.iter_mut().enumerate();
        let waits_at = |(cpu, tasks): (usize, &mut _)| {
            std::mem::take::<VecDeque<Tid>>(tasks).into_iter().map(move |task| (task, cpu))
        };
        let mut runnable: Vec<(Tid, usize)> = local.flat_map(waits_at).collect();
        for index in 0..self.queues.len() - 1 {
            let tasks = self.drain(index).into_iter();
            runnable.extend(tasks.map(|task| (task, sys.cpu_of[task as usize].into())));
        }
        runnable
    }

    /// Schedule what runs, by CPU, and what can run.
    pub(in crate::sched) fn take_over(
        &mut self,
        sys: &mut Sys,
        running: &[Tid],
        runnable: Vec<Tid>,
        sink: &mut impl Sink,
    ) {
        self.begin_anew(sys);
        self.sends_home = false;
        for (lane, &home) in self.tasks.iter_mut().zip(&sys.cpu_of) {
            lane.home = home;
        }
        self.apply_split(sys, self.split, sink);
        for (cpu, &task) in running.iter().enumerate().filter(|(_, task)| **task != NO_TASK) {
            self.starts(sys, OnCpu { cpu, task }, sink);
        }
        for task in runnable {
            self.place(sys, task, Enqueue::Again);
        }
    }

    /// The lane was away for so long: what each task did meanwhile, by number, as the kernel has
    /// counted it.
    pub(in crate::sched) fn take_kernel_use(
        &mut self,
        away_ns: u64,
        run_ns: u64,
        counted: impl Iterator<Item = KernelUse>,
    ) {
        self.watch.kernel_ns = away_ns;
        self.watch.kernel_run_ns = run_ns;
        for (lane, counted) in self.tasks.iter_mut().zip(counted) {
            lane.kernel_use = counted;
        }
    }

    /// The same by party, as known now.
    pub(super) fn kernel_use(&self) -> [KernelUse; NR_PARTIES] {
        let mut parties = [KernelUse::default(); NR_PARTIES];
        for lane in &self.tasks {
            parties[policy::party(&lane.t, lane.t.level)].add(&lane.kernel_use);
        }
        parties
    }

    /// No queue has a clock yet, and what tasks did meanwhile was not seen.
    fn begin_anew(&mut self, sys: &Sys) {
        let nr_cpus = sys.layout.nr_cpus;
        self.queues = queues(sys.layout.llcs.len(), nr_cpus);
        self.turns = vec![Turns::default(); nr_cpus];
        for cpu in 0..nr_cpus {
            self.set_running_queue(cpu, QUEUE_NONE as u8);
        }
        let no_clock = self.queues.len() as u32 - 1;
        for lane in &mut self.tasks {
            lane.t.renew();
            lane.clock_index = no_clock;
            if lane.hint_seq > 0 {
                lane.hint_read = lane.hint_seq - 1; // read it
            }
            (lane.last_cpu, lane.scalar_cpu) = (NO_CPU, NO_CPU);
            (lane.sections, lane.unread_ns, lane.level_seen) = (0, 0, 0);
        }
    }

    /// A task does something while the lane is away: its library writes the hint page, and probes
    /// that are in place are hit.
    pub(in crate::sched) fn act_unseen(&mut self, sys: &Sys, task: Tid, act: Act) -> Verdict {
        let costs = &self.config.costs;
        let cost_ns = match (act, self.config.detect) {
            // the entry's probe does without a return
            (Act::WideBegin(_), Detect::Mark) if self.watch.calls() => costs.probe_ns,
            (Act::WideBegin(level), Detect::Hint) => {
                if self.tasks[task as usize].hint_seq == 0 {
                    self.watch.first_hint();
                }
                self.write_begin(task, level);
                0
            }
            (Act::WideEnd { rest_ns }, Detect::Hint) => {
                self.write_end(sys, task, rest_ns);
                0
            }
            _ => 0,
        };
        Verdict { cost_ns, ..Verdict::default() }
    }
}
