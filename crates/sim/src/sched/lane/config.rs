// SPDX-License-Identifier: MIT OR Apache-2.0
//! The lane's settings in a simulation: those of `turbolane run`, how wide code is noticed, and
//! what that costs.

use cpumodel::{InsnClass, LevelClocks};
use policy::Cfg;

/// How the scheduler learns that a task turns wide.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detect {
    /// The program's own hints, through the library.
    Hint,
    /// Probes at marked functions.
    Mark,
    /// Scalar CPUs trap on instructions from this class on.
    Trap(InsnClass),
    /// Power scores, from licence counters read at each switch (policy/score.h).
    Score,
}

/// Which cores are wide.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wide {
    /// So many, the last in topology order.
    Cores(usize),
    /// The cores of these CPUs.
    Cpus(Vec<usize>),
    /// Sized by policy/sizing.h, beginning with one.
    Auto,
}

/// Settings of the scheduler, as `turbolane run` has them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaneConfig {
    /// The policy's settings.
    pub cfg: Cfg,
    /// Detection.
    pub detect: Detect,
    /// Wide cores.
    pub wide: Wide,
    /// Classes of CPUs by level, sized by policy/tiers.h.
    pub tiers: bool,
    /// What a trap, a probe and a system call cost, ns.
    pub costs: DetectCosts,
    /// Whether automatic sizing may stand by (policy/standby.h).
    pub stands_by: bool,
    /// When it first looks, ns; `turbolane run` waits for [`policy::FIRST_LOOK_NS`], for which
    /// scenarios are too short.
    pub first_look_ns: u64,
    /// The clocks by level, `None` = nothing is known of them but what is known by
    /// whoever makes the scheduler.
    pub clocks: Option<LevelClocks>,
}

/// What detection costs a task, ns at the reference clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DetectCosts {
    /// The exception on a withheld instruction.
    pub trap_ns: u32,
    /// A system call: the library's yield.
    pub syscall_ns: u32,
    /// A uprobe at an ordinary instruction.
    pub probe_ns: u32,
    /// A uretprobe.
    pub return_probe_ns: u32,
    /// A tracing program at system call entry or return.
    pub tracepoint_ns: u32,
}

impl Default for DetectCosts {
    /// Trap: THESIS 5.4.1. The rest: own measurements (uprobe on `push`; uretprobe; half
    /// of what two tracing programs add to getppid).
    fn default() -> Self {
        DetectCosts {
            trap_ns: 370,
            syscall_ns: 120,
            probe_ns: 466,
            return_probe_ns: 250,
            tracepoint_ns: 12,
        }
    }
}

impl Default for LaneConfig {
    /// The defaults of `turbolane run`, with hints and automatic sizing.
    fn default() -> Self {
        LaneConfig {
            cfg: Cfg {
                slice_ns: 5_000_000,
                slice_wide_ns: 5_000_000,
                wide_timeout_ns: policy::WIDE_TIMEOUT_NS,
                rest_below_ns: 15_000,
                ..Default::default()
            },
            detect: Detect::Hint,
            wide: Wide::Auto,
            tiers: false,
            costs: DetectCosts::default(),
            stands_by: true,
            first_look_ns: 150_000_000,
            clocks: None,
        }
    }
}
