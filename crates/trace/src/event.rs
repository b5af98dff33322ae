// SPDX-License-Identifier: MIT OR Apache-2.0
//! What can happen, as the kernel's tracepoints report it.

use std::fmt;

use cpumodel::CpuSet;

/// One event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// When, by CLOCK_MONOTONIC.
    pub at_ns: u64,
    /// The CPU on which it was seen.
    pub cpu: u16,
    /// The task that it is about; 0 is whatever CPU idles.
    pub tid: u32,
    /// What.
    pub what: What,
}

/// What happened to the task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// It stopped running, and `next` runs in its place.
    Switch {
        /// The other task.
        next: u32,
        /// Why this one stopped.
        why: Why,
        /// It may not migrate now, whatever its affinity says.
        bound: bool,
        /// What the lane's scheduler takes this task for, if it runs.
        lane: Option<Lane>,
        /// The same for `next`.
        next_lane: Option<Lane>,
    },
    /// It became runnable.
    Wake {
        /// Who woke it; 0: a timer, a device, or not seen.
        waker: u32,
        /// How long before this moment its wait began.
        delay_ns: u32,
        /// For the first time.
        new: bool,
    },
    /// It belongs to another CPU from now on.
    Migrate {
        /// Where it was.
        from: u16,
        /// Where it is.
        to: u16,
    },
    /// It came to be.
    Fork {
        /// By whom.
        parent: u32,
        /// Its process.
        tgid: u32,
    },
    /// It ended, or its number did.
    Exit,
    /// It entered a system call.
    Syscall {
        /// Its number.
        number: u32,
    },
    /// It returned from one.
    SyscallReturn {
        /// What was returned.
        value: i64,
    },
    /// It entered a marked function.
    Mark {
        /// Index into the marks of [`crate::Info`].
        mark: u32,
    },
    /// It returned from one.
    MarkReturn {
        /// Index into the marks of [`crate::Info`].
        mark: u32,
    },
    /// It used an instruction that its CPU withholds.
    Trap {
        /// Licence level of the instruction.
        level: u8,
        /// Its address.
        ip: u64,
    },
    /// It was there when the recording began.
    Task {
        /// Its process.
        tgid: u32,
        /// A kernel thread.
        kernel: bool,
        /// It ran on the event's CPU.
        running: bool,
        /// It is among those that are recorded.
        followed: bool,
        /// Its name.
        name: Name,
    },
    /// It has another name.
    Name {
        /// Its process.
        tgid: u32,
        /// Its name.
        name: Name,
    },
    /// It may run on these CPUs.
    Affinity {
        /// Which.
        cpus: Box<CpuSet>,
    },
    /// The event's CPU has this class in the lane.
    Class {
        /// Highest licence level that may run there.
        class: u8,
    },
    /// The event's CPU executed nothing for so long, up to now: whatever a virtual one runs on ran
    /// something else.
    Stall {
        /// How long.
        ns: u64,
    },
    /// The event's CPU has spent so many cycles at this licence level since the last event of that
    /// level there. A recorder looks at every switch, so they are this task's; in samples of perf
    /// it ran when one was taken.
    LevelCycles {
        /// The level.
        license_level: u8,
        /// Core cycles.
        cycles: u64,
    },
    /// The event's CPU had no room for so many events.
    Lost {
        /// Since the last event of this kind.
        events: u64,
    },
}

impl What {
    /// It is about the event's CPU, and no task.
    pub fn is_of_cpu(&self) -> bool {
        matches!(self, What::Class { .. } | What::Lost { .. } | What::Stall { .. })
    }
}

/// Why a task stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// It could go on.
    Preempted = 0,
    /// It waits for something, and signals end that.
    Sleeps = 1,
    /// It waits for something.
    Blocks = 2,
    /// It ended.
    Ends = 3,
}

impl Why {
    /// In two bits, as the kernel's side has it (bpf/trace.h), and the file.
    pub fn code(self) -> u8 {
        self as u8
    }

    /// What the lowest two bits mean.
    pub fn of_code(code: u8) -> Self {
        [Why::Preempted, Why::Sleeps, Why::Blocks, Why::Ends][usize::from(code & 3)]
    }
}

/// What the lane's scheduler takes a task for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lane {
    /// As policy/types.h numbers them: 0 default, 1 scalar, 2 wide.
    pub task_type: u8,
    /// Licence level, 0 unless it is wide.
    pub level: u8,
}

impl Lane {
    /// Known in bit 7, level in 6..4, type in 3..0: as the kernel's side has it (bpf/trace.h), and
    /// the file.
    pub fn code(self) -> u8 {
        0x80 | (self.level & 7) << 4 | self.task_type & 15
    }

    /// What the code means; `None`: nothing is known.
    pub fn of_code(code: u8) -> Option<Self> {
        (code & 0x80 != 0).then_some(Lane { task_type: code & 15, level: code >> 4 & 7 })
    }
}

/// A task's name: up to 16 bytes, as the kernel keeps it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct Name {
    bytes: [u8; Name::MAX],
}

impl Name {
    /// Longest name, bytes (TASK_COMM_LEN, with the kernel's final zero).
    pub const MAX: usize = 16;

    /// The bytes up to the first zero; more than [`Name::MAX`] are cut.
    pub fn new(name: &[u8]) -> Self {
        let mut bytes = [0; Name::MAX];
        let kept = name.iter().take_while(|byte| **byte != 0).take(Name::MAX);
        bytes.iter_mut().zip(kept).for_each(|(to, from)| *to = *from);
        Name { bytes }
    }

    /// Without what follows the end.
    pub fn bytes(&self) -> &[u8] {
        let end = self.bytes.iter().position(|byte| *byte == 0).unwrap_or(Name::MAX);
        &self.bytes[..end]
    }
}

impl fmt::Display for Name {
    /// Names may hold anything: what a terminal would act on is shown as a question mark.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = String::from_utf8_lossy(self.bytes());
        let shown: String = text.chars().map(|c| if c.is_control() { '?' } else { c }).collect();
        f.pad(&shown)
    }
}
