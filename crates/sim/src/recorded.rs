// SPDX-License-Identifier: MIT OR Apache-2.0
//! Recordings of real machines before the checkers that judge simulations ([`crate::check`]).
//!
//! Problem: the checkers know what a simulation says: every task from its begin, every change when it
//! happens. A recording begins in the middle, and says what the scheduler takes a task for at its
//! switches only.
//!
//! Idea: nobody is accused for what was not seen. A task that is first met running has just started, one that
//! starts without a wake-up was woken at that moment. A type counts from the switch that tells it. A
//! task that may not migrate now is one whose affinity is its CPU.
//!
//! What can be checked depends on who scheduled: order and liveness always; class, wide first and work conservation
//! where the lane's scheduler ran, whose promises they are. The kernel's own scheduler leaves CPUs idle for
//! some milliseconds beside waiting tasks, and may.
//!
//! Limits: a recording that lost events, or of some tasks only, cannot be judged. The lane's classes are looked at once a
//! second, so the check ends where they change. Real-time tasks go before all others and are not told apart.

use std::collections::HashMap;

use machine::CpuSet;
use trace::{Event, Info, Lane, What, Why};

use crate::bits::Mask;
use crate::check::{Bounds, Checker, Violation};
use crate::sys::Tid;
use crate::trace::{Happened, Sink, Stop};

/// Why a recording cannot be judged.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unjudged {
    /// Who ran in between is not known.
    #[error("it holds some tasks only")]
    SomeTasks,
    /// What is missing would look like a broken rule.
    #[error("{0} events were lost")]
    Lost(u64),
    /// Its online CPUs make no sense.
    #[error("its list of CPUs is damaged")]
    Cpus,
}

/// The verdict.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// Events that were checked, or the first rule that was broken.
    pub result: Result<u64, Violation>,
    /// Whether the lane's own promises were among the rules.
    pub lane: bool,
    /// Where the lane's classes changed, and the check ended.
    pub until_ns: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Waiting,
    Runnable,
    Running(u16),
    Ended,
}

struct Task {
    id: Tid,
    state: State,
    lane: Option<Lane>,
    affinity: Mask,
    /// Its affinity is told as the CPU that it may not leave now.
    bound: bool,
}

/// Turns a recording's events into the checkers'.
pub struct Judge {
    checker: Checker,
    nr_cpus: usize,
    lane: bool,
    start_ns: u64,
    now_ns: u64,
    next_id: Tid,
    tasks: HashMap<u32, Task>,
    running: Vec<Option<u32>>,
    until_ns: Option<u64>,
    lost: u64,
}

impl Judge {
    /// For a recording that says this of itself. The bounds count from its begin, as its times will be told.
    pub fn new(info: &Info, bounds: Bounds) -> Result<Self, Unjudged> {
        if !info.everybody {
            return Err(Unjudged::SomeTasks);
        }
        let online: CpuSet = info.cpus.parse().map_err(|_| Unjudged::Cpus)?;
        let nr_cpus = online.highest().ok_or(Unjudged::Cpus)? + 1;
        let bounds = Bounds { conserves: bounds.conserves && info.lane, ..bounds };
        let mut judge = Judge {
            checker: Checker::new(nr_cpus, bounds),
            nr_cpus,
            lane: info.lane,
            start_ns: info.start_ns,
            now_ns: 0,
            next_id: 0,
            tasks: HashMap::new(),
            running: vec![None; nr_cpus],
            until_ns: None,
            lost: 0,
        };
        for cpu in (0..nr_cpus).filter(|cpu| !online.contains(*cpu)) {
            judge.tell(Happened::Online { cpu: cpu as u16, online: false });
        }
        Ok(judge)
    }

    /// Takes an event.
    pub fn take(&mut self, event: &Event) {
        if self.until_ns.is_some() {
            return;
        }
        self.now_ns = event.at_ns.saturating_sub(self.start_ns);
        match &event.what {
            What::Task { kernel, .. } => self.create(event.tid, *kernel),
            What::Fork { .. } => {
                let kernel = false;
                self.tasks.remove(&event.tid);
                self.create(event.tid, kernel);
            }
            What::Affinity { cpus } => self.affinity(event.tid, cpus),
            What::Wake { .. } => self.wake(event.tid),
            What::Switch { next, why, bound, lane, next_lane } => {
                self.stop(event.cpu, event.tid, *why, *bound, *lane);
                self.start(event.cpu, *next, *next_lane);
            }
            What::Class { class } => self.class(event.cpu, *class),
            What::Lost { events } => self.lost += events,
            _ => {}
        }
    }

    /// The verdict, at the end of the recording.
    pub fn finish(self, end_ns: u64) -> Result<Verdict, Unjudged> {
        if self.lost > 0 {
            return Err(Unjudged::Lost(self.lost));
        }
        let end_ns = self.until_ns.unwrap_or(end_ns).saturating_sub(self.start_ns);
        let result = self.checker.finish(end_ns.max(self.now_ns));
        Ok(Verdict { result, lane: self.lane, until_ns: self.until_ns })
    }

    fn tell(&mut self, what: Happened<'_>) {
        self.checker.happened(self.now_ns, &what);
    }

    fn create(&mut self, tid: u32, kernel: bool) {
        let affinity = Mask::full(self.nr_cpus);
        let id = self.next_id;
        self.next_id += 1;
        self.tell(Happened::New { task: id, affinity: &affinity, kernel });
        let task = Task { id, state: State::Waiting, lane: None, affinity, bound: false };
        self.tasks.insert(tid, task);
    }

    fn task(&mut self, tid: u32) -> &mut Task {
        if self.tasks.get(&tid).is_none_or(|task| task.state == State::Ended) {
            self.create(tid, false);
        }
        self.tasks.get_mut(&tid).expect("just created")
    }

    fn affinity(&mut self, tid: u32, cpus: &CpuSet) {
        let nr_cpus = self.nr_cpus;
        let task = self.task(tid);
        task.affinity = Mask::of(nr_cpus, cpus.iter().filter(|cpu| *cpu < nr_cpus));
        if !task.bound {
            let (id, affinity) = (task.id, task.affinity.clone());
            self.tell(Happened::Affinity { task: id, affinity: &affinity });
        }
    }

    fn wake(&mut self, tid: u32) {
        let task = self.task(tid);
        if task.state == State::Waiting {
            task.state = State::Runnable;
            let id = task.id;
            self.tell(Happened::Wake { task: id });
        }
    }

    /// What the scheduler takes the task for, as a switch tells it.
    fn lane(&mut self, tid: u32, lane: Option<Lane>) {
        let task = self.task(tid);
        let Some(now) = lane.filter(|_| task.lane != lane) else { return };
        task.lane = lane;
        let id = task.id;
        self.tell(Happened::Type { task: id, task_type: now.task_type, level: now.level });
    }

    fn start(&mut self, cpu: u16, tid: u32, lane: Option<Lane>) {
        let at = usize::from(cpu);
        if tid == 0 || at >= self.nr_cpus {
            return;
        }
        self.wake(tid);
        self.lane(tid, lane);
        let task = self.task(tid);
        task.state = State::Running(cpu);
        let id = task.id;
        self.tell(Happened::Start { task: id, cpu });
        self.running[at] = Some(tid);
        let task = self.task(tid);
        if std::mem::take(&mut task.bound) {
            let affinity = task.affinity.clone();
            self.tell(Happened::Affinity { task: id, affinity: &affinity });
        }
    }

    fn stop(&mut self, cpu: u16, tid: u32, why: Why, bound: bool, lane: Option<Lane>) {
        let at = usize::from(cpu);
        if tid == 0 || at >= self.nr_cpus {
            return;
        }
        if self.running[at].is_none() {
            // The first that is seen of this CPU.
            self.start(cpu, tid, lane);
        }
        self.lane(tid, lane);
        if bound && why == Why::Preempted {
            self.task(tid).bound = true;
            let (id, here) = (self.task(tid).id, Mask::of(self.nr_cpus, [at]));
            self.tell(Happened::Affinity { task: id, affinity: &here });
        }
        let task = self.task(tid);
        let (state, why) = match why {
            Why::Preempted => (State::Runnable, Stop::Preempted),
            Why::Sleeps | Why::Blocks => (State::Waiting, Stop::Blocked),
            Why::Ends => (State::Ended, Stop::Ended),
        };
        task.state = state;
        let id = task.id;
        self.tell(Happened::Stop { task: id, cpu, why });
        self.running[at] = None;
    }

    fn class(&mut self, cpu: u16, class: u8) {
        // 255: offline, by policy/types.h.
        let class = if class == u8::MAX { 0 } else { class };
        if self.now_ns > 0 {
            self.until_ns = Some(self.start_ns + self.now_ns);
        } else if usize::from(cpu) < self.nr_cpus {
            self.tell(Happened::Class { cpu, class });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDS: Bounds = Bounds { moment_ns: 100, tick_ns: 1000, wait_ns: 5000, conserves: true };
    const WIDE: Option<Lane> = Some(Lane { task_type: 2, level: 2 });
    const SCALAR: Option<Lane> = Some(Lane { task_type: 1, level: 0 });

    fn event(at_ns: u64, cpu: u16, tid: u32, what: What) -> Event {
        Event { at_ns, cpu, tid, what }
    }

    fn switch(
        at_ns: u64,
        cpu: u16,
        from: (u32, Option<Lane>, Why),
        to: (u32, Option<Lane>),
    ) -> Event {
        let (tid, lane, why) = from;
        let (next, next_lane) = to;
        event(at_ns, cpu, tid, What::Switch { next, why, bound: false, lane, next_lane })
    }

    fn wake(at_ns: u64, tid: u32) -> Event {
        event(at_ns, 0, tid, What::Wake { waker: 0, delay_ns: 0, new: false })
    }

    const IDLE: (u32, Option<Lane>, Why) = (0, None, Why::Preempted);

    /// CPU 1 is wide.
    fn judge(lane: bool, events: &[Event]) -> Result<Verdict, Unjudged> {
        let info =
            Info { everybody: true, lane, cpus: "0-1".into(), start_ns: 1000, ..Info::default() };
        let mut judge = Judge::new(&info, BOUNDS)?;
        if lane {
            judge.take(&event(1000, 0, 0, What::Class { class: 0 }));
            judge.take(&event(1000, 1, 0, What::Class { class: 3 }));
        }
        events.iter().for_each(|event| judge.take(event));
        judge.finish(20_000)
    }

    fn broken(lane: bool, events: &[Event]) -> &'static str {
        judge(lane, events).unwrap().result.unwrap_err().rule
    }

    /// A recording that begins in the middle, and keeps all rules.
    #[test]
    fn good_recordings_pass() {
        let events = [
            switch(1100, 0, (7, SCALAR, Why::Preempted), (8, SCALAR)),
            wake(1150, 9),
            switch(1160, 1, IDLE, (9, WIDE)),
            switch(1170, 0, (8, SCALAR, Why::Sleeps), (7, SCALAR)),
            switch(1900, 1, (9, WIDE, Why::Ends), (0, None)),
            switch(1950, 0, (7, SCALAR, Why::Sleeps), (0, None)),
        ];
        let verdict = judge(true, &events).unwrap();
        assert!(verdict.result.is_ok_and(|checked| checked > 10) && verdict.lane);
    }

    /// A wide task on a scalar CPU, which it does not leave.
    #[test]
    fn wide_on_scalar_fails() {
        let events = [
            wake(1150, 9),
            switch(1160, 1, IDLE, (9, WIDE)),
            switch(1200, 1, (9, WIDE, Why::Preempted), (7, WIDE)),
            switch(1210, 0, IDLE, (9, WIDE)),
        ];
        assert_eq!(broken(true, &events), "class");
    }

    /// A task that waits too long fails under every scheduler, one beside an idle CPU under ours.
    #[test]
    fn waiting_fails() {
        let long = [
            switch(1100, 0, (7, None, Why::Preempted), (8, None)),
            switch(9000, 0, (8, None, Why::Sleeps), (7, None)),
        ];
        assert_eq!(broken(false, &long), "liveness");
        let idle = [
            switch(1100, 1, (6, SCALAR, Why::Sleeps), (0, None)),
            switch(1100, 0, (7, SCALAR, Why::Preempted), (8, SCALAR)),
            switch(1600, 0, (8, SCALAR, Why::Sleeps), (7, SCALAR)),
        ];
        assert_eq!(broken(true, &idle), "conservation");
        assert!(judge(false, &idle).unwrap().result.is_ok());
    }

    /// What lacks something is not judged; from a change of the classes on nothing is.
    #[test]
    fn incomplete_recordings_are_not_judged_fail() {
        let lost = event(1200, 0, 0, What::Lost { events: 3 });
        assert_eq!(judge(true, &[lost]), Err(Unjudged::Lost(3)));
        let some = Judge::new(&Info::default(), BOUNDS);
        assert_eq!(some.err(), Some(Unjudged::SomeTasks));
        let events = [event(1500, 0, 0, What::Class { class: 3 }), wake(1600, 9), wake(9900, 9)];
        assert_eq!(judge(true, &events).unwrap().until_ns, Some(1500));
    }
}
