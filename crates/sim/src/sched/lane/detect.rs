// SPDX-License-Identifier: MIT OR Apache-2.0
//! Detection: what a running task does turns into events of the policy. As bpf/detect.bpf.h, and,
//! for hints, what the application library does at a section's begin and end.

use policy::{Event, Remigrate, TYPE_SCALAR, TYPE_WIDE};

use super::{Detect, Lane};
use crate::events::{Happened, Sink};
use crate::sched::{Act, OnCpu, Verdict};
use crate::sys::{Sys, Tid};

/// Sections that do not yield after one that cannot be helped: as in crates/hint.
const RESIGNED_SECTIONS: u8 = 63;
/// Bits of [`policy::Cfg::remigrate`] that always need the system call programs.
const SYSCALL_BITS: u32 = Remigrate::SYSCALL_ENTRY | Remigrate::SYSCALL_RETURN;

impl Lane {
    /// Charge the running task, and count, what it ran since the last time.
    #[inline]
    pub(super) fn account_run(&mut self, sys: &Sys, on: OnCpu) {
        let OnCpu { cpu, task } = on;
        let lane = &mut self.tasks[task as usize];
        let t = &mut lane.t;
        let used_ns = sys.now_ns - t.started_ns;
        if used_ns == 0 {
            return;
        }
        t.started_ns = sys.now_ns;
        let shared = &mut self.queues[lane.clock_index as usize];
        let cfg = &self.config.cfg;
        let charged_ns = self.turns[cpu].charge(t, cfg, used_ns, lane.went_first);
        self.run[cpu].note(t, sys.now_ns);
        if shared.id != 0 {
            let nr_waiting = shared.queue.len() as u32;
            shared.clock.advance(charged_ns, shared.nr_tasks(), nr_waiting, sys.now_ns);
        }
        self.count_up_to_now(sys, on);
    }

    /// Count what it ran since the last time, as what it is.
    #[inline(always)]
    fn count_up_to_now(&mut self, sys: &Sys, OnCpu { cpu, task }: OnCpu) {
        let t = &self.tasks[task as usize].t;
        let (task_type, level) = (t.task_type, t.level);
        let lane = &mut self.tasks[task as usize];
        let used_ns = sys.now_ns - lane.counted_ns;
        lane.counted_ns = sys.now_ns;
        self.sums.run_ns[policy::kind(task_type, level)] += used_ns;
        lane.t.ran(used_ns, level);
        lane.unread_ns += used_ns;
        self.watch.ran(cpu, &lane.t, level, used_ns, sys.now_ns);
        self.bound.ran(sys, task, level, used_ns);
        let class = self.class[cpu];
        if level > class {
            self.counters.degraded_ns += used_ns;
        }
        if task_type == TYPE_SCALAR as u8 && class > 0 {
            self.counters.guest_ns += used_ns;
        }
    }

    #[inline(always)]
    pub(super) fn account_start(&mut self, sys: &Sys, OnCpu { cpu, task }: OnCpu) {
        let lane = &mut self.tasks[task as usize];
        let t = &mut lane.t;
        if t.enqueued_ns != 0 {
            let waited_ns = sys.now_ns - t.enqueued_ns;
            self.sums.wait_ns[policy::kind(t.task_type, t.level)] += waited_ns;
            self.watch.waited(t, waited_ns);
            self.sums.mix_wait_ns += t.mix.wide_ns(waited_ns, t.level);
            t.enqueued_ns = 0;
        } else {
            // it came past the queues
            self.turns[cpu].end();
        }
        t.started_ns = sys.now_ns;
        lane.counted_ns = sys.now_ns;
        lane.began_ns = sys.now_ns;
        t.comes();
        if self.class[cpu] == 0 {
            lane.scalar_cpu = cpu as u16;
        }
        self.queues[lane.clock_index as usize].nr_running += 1;
    }

    pub(super) fn account_stop(&mut self, task: Tid) {
        let index = self.tasks[task as usize].clock_index;
        self.queues[index as usize].nr_running -= 1;
    }

    /// Tell the policy; true if type or level changed. Until now the task ran as what it was, which
    /// counts first; it is charged later, for virtual time is of no type.
    #[inline]
    pub(super) fn tell(
        &mut self,
        sys: &Sys,
        on: OnCpu,
        event: Event,
        level: u8,
        sink: &mut impl Sink,
    ) -> bool {
        self.count_up_to_now(sys, on);
        let (t, class) = (&mut self.tasks[on.task as usize].t, self.class[on.cpu]);
        let old_level = t.level;
        if !t.event(&self.config.cfg, event, u32::from(level), sys.now_ns) {
            return false;
        }
        if t.level > 0 && t.level <= class {
            t.flags |= policy::FLAG_RAN_FIT; // where it was a guest
        }
        self.watch_turn(sys, on, old_level);
        self.counters.type_changes += 1;
        self.tell_sink(sys, on.task, sink);
        true
    }

    /// Read the task's slot of the hint page; true if its type or level changed.
    #[inline(always)]
    pub(super) fn read_hint(&mut self, sys: &Sys, on: OnCpu, sink: &mut impl Sink) -> bool {
        let lane = &mut self.tasks[on.task as usize];
        let until_ns = lane.rest_until_ns;
        if until_ns != 0 && self.config.cfg.rest_is_over(until_ns, sys.now_ns) {
            // a rest that is over is an end; what follows lasts longer than announced
            (lane.rest_until_ns, lane.hint_want, lane.is_away) = (0, 0, true);
            lane.hint_seq += 1;
        }
        lane.hint_seq != lane.hint_read && self.read_new_hint(sys, on, sink)
    }

    #[cold]
    fn read_new_hint(&mut self, sys: &Sys, on: OnCpu, sink: &mut impl Sink) -> bool {
        let lane = &mut self.tasks[on.task as usize];
        lane.hint_read = lane.hint_seq;
        let (want, is_away) = (lane.hint_want, lane.is_away);
        self.watch_missed(sys, on);
        let event = match (want, is_away) {
            (0, true) => Event::HintAway,
            (0, false) => Event::HintEnd,
            _ => Event::HintBegin,
        };
        self.tell(sys, on, event, want, sink)
    }

    /// Whether a running task should give up its CPU after its type changed. As in
    /// bpf/guests.bpf.h.
    pub(super) fn must_leave(&mut self, sys: &Sys, on: OnCpu) -> bool {
        let OnCpu { cpu, task } = on;
        self.refresh_caps(sys, task);
        let class = self.class[cpu];
        let queue = self.memo.of(&self.tasks[task as usize].t).queue;
        self.set_running_queue(cpu, queue);
        let wanted = self.is_guest(task, class) && self.guest_should_go(sys, on);
        self.tasks[task as usize].t.must_leave(class.into(), wanted)
    }

    pub(super) fn on_act(
        &mut self,
        sys: &Sys,
        on: OnCpu,
        act: Act,
        sink: &mut impl Sink,
    ) -> Verdict {
        match (act, self.config.detect) {
            (Act::WideBegin(level), Detect::Hint) => self.hint_begin(sys, on, level),
            (Act::WideEnd { rest_ns }, Detect::Hint) => self.hint_end(sys, on, rest_ns),
            (Act::WideBegin(level), Detect::Mark) => {
                let cost_ns = self.config.costs.probe_ns;
                self.probe(sys, on, Event::MarkEnter, level, cost_ns, sink)
            }
            (Act::WideEnd { .. }, Detect::Mark) => {
                let cost_ns = self.config.costs.return_probe_ns;
                self.probe(sys, on, Event::MarkReturn, 0, cost_ns, sink)
            }
            (Act::WideBegin(_) | Act::WideEnd { .. }, Detect::Trap(_) | Detect::Score) => {
                Verdict::default()
            }
            (Act::Enter, _) => self.syscall(sys, on, Event::SyscallEntry, sink),
            (Act::Exit, _) => self.syscall(sys, on, Event::SyscallReturn, sink),
            // the library moves by it: says nothing about the end of wide code
            (Act::Yield, _) => Verdict::default(),
            (Act::Code { class, level }, Detect::Trap(from)) if class >= from => {
                self.trap(sys, on, level, sink)
            }
            (Act::Code { .. }, _) => Verdict::default(),
        }
    }

    fn probe(
        &mut self,
        sys: &Sys,
        on: OnCpu,
        event: Event,
        level: u8,
        cost_ns: u32,
        sink: &mut impl Sink,
    ) -> Verdict {
        self.counters.decisions += 1;
        let changed = self.tell(sys, on, event, level, sink);
        self.time_stay(sys, on);
        let resched = changed && self.must_leave(sys, on);
        Verdict { cost_ns, resched, yields: false }
    }

    fn syscall(&mut self, sys: &Sys, on: OnCpu, event: Event, sink: &mut impl Sink) -> Verdict {
        let ends_stays =
            matches!(self.config.detect, Detect::Trap(_)) && event == Event::SyscallEntry;
        let watches_last = self.watches_last_syscalls();
        if self.config.cfg.remigrate & SYSCALL_BITS == 0 && !watches_last && !ends_stays {
            return Verdict::default();
        }
        let cost_ns = self.config.costs.tracepoint_ns;
        // its section may have begun here, unseen, or may have ended while it was away
        let t = &self.tasks[on.task as usize].t;
        if watches_last && (self.class[on.cpu] > 0 || t.last.is_away()) {
            self.read_hint(sys, on, sink);
        }
        if !self.tasks[on.task as usize].t.syscall_matters() {
            return Verdict { cost_ns, ..Verdict::default() };
        }
        self.probe(sys, on, event, 0, cost_ns, sink)
    }

    /// Whether system calls are watched for the last ones of sections (policy/last.h): while there
    /// are wide CPUs, and something that is wide. As crates/sched/src/scx_lane.rs.
    fn watches_last_syscalls(&self) -> bool {
        self.config.cfg.remigrate & Remigrate::LAST_SYSCALL != 0
            && self.has_wide_cpus()
            && self.sums.run_ns[TYPE_WIDE as usize..].iter().any(|&ns| ns > 0)
    }

    /// A section begins in the slot.
    pub(super) fn write_begin(&mut self, task: Tid, level: u8) {
        let lane = &mut self.tasks[task as usize];
        lane.hint_want = level;
        lane.hint_seq += 1;
        lane.sections += 1;
        (lane.rest_until_ns, lane.is_away) = (0, false);
    }

    /// It ends in the slot; true if what follows is a rest.
    pub(super) fn write_end(&mut self, sys: &Sys, task: Tid, rest_ns: u64) -> bool {
        let lane = &mut self.tasks[task as usize];
        if self.config.cfg.rest_stays(rest_ns) {
            lane.rest_until_ns = sys.now_ns + rest_ns;
            return true;
        }
        lane.hint_want = 0;
        lane.hint_seq += 1;
        lane.is_away = rest_ns > 0;
        false
    }

    /// tl_wide_begin(): write the slot; where the thread stands wrong, yield.
    fn hint_begin(&mut self, sys: &Sys, OnCpu { cpu, task }: OnCpu, level: u8) -> Verdict {
        self.refresh_caps(sys, task);
        let class = self.class[cpu];
        self.write_begin(task, level);
        let lane = &mut self.tasks[task as usize];
        if class >= level {
            return Verdict::default();
        }
        if lane.resigned > 0 {
            lane.resigned -= 1;
            return Verdict::default();
        }
        if lane.t.caps >> level == 0 {
            lane.resigned = RESIGNED_SECTIONS;
        }
        self.counters.decisions += 1;
        Verdict { cost_ns: self.config.costs.syscall_ns, resched: true, yields: true }
    }

    /// tl_wide_end(), tl_scalar_for(): write the slot; yield if the CPU says that scalar work
    /// leaves it, and the phase is no rest.
    fn hint_end(&mut self, sys: &Sys, OnCpu { cpu, task }: OnCpu, rest_ns: u64) -> Verdict {
        if self.write_end(sys, task, rest_ns) {
            return Verdict::default();
        }
        let flags = policy::cpu_flags(u32::from(self.class[cpu]), self.nr_scalar_cpus as u32);
        if flags & 0x80 == 0 {
            return Verdict::default();
        }
        self.counters.decisions += 1;
        Verdict { cost_ns: self.config.costs.syscall_ns, resched: true, yields: true }
    }

    /// A scalar CPU withholds wide instructions. A task that is wide already and still here has
    /// no better place: the module lets it run.
    fn trap(&mut self, sys: &Sys, on: OnCpu, level: u8, sink: &mut impl Sink) -> Verdict {
        let wide = self.tasks[on.task as usize].t.task_type == TYPE_WIDE as u8;
        if self.class[on.cpu] > 0 || wide || !self.watch.is_armed() {
            return Verdict::default();
        }
        let cost_ns = self.config.costs.trap_ns;
        self.counters.traps += 1;
        if level == 0 {
            // raises no licence: the module decodes it and lets it run
            return Verdict { cost_ns, ..Default::default() };
        }
        self.probe(sys, on, Event::Trap, level, cost_ns, sink)
    }

    /// The task leaves its CPU: what the level of this moment says about it. Kernel threads are not
    /// scored: they go before all queues where they stand, so they may not belong elsewhere.
    pub(super) fn score(&mut self, sys: &Sys, on: OnCpu, sink: &mut impl Sink) {
        let OnCpu { cpu, task } = on;
        if self.tasks[task as usize].kernel {
            return;
        }
        let (came_ns, before) = self.came[cpu];
        let now = license_level(sys, cpu);
        let score = &mut self.tasks[task as usize].t.score;
        if !score.switch(before.into(), now.into(), sys.now_ns - came_ns) {
            return;
        }
        let level = score.speaks_for() as u8;
        if level != score.level {
            self.tell(sys, on, Event::Score, level, sink);
        }
    }

    /// Tell a sink the class of every CPU.
    pub(super) fn tell_classes(&self, sys: &Sys, sink: &mut impl Sink) {
        for (cpu, &class) in self.class.iter().enumerate() {
            sink.happened(sys.now_ns, &Happened::Class { cpu: cpu as u16, class });
        }
    }
}

/// What the counters of a CPU's core show.
pub(super) fn license_level(sys: &Sys, cpu: usize) -> u8 {
    sys.license_level[sys.layout.place[cpu].core as usize]
}
