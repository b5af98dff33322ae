// SPDX-License-Identifier: MIT OR Apache-2.0
//! Programs: what a task does, as a list of steps.
//!
//! A task executes the steps of its program one after the other. Steps that take no time (a jump, a
//! message sent) are executed at once; [`Step::Work`] occupies the CPU; steps that block give it
//! up.
//!
//! System calls are visible to a scheduler, so blocking steps are wrapped in [`Step::Enter`] and
//! [`Step::Exit`] by [`Builder`]. Wide sections are announced by [`Step::WideBegin`]; whether the
//! announcement reaches the scheduler, and how (hint, mark, not at all because wide code traps),
//! is the scheduler's configuration, not the program's.

use cpumodel::InsnClass;

use crate::rng::Dist;

/// A kind of code: the instructions and how densely the wide heavy ones come.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Code {
    /// Class of its widest instructions.
    pub class: InsnClass,
    /// Heavy ones of that class per cycle.
    pub per_cycle: f64,
}

impl Code {
    /// Scalar code.
    pub const SCALAR: Code = Code { class: InsnClass::Scalar, per_cycle: 0.0 };
}

/// Index of a message queue of the workload; [`OWN_INBOX`] is the task's own.
pub type Queue = u32;
/// The queue that belongs to the task.
pub const OWN_INBOX: Queue = u32::MAX;

/// One step of a program.
#[derive(Clone, Copy, Debug, PartialEq)]
#[allow(missing_docs)] // the fields are explained with their step
pub enum Step {
    /// Occupy the CPU with so many cycles of [`Workload::codes`]`[code]`.
    Work { code: u16, cycles: Dist },
    /// A wide section of this level begins (`tl_wide_begin`, entry to a marked function).
    WideBegin { level: u8 },
    /// It ends; what follows is scalar for at least `rest_ns` (`tl_scalar_for`), 0 = not stated.
    WideEnd { rest_ns: u64 },
    /// Into the kernel.
    Enter,
    /// Out of it.
    Exit,
    /// Wait for time to pass, ns.
    Sleep { ns: Dist },
    /// Wait for a message; it becomes the task's current one.
    Take { queue: Queue },
    /// Send the current message on, or a new one if there is none.
    Put { queue: Queue },
    /// The current message is answered: its request is complete.
    Done,
    /// Wait for a lock and take it.
    Lock { lock: u16 },
    /// Give it back.
    Unlock { lock: u16 },
    /// Wait until so many tasks wait at this barrier.
    Barrier { barrier: u16 },
    /// Offer the CPU to others: sched_yield().
    Yield,
    /// Start another task of a group.
    Fork { group: u16 },
    /// Go on at a step.
    Jump { to: u32 },
    /// The first `times` (drawn at the first) go on at a step, then fall through and begin anew.
    Repeat { slot: u8, times: Dist, to: u32 },
    /// The task ends.
    End,
}

/// Counters of [`Step::Repeat`] that a task has.
pub const REPEAT_SLOTS: usize = 4;

/// How waiters of a lock wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LockKind {
    /// Hand over to the longest waiter, instead of to whoever comes first.
    pub fair: bool,
}

/// Tasks that do the same.
#[derive(Clone, Debug)]
pub struct Group {
    /// Name in reports.
    pub name: String,
    /// How many there are at the start.
    pub tasks: usize,
    /// Their programs: the i-th task has the i-th, and those after the last begin again with the
    /// first. Mostly one.
    pub programs: Vec<u16>,
    /// CPUs they may use; all if none is given.
    pub affinity: Option<Vec<usize>>,
    /// Weight, 100 is nice 0.
    pub weight: u32,
    /// Type at the start: known to be scalar instead of never classified.
    pub scalar: bool,
    /// Kernel threads.
    pub kernel: bool,
    /// The first starts at this time, ns; the others follow a microsecond apart.
    pub start_ns: u64,
    /// Working set to reload after a move, as a multiple of the model's refill costs.
    pub refill_frac: f64,
    /// What of its work does not follow the clock.
    pub memory: Memory,
}

/// How much of some work follows the clock; the rest waits for memory, whose clock is another.
///
/// ```text
///   time at clock f = cycles * (sensitive / f + (1 - sensitive) / reference)
/// ```
///
/// As `dvfs::timeline` has it. The reference is a number of its own, so that what memory takes is
/// the same on every machine.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Memory {
    /// Part of the time at the reference clock that follows the clock, 0..=1.
    pub sensitive_frac: f64,
    /// The clock; `None`: level 0 with all cores active, of whatever machine it runs on.
    pub reference_khz: Option<u32>,
}

impl Memory {
    /// All of it follows the clock.
    pub const NONE: Memory = Memory { sensitive_frac: 1.0, reference_khz: None };
}

impl Group {
    /// A group with nothing special about it.
    pub fn new(name: &str, tasks: usize, program: u16) -> Self {
        Group {
            name: name.into(),
            tasks,
            programs: vec![program],
            affinity: None,
            weight: 100,
            scalar: false,
            kernel: false,
            start_ns: 0,
            refill_frac: 1.0,
            memory: Memory::NONE,
        }
    }
}

/// Who sends requests.
#[derive(Clone, Debug)]
pub enum Arrivals {
    /// At random, whatever happens to them: mean time between two.
    Open {
        /// Gaps, ns.
        gap_ns: Dist,
    },
    /// Clients that send the next after the answer and a pause.
    Closed {
        /// How many.
        clients: usize,
        /// Pause, ns.
        think_ns: Dist,
    },
}

/// A source of requests to a group's inboxes. The network's time is the pause's.
#[derive(Clone, Debug)]
pub struct Source {
    /// Name in reports.
    pub name: String,
    /// When requests come.
    pub arrivals: Arrivals,
    /// The group whose tasks' inboxes get them, in turn; each client sticks to one.
    pub to_group: u16,
    /// The first request comes at this time, ns.
    pub start_ns: u64,
}

/// Everything that runs.
#[derive(Clone, Debug, Default)]
pub struct Workload {
    /// Kinds of code; 0 must be scalar.
    pub codes: Vec<Code>,
    /// Programs.
    pub programs: Vec<Vec<Step>>,
    /// Groups of tasks.
    pub groups: Vec<Group>,
    /// Sources of requests.
    pub sources: Vec<Source>,
    /// Message queues besides the inboxes.
    pub nr_queues: usize,
    /// Locks.
    pub locks: Vec<LockKind>,
    /// Barriers: tasks that must meet.
    pub barriers: Vec<usize>,
}

impl Workload {
    /// An empty one.
    pub fn new() -> Self {
        Workload { codes: vec![Code::SCALAR], ..Default::default() }
    }

    /// Index of a kind of code; added if it is new.
    pub fn code(&mut self, class: InsnClass, per_cycle: f64) -> u16 {
        let code = Code { class, per_cycle };
        let known = self.codes.iter().position(|&known| known == code);
        known.unwrap_or_else(|| {
            self.codes.push(code);
            self.codes.len() - 1
        }) as u16
    }

    /// Add a program; returns its index.
    pub fn program(&mut self, steps: Vec<Step>) -> u16 {
        self.programs.push(steps);
        self.programs.len() as u16 - 1
    }

    /// The programs of a group.
    pub fn programs_of(&self, group: &Group) -> impl Iterator<Item = &[Step]> {
        group.programs.iter().map(|&program| self.programs[usize::from(program)].as_slice())
    }

    /// Add a group; returns its index.
    pub fn group(&mut self, group: Group) -> u16 {
        self.groups.push(group);
        self.groups.len() as u16 - 1
    }
}

/// Writes programs.
#[derive(Clone, Debug, Default)]
pub struct Builder {
    steps: Vec<Step>,
}

impl Builder {
    /// An empty program.
    pub fn new() -> Self {
        Builder::default()
    }

    /// Where the next step will be.
    pub fn here(&self) -> u32 {
        self.steps.len() as u32
    }

    /// Any step, as it is.
    pub fn step(mut self, step: Step) -> Self {
        self.steps.push(step);
        self
    }

    /// Code of a kind.
    pub fn work(self, code: u16, cycles: Dist) -> Self {
        self.step(Step::Work { code, cycles })
    }

    /// Wide code in a section of this level.
    pub fn wide(self, code: u16, level: u8, cycles: Dist) -> Self {
        self.step(Step::WideBegin { level }).work(code, cycles).step(Step::WideEnd { rest_ns: 0 })
    }

    /// A system call that computes in the kernel.
    pub fn syscall(self, cycles: Dist) -> Self {
        self.step(Step::Enter).work(0, cycles).step(Step::Exit)
    }

    /// A step that is a system call: it blocks, or wakes someone.
    pub fn call(self, step: Step) -> Self {
        self.step(Step::Enter).step(step).step(Step::Exit)
    }

    /// Wait for time to pass.
    pub fn sleep(self, ns: Dist) -> Self {
        self.call(Step::Sleep { ns })
    }

    /// Again from a step, for ever.
    pub fn forever(self, from: u32) -> Vec<Step> {
        self.step(Step::Jump { to: from }).steps
    }

    /// And end.
    pub fn end(self) -> Vec<Step> {
        self.step(Step::End).steps
    }

    /// The steps so far.
    pub fn steps(self) -> Vec<Step> {
        self.steps
    }
}
