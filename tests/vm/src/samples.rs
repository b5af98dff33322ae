// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where code ran, as the code itself saw it: counters in memory shared between processes.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// CPUs that a guest may have.
const CPUS: usize = 16;

/// What a worker did at a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Inside a wide section that the worker announced.
    Wide = 0,
    /// Outside, by a task that the scheduler knows to be scalar.
    Scalar = 1,
    /// By a task that nobody classified.
    Default = 2,
}

/// Samples of all workers of one load.
#[repr(C)]
pub struct Samples {
    by_phase: [[AtomicU64; CPUS]; 3],
    /// Units of work done, for comparisons.
    pub units: AtomicU64,
    /// Samples left out because the heuristic may have ended the section meanwhile.
    pub ambiguous: AtomicU64,
    /// Workers that are connected.
    pub ready: AtomicU64,
    /// Whether they may begin.
    pub is_open: AtomicBool,
    /// From this time on samples count (CLOCK_MONOTONIC, ns).
    pub settled_ns: AtomicU64,
    /// At this time workers end.
    pub end_ns: AtomicU64,
}

impl Samples {
    /// In new memory that children share; never freed.
    pub fn shared() -> &'static Samples {
        // SAFETY: an anonymous mapping is zeroed, and all-zero is a valid value of the type.
        unsafe {
            let memory = libc::mmap(
                std::ptr::null_mut(),
                size_of::<Samples>(),
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_ANONYMOUS,
                -1,
                0,
            );
            assert!(memory != libc::MAP_FAILED, "no memory");
            &*memory.cast()
        }
    }

    /// Count a sample on this CPU. Not behind the end: the first workers to go leave room for
    /// the others.
    pub fn add(&self, phase: Phase, cpu: usize) {
        if crate::guest::now_ns() >= self.settled_ns.load(Ordering::Relaxed) && self.running() {
            self.by_phase[phase as usize][cpu].fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Whether the load goes on.
    pub fn running(&self) -> bool {
        crate::guest::now_ns() < self.end_ns.load(Ordering::Relaxed)
    }

    /// Samples of a phase in total.
    pub fn total(&self, phase: Phase) -> u64 {
        self.by_phase[phase as usize].iter().map(|n| n.load(Ordering::Relaxed)).sum()
    }

    /// Samples of a phase on these CPUs.
    pub fn on(&self, phase: Phase, cpus: &[usize]) -> u64 {
        cpus.iter().map(|&cpu| self.by_phase[phase as usize][cpu].load(Ordering::Relaxed)).sum()
    }

    /// For messages: samples per CPU of each phase.
    pub fn text(&self) -> String {
        let row = |phase: Phase| {
            let counts: Vec<u64> = self.by_phase[phase as usize]
                .iter()
                .take(crate::guest::nr_cpus())
                .map(|n| n.load(Ordering::Relaxed))
                .collect();
            format!("{phase:?} {counts:?}")
        };
        format!("{}, {}, {}", row(Phase::Wide), row(Phase::Scalar), row(Phase::Default))
    }
}
