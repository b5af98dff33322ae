// SPDX-License-Identifier: MIT OR Apache-2.0
//! The engine: a machine, a scheduler, a workload, one event after the other.
//!
//! Problem: the effects in question last from 10 us (a halt) to 670 us (a hold) and are caused by
//! who runs where; a simulation in slices of time would miss them or be slow.
//!
//! Idea: between two events every CPU runs at a constant rate, so that the end of its work is
//! known. An event changes rates, and then the ends of the work of the CPUs concerned move:
//!
//! ```text
//!   rate of a CPU = clock[level of its core][active cores of its package]
//!                 * share of the core, if siblings are busy        (smt_frac / busy siblings)
//!                 * throttle_frac, while it asks for more than is granted
//!                 * 0, while its core's clock changes
//! ```
//!
//! Of work that waits for memory a part does not follow the clock ([`crate::program::Memory`]); its
//! rate is less for that.
//!
//! | file | what |
//! |---|---|
//! | `mod.rs` | state, the loop, one event |
//! | `rates.rs` | licences, clocks, work done so far |
//! | `switch.rs` | CPUs start, stop, choose, idle; kicks |
//! | `steps.rs` | programs: steps, messages, locks, system calls |
//! | `setup.rs` | building it all |
//! | `pause.rs` | a pause of everything but the licences |
//! | `stats.rs` | what is counted, and the outcome |
//!
//! Costs (context switch, migration, refill, trap, tick, system call) are scalar work that a task
//! owes (`debt`) and does before it goes on, at the rate of the moment. They are given as times at
//! the reference clock: level 0, all cores active.
//!
//! Deterministic: no clock, no hash order, no threads; ties by CPU, then core, then package, then
//! order of insertion. The same seed gives the same run, byte by byte.

mod figures;
mod pause;
mod power;
mod rates;
mod setup;
mod stats;
mod steps;
mod switch;

pub use setup::{Action, Options};
pub use stats::{CpuOutcome, GroupOutcome, Outcome, SourceOutcome};

use cpumodel::{CoreLicense, Platform};
use power::PowerState;

use crate::events::Sink;
use crate::program::{REPEAT_SLOTS, Workload};
use crate::rng::Rng;
use crate::sched::Scheduler;
use crate::sys::{NO_TASK, Sys, Tid};
use crate::timers::{Agenda, NEVER, Timers};
use stats::{CpuSums, Stats};
use steps::{Barrier, Client, Lock, Message, MessageQueue};

/// Fraction bits of work and rates: cycles * 2^20.
const Q: u32 = 20;

/// Why a run cannot go on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RunError {
    /// A program loops without ever occupying a CPU or waiting.
    #[error(
        "at {at_ns} ns a task of group \"{group}\" makes {steps} steps without any work or \
         waiting: its program never ends. Put work or a sleep into its loop"
    )]
    Endless {
        /// When.
        at_ns: u64,
        /// Group of the task.
        group: String,
        /// How many steps.
        steps: u32,
    },
    /// More tasks than the engine numbers.
    #[error("at {at_ns} ns there are {tasks} tasks; a fork in a loop? End or limit the forks")]
    TooManyTasks {
        /// When.
        at_ns: u64,
        /// How many.
        tasks: usize,
    },
}

/// What a CPU does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CpuState {
    Idle,
    /// Leaving the idle state; `wake_ns` is when it is there.
    Waking,
    Busy,
    Offline,
}

/// What the work left on a CPU is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Load {
    /// Nothing is.
    None,
    /// What its task owes.
    Debt,
    /// Its task's own, after what it owes if both are scalar.
    Work,
}

#[derive(Clone, Debug)]
struct Cpu {
    state: CpuState,
    curr: Tid,
    /// What ran here last: no switch if it comes again.
    last: Tid,
    core: u16,
    package: u16,
    /// Level that the code of the moment asks for.
    asks: u8,
    load: Load,
    /// Work left in this segment, at `synced_ns`.
    left_q: u64,
    synced_ns: u64,
    work_end_ns: u64,
    tick_ns: u64,
    /// When to choose anew, or, waking, to be awake.
    resched_ns: u64,
    /// When the scheduler's timer fires for its task.
    alarm_ns: u64,
    /// Granted level, clock, rate, power since `synced_ns`.
    level: u8,
    now: Point,
    /// They are still those of the core's licence, its siblings and its package.
    rate_holds: bool,
    sums: CpuSums,
    /// `sums` when the task started.
    started: stats::Run,
}

/// What a CPU does at one level of one core with so many active.
#[derive(Clone, Copy, Debug, Default)]
struct Point {
    rate_q: u64,
    khz: u32,
    /// Power of the busy core, mW.
    mw: u32,
}

#[derive(Clone, Debug)]
struct Core {
    license: CoreLicense,
    cpus: Vec<u16>,
    package: u16,
    nr_busy: u8,
}

#[derive(Clone, Debug)]
struct Package {
    cores: Vec<u16>,
    nr_active: u16,
    /// Number of active cores that the clocks follow now.
    applied: u16,
    /// Granted levels, if one core's holds for all.
    level: u8,
    power: PowerState,
}

/// Where a task is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TaskState {
    Waiting,
    Runnable,
    Running,
    Ended,
}

#[derive(Clone, Debug)]
struct Task {
    state: TaskState,
    /// `executes` was asked for this segment on this CPU.
    asked: bool,
    group: u16,
    program: u16,
    code: u16,
    pc: u32,
    left_q: u64,
    debt_q: u64,
    refill_q10: u32,
    message: Option<Message>,
    repeats: [u64; REPEAT_SLOTS],
    rng: Rng,
    /// Since when it is runnable or waits.
    woken_ns: u64,
}

/// What a CPU does next, within one event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Todo {
    /// Its task's program goes on.
    Steps,
    /// Its task has work.
    Segment,
    /// It chooses; `yields`: because its task yielded.
    Choose { yields: bool },
    /// It runs or idles until the next event.
    Settled,
}

/// Kinds of agenda entries, in the upper bits.
mod kind {
    pub const TASK: u32 = 0 << 30;
    pub const CLIENT: u32 = 1 << 30;
    pub const ACTION: u32 = 2 << 30;
    /// 0: of the scheduler; n + 1: power of package n.
    pub const CONTROL: u32 = 3 << 30;
    pub const MASK: u32 = 3 << 30;
}

/// A running simulation.
#[derive(Clone, Debug)]
pub struct Engine<S: Scheduler, K: Sink> {
    sys: Sys,
    sched: S,
    sink: K,
    platform: Platform,
    options: Options,
    workload: Workload,
    /// Level by code.
    levels: Vec<u8>,
    /// `points[level * (nr_cores + 1) + active]`.
    points: Vec<Point>,
    /// Reference rate: level 0, all cores active.
    reference_q: u64,
    /// By group: what of its work follows the clock, 1024 = all of it, and at which rate it was
    /// measured. Empty if no group waits for memory.
    memory: Vec<(u64, u64)>,
    /// Debt up to which a task may stop running: half a context switch, so that one that never
    /// works pays for each of its runs.
    carried_q: u64,
    /// By number of busy siblings.
    share_q10: Vec<u32>,
    throttle_q10: u32,
    /// Power of a core with more than one busy sibling over that with one.
    siblings_power_q10: u32,
    cpus: Vec<Cpu>,
    cores: Vec<Core>,
    packages: Vec<Package>,
    tasks: Vec<Task>,
    first_task_of_group: Vec<Tid>,
    /// By program.
    code_levels: Vec<u8>,
    /// How many each group has had, the forked ones included.
    tasks_of_group: Vec<usize>,
    queues: Vec<MessageQueue>,
    clients: Vec<Client>,
    locks: Vec<Lock>,
    barriers: Vec<Barrier>,
    cpu_timers: Timers,
    core_timers: Timers,
    package_timers: Timers,
    agenda: Agenda,
    group_affinity: Vec<u16>,
    nr_alive: usize,
    stats: Stats,
    error: Option<RunError>,
}

impl<S: Scheduler, K: Sink> Engine<S, K> {
    /// Run until the end that the options give, or until every task has ended.
    pub fn run(&mut self) -> Result<Outcome, RunError> {
        self.run_until(self.options.duration_ns)?;
        Ok(self.outcome())
    }

    /// Run until a point in time; may be called again with a later one.
    pub fn run_until(&mut self, until_ns: u64) -> Result<(), RunError> {
        if self.stats.since_ns == 0 && self.options.warmup_ns > 0 {
            let warmup_ns = self.options.warmup_ns.min(until_ns);
            self.events_until(warmup_ns)?;
            self.begin_measuring();
        }
        self.events_until(until_ns)
    }

    fn events_until(&mut self, until_ns: u64) -> Result<(), RunError> {
        while self.nr_alive > 0 && self.step(until_ns) {}
        if let Some(error) = self.error.take() {
            return Err(error);
        }
        if self.nr_alive > 0 {
            self.sys.now_ns = until_ns;
        }
        Ok(())
    }

    /// One event; false if the next one is later than `until_ns`.
    #[inline]
    fn step(&mut self, until_ns: u64) -> bool {
        let (cpu_ns, cpu) = self.cpu_timers.first();
        let (core_ns, core) = self.core_timers.first();
        let (package_ns, package) = self.package_timers.first();
        let agenda_ns = self.agenda.first_ns();
        let at_ns = cpu_ns.min(core_ns).min(package_ns).min(agenda_ns);
        if at_ns > until_ns || at_ns == NEVER || self.error.is_some() {
            return false;
        }
        debug_assert!(at_ns >= self.sys.now_ns, "time does not go back");
        self.sys.now_ns = at_ns;
        self.stats.events += 1;
        if at_ns == cpu_ns {
            self.cpu_event(cpu as usize);
        } else if at_ns == core_ns {
            self.core_event(core as usize);
        } else if at_ns == package_ns {
            self.package_event(package as usize);
        } else {
            self.agenda_event();
        }
        self.serve_kicks();
        true
    }

    fn agenda_event(&mut self) {
        let Some((_, what)) = self.agenda.pop() else { return };
        let index = (what & !kind::MASK) as usize;
        match what & kind::MASK {
            kind::TASK => self.wake(index as Tid),
            kind::CLIENT => self.client_sends(index),
            kind::ACTION => self.act_on(index),
            _ => {
                if let Some(package) = index.checked_sub(1) {
                    return self.power_look(package);
                }
                let next_ns = self.sched.control(&mut self.sys, &mut self.sink);
                if next_ns != NEVER {
                    self.agenda.push(next_ns, kind::CONTROL);
                }
            }
        }
    }

    fn cpu_event(&mut self, cpu: usize) {
        let now_ns = self.sys.now_ns;
        if self.cpus[cpu].state == CpuState::Waking {
            self.advance(cpu, Todo::Choose { yields: false });
            return;
        }
        self.sync(cpu);
        if now_ns >= self.cpus[cpu].tick_ns {
            self.tick(cpu);
        }
        if now_ns >= self.cpus[cpu].alarm_ns {
            self.alarm(cpu);
        }
        let c = &self.cpus[cpu];
        if c.left_q == 0 && now_ns >= c.work_end_ns {
            let todo = self.segment_done(cpu);
            self.advance(cpu, todo);
        } else if now_ns >= c.resched_ns {
            self.advance(cpu, Todo::Choose { yields: false });
        } else {
            self.arm(cpu);
        }
    }

    /// A CPU goes on until it is settled.
    fn advance(&mut self, cpu: usize, mut todo: Todo) {
        loop {
            // in the order in which they follow each other
            if let Todo::Choose { yields } = todo {
                todo = self.choose(cpu, yields);
            }
            if todo == Todo::Steps {
                todo = self.steps(cpu);
            }
            if todo == Todo::Segment {
                todo = self.segment(cpu);
            }
            if todo == Todo::Settled {
                let c = &self.cpus[cpu];
                if c.curr == NO_TASK || self.sys.now_ns < c.resched_ns {
                    return;
                }
                todo = Todo::Choose { yields: false };
            }
        }
    }

    /// Now.
    pub fn now_ns(&self) -> u64 {
        self.sys.now_ns
    }

    /// The scheduler.
    pub fn sched(&self) -> &S {
        &self.sched
    }

    /// Group of each task that ever was.
    pub fn group_of(&self) -> Vec<u16> {
        self.tasks.iter().map(|task| task.group).collect()
    }

    /// The sink.
    pub fn sink(&self) -> &K {
        &self.sink
    }

    /// The sink, after the run.
    pub fn into_sink(self) -> K {
        self.sink
    }

    /// Events handled since the start.
    pub fn nr_events(&self) -> u64 {
        self.stats.events
    }
}
