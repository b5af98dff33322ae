// SPDX-License-Identifier: MIT OR Apache-2.0
//! Turbolane as it runs: the lane, and the kernel's own scheduler while it stands by
//! (policy/standby.h).
//!
//! Where the user has chosen the wide CPUs the lane never stands by, and this is the lane alone.
//!
//! Where this differs from the kernel: the change from one scheduler to the other takes no time.

use cpumodel::InsnClass;
use policy::KernelUse;

use super::fair::Fair;
use super::lane::{Lane, LaneConfig};
use super::{Act, NewTask, OnCpu, Pick, Ran, SchedCounters, Scheduler, Verdict};
use crate::events::Sink;
use crate::sys::{Kick, NO_TASK, Sys, Tid};
use crate::timers::NEVER;

/// The scheduler.
#[derive(Clone, Debug)]
pub struct Adaptive {
    lane: Lane,
    fair: Fair,
    /// The kernel's own scheduler is at work.
    away: bool,
    /// By CPU: what runs.
    running: Vec<Tid>,
    /// When it went to work, and what it had counted of each task until then.
    left_ns: u64,
    before: Vec<KernelUse>,
    /// The lane goes, once it has sent the tasks home; when it is to be asked again after that.
    leaves: bool,
    next_ns: u64,
}

/// The scheduler that is at work.
macro_rules! at_work {
    ($self:ident, $sched:ident => $call:expr) => {
        if $self.away {
            let $sched = &mut $self.fair;
            $call
        } else {
            let $sched = &mut $self.lane;
            $call
        }
    };
}

impl Adaptive {
    /// The scheduler of a machine.
    pub fn new(sys: &Sys, config: LaneConfig) -> Self {
        Adaptive {
            lane: Lane::new(sys, config),
            fair: Fair::new(sys),
            away: false,
            running: vec![NO_TASK; sys.layout.nr_cpus],
            left_ns: 0,
            before: Vec::new(),
            leaves: false,
            next_ns: NEVER,
        }
    }

    /// Go, or come back, if the lane has decided to; then every CPU chooses anew.
    fn follow(&mut self, sys: &mut Sys, sink: &mut impl Sink) {
        if self.away == self.lane.stands_by() {
            return;
        }
        self.away = !self.away;
        if self.away {
            let runnable = self.lane.give_up(sys, &self.running, sink);
            self.fair.take_over(sys, &self.running, runnable);
            self.before = self.fair.counted().collect();
            self.left_ns = sys.now_ns;
        } else {
            let runnable = self.fair.give_up(sys);
            let counted = self.fair.counted().zip(&self.before).map(|(now, old)| now.since(old));
            let run_ns: u64 = self.fair.counted().map(|task| task.run_ns).sum();
            let before_ns: u64 = self.before.iter().map(|task| task.run_ns).sum();
            self.lane.take_kernel_use(sys.now_ns - self.left_ns, run_ns - before_ns, counted);
            self.lane.take_over(sys, &self.running, runnable, sink);
        }
        if sys.now_ns == 0 {
            return; // nobody runs
        }
        for cpu in 0..self.running.len() {
            sys.kick(cpu, Kick::Preempt);
        }
    }
}

impl Scheduler for Adaptive {
    fn new_task(&mut self, sys: &mut Sys, new: &NewTask) {
        self.lane.new_task(sys, new);
        self.fair.new_task(sys, new);
    }

    #[inline]
    fn wake(&mut self, sys: &mut Sys, task: Tid, sink: &mut impl Sink) {
        at_work!(self, sched => sched.wake(sys, task, sink));
    }

    #[inline]
    fn pick(&mut self, sys: &mut Sys, cpu: usize, prev: Option<Ran>, sink: &mut impl Sink) -> Pick {
        at_work!(self, sched => sched.pick(sys, cpu, prev, sink))
    }

    #[inline]
    fn stops(&mut self, sys: &mut Sys, on: OnCpu, runnable: bool, sink: &mut impl Sink) {
        self.running[on.cpu] = NO_TASK;
        at_work!(self, sched => sched.stops(sys, on, runnable, sink));
    }

    fn put(&mut self, sys: &mut Sys, on: OnCpu, idles: bool) {
        at_work!(self, sched => sched.put(sys, on, idles));
    }

    #[inline]
    fn starts(&mut self, sys: &mut Sys, on: OnCpu, sink: &mut impl Sink) -> bool {
        self.running[on.cpu] = on.task;
        at_work!(self, sched => sched.starts(sys, on, sink))
    }

    #[inline]
    fn tick(&mut self, sys: &mut Sys, on: OnCpu, sink: &mut impl Sink) -> bool {
        at_work!(self, sched => sched.tick(sys, on, sink))
    }

    fn turn_ends_ns(&self, cpu: usize) -> u64 {
        if self.away { self.fair.turn_ends_ns(cpu) } else { NEVER }
    }

    fn alarm_ns(&self, cpu: usize) -> u64 {
        if self.away { NEVER } else { self.lane.alarm_ns(cpu) }
    }

    fn alarm(&mut self, sys: &mut Sys, on: OnCpu, sink: &mut impl Sink) -> bool {
        at_work!(self, sched => sched.alarm(sys, on, sink))
    }

    #[inline]
    fn act(&mut self, sys: &mut Sys, on: OnCpu, act: Act, sink: &mut impl Sink) -> Verdict {
        if self.away {
            self.lane.act_unseen(sys, on.task, act)
        } else {
            self.lane.act(sys, on, act, sink)
        }
    }

    fn idles(&mut self, sys: &mut Sys, cpu: usize) -> bool {
        at_work!(self, sched => sched.idles(sys, cpu))
    }

    fn affinity_changed(&mut self, sys: &mut Sys, task: Tid) {
        at_work!(self, sched => sched.affinity_changed(sys, task));
    }

    fn hotplug(&mut self, sys: &mut Sys, sink: &mut impl Sink) {
        at_work!(self, sched => sched.hotplug(sys, sink));
    }

    fn control(&mut self, sys: &mut Sys, sink: &mut impl Sink) -> u64 {
        if std::mem::take(&mut self.leaves) {
            self.follow(sys, sink);
            return self.next_ns;
        }
        self.next_ns = self.lane.control(sys, sink);
        if sys.now_ns > 0 && !self.away && self.lane.stands_by() {
            self.lane.send_home(sys);
            self.leaves = true;
            return sys.now_ns + policy::GOING_HOME_NS;
        }
        self.follow(sys, sink);
        self.next_ns
    }

    fn watches_from(&self) -> InsnClass {
        self.lane.watches_from()
    }

    fn counters(&self) -> SchedCounters {
        let (lane, fair) = (self.lane.counters(), self.fair.counters());
        SchedCounters {
            decisions: lane.decisions + fair.decisions,
            preemptions: lane.preemptions + fair.preemptions,
            ..lane
        }
    }

    fn classes(&self) -> Option<Vec<u8>> {
        self.lane.classes()
    }
}
