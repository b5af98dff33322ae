// SPDX-License-Identifier: MIT OR Apache-2.0
//! What happened, event by event: for checkers, charts and exports, of simulations and of real
//! machines alike.
//!
//! A [`Sink`] gets events in order of time. A run without one pays nothing: [`Quiet`] is compiled
//! away.

use crate::bits::Mask;
use crate::sys::Tid;

/// Why a task stopped running.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// It waits for something.
    Blocked,
    /// It could go on.
    Preempted,
    /// It ended.
    Ended,
}

/// One event.
#[derive(Clone, Debug, PartialEq)]
pub enum Happened<'a> {
    /// A task came to be, with this affinity.
    New {
        /// The task.
        task: Tid,
        /// CPUs it may use.
        affinity: &'a Mask,
        /// A kernel thread.
        kernel: bool,
    },
    /// Its affinity changed.
    Affinity {
        /// The task.
        task: Tid,
        /// CPUs it may use.
        affinity: &'a Mask,
    },
    /// It became runnable.
    Wake {
        /// The task.
        task: Tid,
    },
    /// It began to run.
    Start {
        /// The task.
        task: Tid,
        /// Where.
        cpu: u16,
    },
    /// It stopped running.
    Stop {
        /// The task.
        task: Tid,
        /// Where.
        cpu: u16,
        /// Why.
        why: Stop,
    },
    /// The scheduler changed its mind about a task.
    Type {
        /// The task.
        task: Tid,
        /// `policy::TYPE_*`.
        task_type: u8,
        /// Licence level, 0 unless wide.
        level: u8,
    },
    /// A CPU's class changed.
    Class {
        /// The CPU.
        cpu: u16,
        /// Highest level that may run there.
        class: u8,
    },
    /// A CPU went on or off line.
    Online {
        /// The CPU.
        cpu: u16,
        /// Which.
        online: bool,
    },
    /// What a CPU executes changed: the level that its code asks for.
    Asks {
        /// The CPU.
        cpu: u16,
        /// The level.
        level: u8,
    },
    /// A core's licence changed.
    License {
        /// The core.
        core: u16,
        /// The granted level.
        level: u8,
        /// Its clock; 0 while it is halted.
        khz: u32,
        /// Whether it waits for a higher level.
        throttled: bool,
    },
}

/// Takes events.
pub trait Sink {
    /// False: none is wanted, and none needs to be made.
    const WANTED: bool;
    /// An event.
    fn happened(&mut self, at_ns: u64, what: &Happened<'_>);
}

/// Wants no event.
#[derive(Clone, Copy, Debug, Default)]
pub struct Quiet;

impl Sink for Quiet {
    const WANTED: bool = false;
    fn happened(&mut self, _: u64, _: &Happened<'_>) {}
}

impl<S: Sink> Sink for &mut S {
    const WANTED: bool = S::WANTED;
    fn happened(&mut self, at_ns: u64, what: &Happened<'_>) {
        (**self).happened(at_ns, what);
    }
}

/// Two sinks at once.
impl<A: Sink, B: Sink> Sink for (A, B) {
    const WANTED: bool = A::WANTED || B::WANTED;
    fn happened(&mut self, at_ns: u64, what: &Happened<'_>) {
        self.0.happened(at_ns, what);
        self.1.happened(at_ns, what);
    }
}
