// SPDX-License-Identifier: MIT OR Apache-2.0
//! Schedulers: one trait, and those that are compared.
//!
//! | scheduler | what it is |
//! |---|---|
//! | [`lane`] | Turbolane: `policy/` through an adapter that does what `bpf/` does |
//! | [`adaptive`] | the same, which leaves the machine to the kernel's scheduler while it stands by |
//! | [`fair`] | the kernel's fair scheduling, as far as placement matters |
//! | [`prototype`] | what the papers measured: core specialisation in MuQSS |
//! | [`deadline`] | MuQSS, the baseline of the papers; and core scheduling: wide and other tasks
//! never share a core (SYSTOR 6.1) |
//!
//! The engine calls, in the order in which a kernel does:
//!
//! ```text
//!   wake                 a task became runnable
//!   pick                 a CPU needs a task; then, if another one is to run:
//!     stops, put           of the one that ran, if it can go on
//!     starts               of the next
//!   tick, alarm, act     of the one that runs; the answer may be "choose anew"
//! ```

pub mod adaptive;
mod balance;
pub mod deadline;
pub mod fair;
pub mod lane;
pub mod prototype;
mod queue;
mod turn;

use cpumodel::InsnClass;

use crate::events::Sink;
use crate::sys::{Sys, Tid};

/// A task and the CPU that it runs on, or has just run on.
#[derive(Clone, Copy, Debug)]
pub struct OnCpu {
    /// The CPU.
    pub cpu: usize,
    /// The task.
    pub task: Tid,
}

/// What ran until now on a CPU that chooses, and can go on.
#[derive(Clone, Copy, Debug)]
pub struct Ran {
    /// The task.
    pub task: Tid,
    /// The CPU chooses because it yielded; else because it was kicked, or the task's time is up.
    pub yields: bool,
}

/// What a CPU runs next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pick {
    /// What it ran until now.
    Keep,
    /// Another task.
    Run(Tid),
    /// Nothing; what it ran, if it can go on, is put.
    Idle,
}

/// What becomes of the running task after it did something.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// Kernel time that it cost, ns at the reference clock.
    pub cost_ns: u32,
    /// The CPU chooses anew at once.
    pub resched: bool,
    /// As if the task had yielded.
    pub yields: bool,
}

/// Something that a running task does and that a scheduler may see.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// A wide section of this level begins.
    WideBegin(u8),
    /// It ends.
    WideEnd {
        /// How long what follows stays scalar, 0 = not stated.
        rest_ns: u64,
    },
    /// Into a system call.
    Enter,
    /// Out of it.
    Exit,
    /// Into sched_yield(); the CPU chooses anew afterwards.
    Yield,
    /// It is about to execute code of this class, which asks for this level; also when it goes on
    /// with it somewhere else. Only of classes from [`Scheduler::watches_from`] on.
    Code {
        /// Class of its widest instructions.
        class: InsnClass,
        /// The level.
        level: u8,
    },
}

/// What a task is when it begins.
#[derive(Clone, Copy, Debug)]
pub struct NewTask {
    /// Its number.
    pub task: Tid,
    /// Who forked it.
    pub parent: Option<Tid>,
    /// Weight, 100 is nice 0.
    pub weight: u32,
    /// Said to be scalar.
    pub scalar: bool,
    /// A kernel thread.
    pub kernel: bool,
    /// The highest licence level of its program's instructions.
    pub code_level: u8,
}

/// What a scheduler counted; zeros where it does not count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SchedCounters {
    /// Calls of the scheduler's decisions.
    pub decisions: u64,
    /// Changes of tasks' types or levels.
    pub type_changes: u64,
    /// Traps on withheld instructions.
    pub traps: u64,
    /// Wide tasks' time where the class is too low.
    pub degraded_ns: u64,
    /// Scalar tasks' time on wide CPUs.
    pub guest_ns: u64,
    /// Kicks sent to displace other work.
    pub preemptions: u64,
    /// Changes of the number of wide cores.
    pub resizes: u64,
    /// Wide cores, as time integral: cores * ns.
    pub wide_core_ns: u64,
}

impl SchedCounters {
    /// What was counted since an earlier reading.
    pub fn since(&self, before: &SchedCounters) -> SchedCounters {
        SchedCounters {
            decisions: self.decisions - before.decisions,
            type_changes: self.type_changes - before.type_changes,
            traps: self.traps - before.traps,
            degraded_ns: self.degraded_ns - before.degraded_ns,
            guest_ns: self.guest_ns - before.guest_ns,
            preemptions: self.preemptions - before.preemptions,
            resizes: self.resizes - before.resizes,
            wide_core_ns: self.wide_core_ns - before.wide_core_ns,
        }
    }
}

/// A scheduler.
pub trait Scheduler {
    /// A task came to be; it is not runnable yet.
    fn new_task(&mut self, sys: &mut Sys, new: &NewTask);
    /// It became runnable.
    fn wake(&mut self, sys: &mut Sys, task: Tid, sink: &mut impl Sink);
    /// A CPU chooses. `prev` is `None` if its task blocked or ended, or it woke from idling.
    fn pick(&mut self, sys: &mut Sys, cpu: usize, prev: Option<Ran>, sink: &mut impl Sink) -> Pick;
    /// The task stops on the CPU; `runnable`: it can go on and will be put.
    fn stops(&mut self, sys: &mut Sys, on: OnCpu, runnable: bool, sink: &mut impl Sink);
    /// It has stopped and can go on; `idles`: nothing else runs on the CPU.
    fn put(&mut self, sys: &mut Sys, on: OnCpu, idles: bool);
    /// The task starts on the CPU. True: choose anew at once.
    fn starts(&mut self, sys: &mut Sys, on: OnCpu, sink: &mut impl Sink) -> bool;
    /// The timer tick. True: choose anew.
    fn tick(&mut self, sys: &mut Sys, on: OnCpu, sink: &mut impl Sink) -> bool;
    /// When the running task's turn ends, if that is to be to the moment; `u64::MAX`: at a tick.
    /// Asked when the CPU has chosen.
    fn turn_ends_ns(&self, _cpu: usize) -> u64 {
        u64::MAX
    }
    /// When the scheduler's timer is to fire for the running task; `u64::MAX`: never. Asked when
    /// the CPU has chosen, when its task has done something, and when the timer has fired.
    fn alarm_ns(&self, _cpu: usize) -> u64 {
        u64::MAX
    }
    /// It fires. True: choose anew.
    fn alarm(&mut self, _: &mut Sys, _: OnCpu, _: &mut impl Sink) -> bool {
        false
    }
    /// The running task does something.
    fn act(&mut self, _: &mut Sys, _: OnCpu, _: Act, _: &mut impl Sink) -> Verdict {
        Verdict::default()
    }
    /// The CPU is about to idle. True: there may be work for it after all.
    fn idles(&mut self, sys: &mut Sys, cpu: usize) -> bool;
    /// The task ended; it does not run any more.
    fn ends(&mut self, _: Tid) {}
    /// The task's affinity changed. It is not running.
    fn affinity_changed(&mut self, sys: &mut Sys, task: Tid);
    /// CPUs went on or off line (`sys.online`).
    fn hotplug(&mut self, sys: &mut Sys, sink: &mut impl Sink);
    /// Time for periodic decisions; when to call again, `u64::MAX` for never. First called at 0.
    fn control(&mut self, _: &mut Sys, _: &mut impl Sink) -> u64 {
        u64::MAX
    }
    /// [`Act::Code`] only tells of code from this class on.
    fn watches_from(&self) -> InsnClass {
        InsnClass::Amx
    }
    /// What it counted since the start.
    fn counters(&self) -> SchedCounters;
    /// The class of each CPU; `None` if it has no classes.
    fn classes(&self) -> Option<Vec<u8>> {
        None
    }
}
