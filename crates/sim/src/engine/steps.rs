// SPDX-License-Identifier: MIT OR Apache-2.0
//! Programs go on: work and debt, messages, locks, barriers, system calls, requests.

use std::collections::VecDeque;

use super::{Engine, Load, RunError, TaskState, Todo, kind};
use crate::events::{Sink, Stop};
use crate::program::{Arrivals, OWN_INBOX, Queue, Step};
use crate::rng::Rng;
use crate::sched::{Act, OnCpu, Scheduler};
use crate::sys::Tid;

/// Steps without work or waiting after which a program counts as endless.
const STEPS_MAX: u32 = 100_000;

/// A request on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Message {
    pub born_ns: u64,
    /// Who waits for the answer; `u32::MAX` for no one.
    pub client: u32,
}

/// No one waits for the answer.
const NO_CLIENT: u32 = u32::MAX;

#[derive(Clone, Debug, Default)]
pub(super) struct MessageQueue {
    messages: VecDeque<Message>,
    waiters: VecDeque<Tid>,
}

/// A client, or an open source as a whole.
#[derive(Clone, Debug)]
pub(super) struct Client {
    pub source: u16,
    /// Its inbox if it sticks to one.
    pub task: Tid,
    pub rng: Rng,
}

#[derive(Clone, Debug)]
pub(super) struct Lock {
    pub fair: bool,
    pub taken: bool,
    pub waiters: VecDeque<Tid>,
}

#[derive(Clone, Debug)]
pub(super) struct Barrier {
    pub size: usize,
    pub waiters: Vec<Tid>,
}

impl<S: Scheduler, K: Sink> Engine<S, K> {
    /// The segment that ran is done.
    pub(super) fn segment_done(&mut self, cpu: usize) -> Todo {
        let c = &mut self.cpus[cpu];
        let load = std::mem::replace(&mut c.load, Load::None);
        let t = &mut self.tasks[c.curr as usize];
        match load {
            Load::Debt => {
                t.debt_q = 0;
                if t.left_q > 0 { Todo::Segment } else { Todo::Steps }
            }
            Load::Work | Load::None => {
                t.left_q = 0;
                Todo::Steps
            }
        }
    }

    /// The task's work, or first what it owes, onto the CPU.
    pub(super) fn segment(&mut self, cpu: usize) -> Todo {
        let task = self.cpus[cpu].curr;
        let t = &self.tasks[task as usize];
        let code = t.code as usize;
        let level = self.levels[code];
        if t.debt_q > 0 && (level > 0 || t.left_q == 0) {
            self.load(cpu, Load::Debt, t.debt_q, 0);
            return Todo::Settled;
        }
        if !t.asked && self.workload.codes[code].class >= self.sched.watches_from() {
            let class = self.workload.codes[code].class;
            let again = self.act(cpu, task, Act::Code { class, level });
            self.tasks[task as usize].asked = again.is_none();
            return again.unwrap_or(Todo::Segment);
        }
        let t = &mut self.tasks[task as usize];
        let left_q = t.left_q + std::mem::take(&mut t.debt_q);
        t.left_q = left_q;
        self.load(cpu, Load::Work, left_q, level);
        Todo::Settled
    }

    fn load(&mut self, cpu: usize, load: Load, left_q: u64, level: u8) {
        self.sync(cpu);
        let c = &mut self.cpus[cpu];
        c.load = load;
        c.left_q = left_q;
        // Another task's rate may be another, where tasks wait for memory.
        c.rate_holds &= self.memory.is_empty();
        self.asks(cpu, level);
        self.reload(cpu);
    }

    /// Steps until there is work, or the CPU is given up.
    pub(super) fn steps(&mut self, cpu: usize) -> Todo {
        for _ in 0..STEPS_MAX {
            if let Some(todo) = self.one_step(cpu) {
                return todo;
            }
        }
        let task = self.cpus[cpu].curr;
        let group = self.tasks[task as usize].group as usize;
        self.error = Some(RunError::Endless {
            at_ns: self.sys.now_ns,
            group: self.workload.groups[group].name.clone(),
            steps: STEPS_MAX,
        });
        self.block(cpu)
    }

    /// One step; `None` if the next one follows at once.
    fn one_step(&mut self, cpu: usize) -> Option<Todo> {
        let task = self.cpus[cpu].curr;
        let t = &mut self.tasks[task as usize];
        let step = &self.workload.programs[t.program as usize][t.pc as usize];
        if t.debt_q > self.carried_q && gives_up_the_cpu(step) {
            // first do what it owes
            return Some(Todo::Segment);
        }
        t.pc += 1;
        match *step {
            Step::Work { code, cycles } => {
                t.code = code;
                t.asked = false;
                t.left_q = t.rng.draw(&cycles) << super::Q;
                if t.left_q > 0 { Some(Todo::Segment) } else { None }
            }
            Step::WideBegin { level } => self.act(cpu, task, Act::WideBegin(level)),
            Step::WideEnd { rest_ns } => self.act(cpu, task, Act::WideEnd { rest_ns }),
            Step::Enter => {
                t.debt_q += self.platform.costs.syscall_ns * self.reference_q;
                self.act(cpu, task, Act::Enter)
            }
            Step::Exit => self.act(cpu, task, Act::Exit),
            Step::Sleep { ns } => {
                let at_ns = self.sys.now_ns + t.rng.draw(&ns).max(1);
                self.agenda.push(at_ns, kind::TASK | task);
                Some(self.block(cpu))
            }
            Step::Yield => Some(self.yields(cpu, task)),
            Step::End => Some(self.end(cpu)),
            Step::Jump { to } => {
                t.pc = to;
                None
            }
            step => self.other_step(cpu, task, step),
        }
    }

    fn other_step(&mut self, cpu: usize, task: Tid, step: Step) -> Option<Todo> {
        match step {
            Step::Take { queue } => self.take(cpu, task, queue),
            Step::Put { queue } => self.put(task, queue),
            Step::Done => self.done(task),
            Step::Lock { lock } => self.lock(cpu, task, lock as usize),
            Step::Unlock { lock } => self.unlock(lock as usize),
            Step::Barrier { barrier } => self.barrier(cpu, task, barrier as usize),
            Step::Fork { group } => self.fork(task, group),
            Step::Repeat { slot, times, to } => {
                self.repeat(task, slot as usize, &times, to);
                None
            }
            _ => unreachable!("handled by one_step"),
        }
    }

    fn repeat(&mut self, task: Tid, slot: usize, times: &crate::rng::Dist, to: u32) {
        let t = &mut self.tasks[task as usize];
        if t.repeats[slot] == 0 {
            // one more than is left, so that 0 is "not begun"
            t.repeats[slot] = t.rng.draw(times) + 1;
        }
        t.repeats[slot] -= 1;
        if t.repeats[slot] > 0 {
            t.pc = to;
        }
    }

    fn act(&mut self, cpu: usize, task: Tid, act: Act) -> Option<Todo> {
        let verdict = self.sched.act(&mut self.sys, OnCpu { cpu, task }, act, &mut self.sink);
        let cost_q = self.cost_q(u64::from(verdict.cost_ns));
        self.tasks[task as usize].debt_q += cost_q;
        self.cpus[cpu].alarm_ns = self.sched.alarm_ns(cpu);
        verdict.resched.then_some(Todo::Choose { yields: verdict.yields })
    }

    fn yields(&mut self, cpu: usize, task: Tid) -> Todo {
        let syscall_q = self.cost_q(self.platform.costs.syscall_ns);
        self.tasks[task as usize].debt_q += syscall_q;
        let _ = self.act(cpu, task, Act::Yield);
        Todo::Choose { yields: true }
    }

    /// The running task waits for something.
    fn block(&mut self, cpu: usize) -> Todo {
        self.stop(cpu, Stop::Blocked);
        Todo::Choose { yields: false }
    }

    fn end(&mut self, cpu: usize) -> Todo {
        let task = self.cpus[cpu].curr;
        self.stop(cpu, Stop::Ended);
        self.sched.ends(task);
        self.nr_alive -= 1;
        let group = self.tasks[task as usize].group as usize;
        self.stats.ended(group, self.sys.now_ns);
        Todo::Choose { yields: false }
    }

    fn queue_of(&self, task: Tid, queue: Queue) -> usize {
        if queue == OWN_INBOX { self.workload.nr_queues + task as usize } else { queue as usize }
    }

    fn take(&mut self, cpu: usize, task: Tid, queue: Queue) -> Option<Todo> {
        let queue = self.queue_of(task, queue);
        let queue = &mut self.queues[queue];
        if let Some(message) = queue.messages.pop_front() {
            self.tasks[task as usize].message = Some(message);
            return None;
        }
        queue.waiters.push_back(task);
        Some(self.block(cpu))
    }

    fn put(&mut self, task: Tid, queue: Queue) -> Option<Todo> {
        let fresh = Message { born_ns: self.sys.now_ns, client: NO_CLIENT };
        let message = self.tasks[task as usize].message.unwrap_or(fresh);
        let queue = self.queue_of(task, queue);
        self.deliver(queue, message);
        None
    }

    /// A message to whoever waits for one, or into the queue.
    fn deliver(&mut self, queue: usize, message: Message) {
        match self.queues[queue].waiters.pop_front() {
            Some(waiter) => {
                self.tasks[waiter as usize].message = Some(message);
                self.wake(waiter);
            }
            None => self.queues[queue].messages.push_back(message),
        }
    }

    fn done(&mut self, task: Tid) -> Option<Todo> {
        let t = &mut self.tasks[task as usize];
        self.stats.completed(t.group as usize);
        let message = t.message.take()?;
        if message.client == NO_CLIENT {
            return None;
        }
        let client = &mut self.clients[message.client as usize];
        let source = client.source as usize;
        self.stats.answered(source, self.sys.now_ns - message.born_ns);
        if let Arrivals::Closed { think_ns, .. } = &self.workload.sources[source].arrivals {
            let at_ns = self.sys.now_ns + client.rng.draw(think_ns).max(1);
            self.agenda.push(at_ns, kind::CLIENT | message.client);
        }
        None
    }

    /// A client sends its request.
    pub(super) fn client_sends(&mut self, index: usize) {
        let now_ns = self.sys.now_ns;
        let client = &mut self.clients[index];
        let source = &self.workload.sources[client.source as usize];
        let mut task = client.task;
        if let Arrivals::Open { gap_ns } = &source.arrivals {
            let group = source.to_group as usize;
            let nr_tasks = self.workload.groups[group].tasks as u64;
            task = self.first_task_of_group[group] + client.rng.below(nr_tasks) as Tid;
            let at_ns = now_ns + client.rng.draw(gap_ns).max(1);
            self.agenda.push(at_ns, kind::CLIENT | index as u32);
        }
        self.stats.asked(client.source as usize);
        let queue = self.queue_of(task, OWN_INBOX);
        self.deliver(queue, Message { born_ns: now_ns, client: index as u32 });
    }

    fn lock(&mut self, cpu: usize, task: Tid, lock: usize) -> Option<Todo> {
        let l = &mut self.locks[lock];
        if !l.taken {
            l.taken = true;
            return None;
        }
        l.waiters.push_back(task);
        if !l.fair {
            // woken, it tries again
            self.tasks[task as usize].pc -= 1;
        }
        Some(self.block(cpu))
    }

    fn unlock(&mut self, lock: usize) -> Option<Todo> {
        let l = &mut self.locks[lock];
        let next = l.waiters.pop_front();
        l.taken = l.fair && next.is_some();
        if let Some(next) = next {
            self.wake(next);
        }
        None
    }

    fn barrier(&mut self, cpu: usize, task: Tid, barrier: usize) -> Option<Todo> {
        let b = &mut self.barriers[barrier];
        if b.waiters.len() + 1 < b.size {
            b.waiters.push(task);
            return Some(self.block(cpu));
        }
        for waiter in std::mem::take(&mut b.waiters) {
            self.wake(waiter);
        }
        None
    }

    fn fork(&mut self, parent: Tid, group: u16) -> Option<Todo> {
        if self.tasks.len() > kind::MASK.wrapping_neg() as usize / 2 {
            let (at_ns, tasks) = (self.sys.now_ns, self.tasks.len());
            self.error = Some(RunError::TooManyTasks { at_ns, tasks });
            return None;
        }
        let here = self.sys.cpu_of[parent as usize];
        let child = self.add_task(group, Some(parent), here);
        debug_assert_eq!(self.tasks[child as usize].state, TaskState::Waiting);
        self.wake(child);
        None
    }
}

/// Steps after which someone else may run: what is owed is worked off before, unless it is so
/// little that it may wait until the task runs again (`carried_q`).
fn gives_up_the_cpu(step: &Step) -> bool {
    matches!(
        step,
        Step::Sleep { .. }
            | Step::Take { .. }
            | Step::Lock { .. }
            | Step::Barrier { .. }
            | Step::Yield
            | Step::End
    )
}
