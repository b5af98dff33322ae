// SPDX-License-Identifier: MIT OR Apache-2.0
//! What levels cost the code beside, and standing by: feeds policy/exposure.h and policy/standby.h.
//! As bpf/exposure.bpf.h and crates/sched/src/autosize.rs.

use cpumodel::LevelClocks;
use policy::{Exposure, KernelUse, Losses, NR_PARTIES, Standby, StandbyInput, StandbyState, Task};

use super::{Detect, Lane, LaneConfig, Wide};
use crate::sched::OnCpu;
use crate::sys::{NO_CPU, Sys};

/// What is watched; nothing is where the user has chosen the wide CPUs.
#[derive(Clone, Debug, Default)]
pub(super) struct Watch {
    /// By core; empty if nothing is watched.
    cores: Vec<Exposure>,
    /// By CPU: its core, and the level of what it runs.
    core_of: Vec<u16>,
    level: Vec<u8>,
    /// By core: its CPUs that run something.
    nr_busy: Vec<u8>,
    losses: [Losses; NR_PARTIES],
    /// At the last decision.
    before: [Losses; NR_PARTIES],
    standby: Standby,
    clocks: LevelClocks,
    /// While the lane was away, since the last decision: a marked function was called, or a task
    /// gave its first hint.
    has_news: bool,
    /// For how long the lane was away.
    pub(super) kernel_ns: u64,
    /// And what all used then.
    pub(super) kernel_run_ns: u64,
}

impl Watch {
    pub(super) fn new(sys: &Sys, config: &LaneConfig) -> Self {
        if config.wide != Wide::Auto || !config.stands_by {
            return Watch::default();
        }
        let layout = &sys.layout;
        Watch {
            cores: vec![Exposure::default(); layout.cores.len()],
            core_of: layout.place.iter().map(|place| place.core).collect(),
            level: vec![0; layout.nr_cpus],
            nr_busy: vec![0; layout.cores.len()],
            standby: Standby::begun(policy::FIRST_LOOK_NS.saturating_sub(config.first_look_ns)),
            clocks: config.clocks.clone().unwrap_or_default(),
            ..Default::default()
        }
    }

    /// Whether it decides anything.
    fn is_on(&self) -> bool {
        !self.cores.is_empty()
    }

    /// Whether wide and scalar CPUs are divided.
    pub(super) fn is_apart(&self) -> bool {
        !self.is_on() || self.standby.state() == StandbyState::Apart
    }

    /// Whether the kernel's own scheduler is to be at work.
    pub(super) fn is_away(&self) -> bool {
        self.is_on() && self.standby.is_away()
    }

    /// Whether traps are armed.
    pub(super) fn is_armed(&self) -> bool {
        !self.is_on() || self.standby.state() != StandbyState::StandingBy
    }

    /// A marked function is called, and the lane is away; whether that is seen.
    pub(super) fn calls(&mut self) -> bool {
        self.has_news |= self.standby.keeps_marks();
        self.standby.keeps_marks()
    }

    /// A task gives its first hint.
    pub(super) fn first_hint(&mut self) {
        self.has_news = true;
    }

    /// The CPU's task ran.
    #[inline]
    pub(super) fn ran(&mut self, cpu: usize, task: &Task, level: u8, used_ns: u64, now_ns: u64) {
        if self.is_on() {
            let core = self.core_of[cpu] as usize;
            let losses = &mut self.losses[policy::party(task, level)];
            self.cores[core].ran(losses, level, self.nr_busy[core] > 1, used_ns, now_ns);
        }
    }

    /// The task waited in a queue.
    #[inline]
    pub(super) fn waited(&mut self, task: &Task, waited_ns: u64) {
        if self.is_on() {
            self.losses[policy::party(task, task.level)].wait_ns += waited_ns;
        }
    }

    /// Whether it looks what could be won.
    pub(super) fn is_looking(&self) -> bool {
        self.is_on() && self.standby.state() == StandbyState::Looking
    }

    /// Decide anew. While it looks, `kernel` is what the tasks did before.
    pub(super) fn update(
        &mut self,
        sys: &Sys,
        config: &LaneConfig,
        elapsed_ns: u64,
        wide_wait_ns: u64,
        kernel: [KernelUse; NR_PARTIES],
    ) {
        if !self.is_on() {
            return;
        }
        let losses = std::array::from_fn(|party| self.losses[party].since(&self.before[party]));
        self.before = self.losses;
        let run_ns: u64 = losses.iter().map(|losses| losses.run_ns).sum();
        let busy_per_package = run_ns as f64 / elapsed_ns as f64 / sys.layout.nr_packages as f64;
        let input = StandbyInput {
            elapsed_ns,
            losses,
            kernel,
            kernel_ns: self.kernel_ns,
            kernel_run_ns: self.kernel_run_ns,
            wide_wait_ns,
            lacks_q10: self.clocks.lacks_q10(busy_per_package),
            nr_cpus: sys.online.len() as u32,
            sees: u32::from(!matches!(config.detect, Detect::Trap(_))),
            news: u8::from(std::mem::take(&mut self.has_news)),
            ..StandbyInput::default()
        };
        self.standby.update(&input);
    }

    /// What the time of the parties counts.
    pub(super) fn counts_q10(&self) -> [u16; NR_PARTIES] {
        self.standby.shares.counts()
    }
}

impl Lane {
    /// What runs on the CPU is of this level from now on. A task that has a better CPU leaves this
    /// one before it gets to its wide code.
    #[inline]
    pub(super) fn watch_level(&mut self, sys: &Sys, OnCpu { cpu, task }: OnCpu, level: u8) {
        if !self.watch.is_on() || self.watch.level[cpu] | level == 0 {
            return;
        }
        let t = &self.tasks[task as usize].t;
        let leaves = level > self.class[cpu] && t.caps >> level != 0;
        let level = if leaves { 0 } else { level };
        let core = &mut self.watch.cores[self.watch.core_of[cpu] as usize];
        let old_level = std::mem::replace(&mut self.watch.level[cpu], level);
        if core.turns(old_level, level, sys.now_ns) {
            let party = policy::party(&self.tasks[task as usize].t, level);
            self.watch.losses[party].raises += 1;
        }
    }

    /// The task's hints were read: its sections since the last time, but for one that is open, were
    /// not noticed.
    pub(super) fn watch_missed(&mut self, sys: &Sys, OnCpu { cpu, task }: OnCpu) {
        let lane = &mut self.tasks[task as usize];
        lane.level_seen = lane.level_seen.max(lane.hint_want);
        let span_ns = std::mem::take(&mut lane.unread_ns);
        let begun = std::mem::take(&mut lane.sections);
        let nr = Exposure::nr_missed(begun, lane.hint_want > 0, span_ns);
        if !self.watch.is_on() || nr == 0 {
            return;
        }
        let party = policy::party(&lane.t, 1);
        let level = lane.level_seen.max(1);
        let core = &mut self.watch.cores[self.watch.core_of[cpu] as usize];
        self.watch.losses[party].sections += u64::from(nr);
        self.watch.losses[party].raises += u64::from(core.missed(level, nr, span_ns, sys.now_ns));
    }

    /// The running task turns from one level to another.
    pub(super) fn watch_turn(&mut self, sys: &Sys, on: OnCpu, old_level: u8) {
        let t = &self.tasks[on.task as usize].t;
        let level = t.level;
        if old_level == 0 && level > 0 {
            self.watch.losses[policy::party(t, level)].sections += 1;
        }
        self.watch_level(sys, on, level);
    }

    /// The task stops on the CPU.
    #[inline]
    pub(super) fn watch_stop(&mut self, sys: &Sys, on: OnCpu) {
        if self.watch.is_on() {
            self.watch.nr_busy[self.watch.core_of[on.cpu] as usize] -= 1;
            self.watch_level(sys, on, 0);
        }
    }

    /// The task starts on the CPU.
    #[inline]
    pub(super) fn watch_start(&mut self, sys: &Sys, on: OnCpu) {
        let OnCpu { cpu, task } = on;
        if !self.watch.is_on() {
            return;
        }
        let lane = &mut self.tasks[task as usize];
        let last_cpu = std::mem::replace(&mut lane.last_cpu, cpu as u16);
        let level = lane.t.level;
        self.watch.nr_busy[self.watch.core_of[cpu] as usize] += 1;
        if last_cpu != NO_CPU && last_cpu != cpu as u16 {
            self.watch.losses[policy::party(&lane.t, level)].moves += 1;
        }
        self.watch_level(sys, on, level);
    }
}
