// SPDX-License-Identifier: MIT OR Apache-2.0
//! Turbolane's scheduler: the policy, through an adapter that does what `bpf/` does in the kernel.
//!
//! Decisions are calls of `policy/`, the very C of the kernel build. Around them is what sched_ext
//! is for the BPF programs: dispatch queues, a local queue per CPU, idle masks, kicks. Functions
//! have the names of their twins in `bpf/`, file by file:
//!
//! | here | there |
//! |---|---|
//! | `classes.rs` | classes.bpf.h, control.bpf.h |
//! | `place.rs` | place.bpf.h |
//! | `serve.rs` | serve.bpf.h |
//! | `detect.rs` | detect.bpf.h and the application library's side of a hint |
//! | `stays.rs` | stays.bpf.h |
//! | `sizing.rs`, `standby.rs` | crates/sched/src/autosize.rs, exposure.bpf.h |
//! | `handover.rs` | away.bpf.h |
//! | `memo.rs` | (tables of pure answers) |
//!
//! Where the two differ:
//!
//! - The simulator decides in no time. So there is nothing here of what closes the kernel's
//!   windows: tasks inside a tracing program (leave.bpf.h, `starts_too_early`), such programs being
//!   preempted, the count of arrivals and the second look that it allows (arrivals.bpf.h), tasks
//!   that were overlooked (`tl_find_overlooked`).
//! - A CPU whose task gives it up and that has nothing to look for leaves the task's unread hint to
//!   `stopping` there (a "quiet" CPU); here it is read before. The outcome is the same.
//! - A shard of queues is a last-level cache here, however many CPUs it has.
//! - A clock is advanced by each charge, not from time to time by sums of what its CPUs have
//!   charged.
//! - Realtime tasks and CPUs that are taken away by them (`ops.cpu_release`) do not exist.
//! - The loader's threads go first there (`goes_first`), as kernel threads do; here there is no
//!   loader.
//! - `on_act` plays the library's part of a hint too (crates/hint).

mod bound;
mod classes;
mod config;
mod detect;
mod handover;
mod memo;
mod place;
mod serve;
mod shared;
mod sizing;
mod standby;
mod stays;

use std::collections::VecDeque;

use cpumodel::InsnClass;
use policy::{
    Event, KernelUse, NR_CLASSES, NR_QUEUES, QUEUE_NONE, Remigrate, Run, Score, Split, Task, Turns,
};

use super::{Act, NewTask, OnCpu, Pick, Ran, SchedCounters, Scheduler, Verdict};
use crate::bits::Mask;
use crate::events::{Happened, Sink};
use crate::rng::Rng;
use crate::sys::{NO_CPU, Sys, Tid};
pub use config::{Detect, DetectCosts, LaneConfig, Wide};
pub use memo::Mutation;
use memo::{Memo, TRACKED};
use shared::{Shared, queues};

/// What the adapter keeps of a task, as `struct task_ctx`.
#[derive(Clone, Debug)]
struct LaneTask {
    t: Task,
    /// Up to when its CPU time is counted.
    counted_ns: u64,
    /// Generation of the classes that `t.caps` belongs to; 0 = look again.
    caps_generation: u32,
    /// The hint page's slot: how often written, the level wanted, `hint_seq` when last read.
    hint_seq: u32,
    hint_want: u8,
    hint_read: u32,
    /// When its rest ends, 0 = it does not rest.
    rest_until_ns: u64,
    /// Its last section's end announced a long scalar phase.
    is_away: bool,
    /// Sections left that do not try to move, see crates/hint/src/thread.rs.
    resigned: u8,
    kernel: bool,
    /// It was placed before all queues.
    went_first: bool,
    slice_ns: u64,
    slice_end_ns: u64,
    /// Index of the queue whose clock `t.vtime_ns` is on.
    clock_index: u32,
    /// Its affinity holds one CPU only.
    pinned: bool,
    /// Where it last started, [`NO_CPU`] = nowhere yet.
    last_cpu: u16,
    /// The same, of the lowest class.
    scalar_cpu: u16,
    /// When it last started.
    began_ns: u64,
    /// Where it was when the lane came; [`NO_CPU`]: it has come to be since.
    home: u16,
    /// Since its hints were read: sections begun, CPU time. And the highest level that was seen.
    sections: u32,
    unread_ns: u64,
    level_seen: u8,
    /// What it did while the lane was away.
    kernel_use: KernelUse,
}

/// The scheduler.
#[derive(Clone, Debug)]
pub struct Lane {
    config: LaneConfig,
    memo: Memo,
    tasks: Vec<LaneTask>,
    /// `[llc * NR_QUEUES + queue]`, then the CPUs' own from `pinned_at` on; the last one is of
    /// tasks that were in none yet.
    queues: Vec<Shared>,
    pinned_at: usize,
    /// Tasks that wait in CPUs' own queues.
    nr_pinned: u32,
    /// By queue: bit per cache whose queue holds tasks.
    filled: [u64; NR_QUEUES as usize],
    inserted: u32,
    local: Vec<VecDeque<Tid>>,
    /// By CPU: its class, the balance of its queues, what it runs, and the queue of that.
    class: Vec<u8>,
    turns: Vec<Turns>,
    run: Vec<Run>,
    /// By CPU: looks for work, ticks, and which other cache it compares itself with next.
    looks: Vec<u32>,
    ticks: Vec<u32>,
    helped: Vec<u16>,
    running_queue: Vec<u8>,
    /// By CPU: when its task has stayed for long enough after a section; `u64::MAX` = it does not
    /// stay.
    stay_ends_ns: Vec<u64>,
    /// By CPU: when its task came, and the licence level that it found; of [`Detect::Score`].
    came: Vec<(u64, u8)>,
    /// `[class][queue]`: CPUs of the class that run a task of the queue.
    running: [[Mask; TRACKED]; NR_CLASSES as usize],
    class_masks: [Mask; NR_CLASSES as usize],
    /// The same within each cache and each node; empty where there is one of them only.
    llc_masks: Vec<[Mask; NR_CLASSES as usize]>,
    node_masks: Vec<[Mask; NR_CLASSES as usize]>,
    classes_present: u8,
    /// By cache.
    llc_classes: Vec<u8>,
    nr_scalar_cpus: usize,
    generation: u32,
    split: Split,
    sums: sizing::Sums,
    sizing: sizing::AutoSize,
    watch: standby::Watch,
    bound: bound::Bound,
    /// The lane is about to go, and tasks go where they came from.
    sends_home: bool,
    counters: SchedCounters,
    resized_ns: u64,
}

/// Why a task is placed, as the kernel's enqueue flags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Enqueue {
    Wakeup,
    Again,
}

impl Lane {
    /// The scheduler of a machine. Classes are set at the first call of `control`.
    pub fn new(sys: &Sys, config: LaneConfig) -> Self {
        let (nr, nr_llcs) = (sys.layout.nr_cpus, sys.layout.llcs.len());
        assert!(nr <= policy::CPUS_MAX && nr_llcs <= policy::SHARDS_MAX, "the policy's limits");
        let masks = || Mask::empty(nr);
        Lane {
            memo: Memo::new(&config.cfg),
            tasks: Vec::new(),
            queues: queues(nr_llcs, nr),
            pinned_at: nr_llcs * NR_QUEUES as usize,
            nr_pinned: 0,
            filled: [0; NR_QUEUES as usize],
            inserted: 0,
            local: vec![VecDeque::new(); nr],
            class: vec![0; nr],
            turns: vec![Turns::default(); nr],
            looks: vec![0; nr],
            ticks: vec![0; nr],
            helped: vec![0; nr],
            running_queue: vec![QUEUE_NONE as u8; nr],
            run: vec![Run::default(); nr],
            stay_ends_ns: vec![u64::MAX; nr],
            came: vec![(0, 0); nr],
            running: std::array::from_fn(|_| std::array::from_fn(|_| masks())),
            class_masks: std::array::from_fn(|_| masks()),
            llc_masks: Vec::new(),
            node_masks: Vec::new(),
            classes_present: 1,
            llc_classes: vec![1; nr_llcs],
            nr_scalar_cpus: nr,
            generation: 1,
            split: Split::default(),
            sums: sizing::Sums::default(),
            sizing: sizing::AutoSize::default(),
            watch: standby::Watch::new(sys, &config),
            bound: bound::Bound::new(sys),
            sends_home: false,
            config,
            counters: SchedCounters::default(),
            resized_ns: 0,
        }
    }

    /// Plant a bug.
    pub fn mutate(&mut self, mutation: Mutation) {
        self.memo.mutate(mutation);
    }

    /// Decide the classes of the wide CPUs by chance, anew each time they may change: nothing but
    /// speed may depend on them.
    pub fn leave_tiers_to_chance(&mut self, rng: Rng) {
        self.sizing.leave_to_chance(rng);
    }

    /// What the policy knows of a task, for tests.
    pub fn task(&self, task: Tid) -> &Task {
        &self.tasks[task as usize].t
    }

    /// Class of a CPU.
    pub fn class_of(&self, cpu: usize) -> u8 {
        self.class[cpu]
    }

    /// Settings.
    pub fn config(&self) -> &LaneConfig {
        &self.config
    }

    #[inline(always)]
    fn set_running_queue(&mut self, cpu: usize, queue: u8) {
        let old = self.running_queue[cpu];
        let class = self.class[cpu] as usize;
        // a CPU that goes off line is nobody's victim, whatever it still runs
        if old == queue || class == policy::CLASS_NONE as usize {
            return;
        }
        if (old as usize) < TRACKED {
            self.running[class][old as usize].clear(cpu);
        }
        if (queue as usize) < TRACKED {
            self.running[class][queue as usize].set(cpu);
        }
        self.running_queue[cpu] = queue;
    }

    #[inline]
    fn fits(&self, task: Tid, class: u8) -> bool {
        self.memo.of(&self.tasks[task as usize].t).fits >> class & 1 == 1
    }

    #[inline]
    fn is_guest(&self, task: Tid, class: u8) -> bool {
        self.memo.of(&self.tasks[task as usize].t).guest >> class & 1 == 1
    }

    fn tell_sink(&self, sys: &Sys, task: Tid, sink: &mut impl Sink) {
        let t = &self.tasks[task as usize].t;
        let what = Happened::Type { task, task_type: t.task_type, level: t.level };
        sink.happened(sys.now_ns, &what);
    }
}

/// The level that every program's code may ask for: that of the C library (light 512-bit code).
const C_LIBRARY: u8 = 1;

impl Scheduler for Lane {
    fn new_task(&mut self, sys: &mut Sys, new: &NewTask) {
        assert_eq!(new.task as usize, self.tasks.len(), "tasks are numbered in order");
        let (parent_type, parent_level) = new
            .parent
            .map_or((policy::TYPE_DEFAULT, 0), |parent| self.tasks[parent as usize].t.bequest());
        let mut t = Task::new(&self.config.cfg, parent_type, parent_level, sys.now_ns);
        if new.kernel {
            (t.task_type, t.level, t.loose_level) = (policy::TYPE_DEFAULT as u8, 0, 0);
        }
        if new.scalar {
            t.classify_scalar();
        }
        t.weight = new.weight * policy::WEIGHT_UNIT;
        t.score.code = Score::code_of(new.code_level.max(C_LIBRARY).into());
        self.tasks.push(LaneTask {
            t,
            counted_ns: 0,
            caps_generation: 0,
            hint_seq: 0,
            hint_want: 0,
            hint_read: 0,
            rest_until_ns: 0,
            is_away: false,
            resigned: 0,
            kernel: new.kernel,
            went_first: false,
            slice_ns: 0,
            slice_end_ns: 0,
            clock_index: self.queues.len() as u32 - 1,
            pinned: false,
            last_cpu: NO_CPU,
            scalar_cpu: NO_CPU,
            began_ns: 0,
            home: NO_CPU,
            sections: 0,
            unread_ns: 0,
            level_seen: 0,
            kernel_use: KernelUse::default(),
        });
    }

    #[inline]
    fn wake(&mut self, sys: &mut Sys, task: Tid, _: &mut impl Sink) {
        self.counters.decisions += 1;
        self.place(sys, task, Enqueue::Wakeup);
    }

    #[inline]
    fn pick(&mut self, sys: &mut Sys, cpu: usize, prev: Option<Ran>, sink: &mut impl Sink) -> Pick {
        self.counters.decisions += 1;
        if let Some(task) = self.local[cpu].pop_front() {
            return Pick::Run(task);
        }
        self.serve(sys, cpu, prev.map(|prev| prev.task), sink)
    }

    #[inline]
    fn stops(&mut self, sys: &mut Sys, on: OnCpu, _runnable: bool, sink: &mut impl Sink) {
        let OnCpu { cpu, task } = on;
        self.account_run(sys, on);
        let traps = matches!(self.config.detect, Detect::Trap(_));
        if self.tasks[task as usize].t.last.is_after() {
            self.read_hint(sys, on, sink); // its section may be over
        }
        if traps || self.config.cfg.remigrate & SWITCH_BITS != 0 {
            self.tell(sys, on, Event::SwitchOut, 0, sink);
        }
        self.read_hint(sys, on, sink);
        if self.config.detect == Detect::Score {
            self.score(sys, on, sink);
        }
        self.stay_ends_ns[cpu] = u64::MAX;
        self.account_stop(task);
        self.watch_stop(sys, on);
        self.set_running_queue(cpu, QUEUE_NONE as u8);
    }

    fn put(&mut self, sys: &mut Sys, OnCpu { cpu, task }: OnCpu, idles: bool) {
        self.counters.decisions += 1;
        if idles && self.may_stay(sys, task, cpu) {
            self.insert_local(cpu, task);
        } else {
            self.place(sys, task, Enqueue::Again);
        }
    }

    #[inline]
    fn starts(&mut self, sys: &mut Sys, on: OnCpu, _: &mut impl Sink) -> bool {
        let OnCpu { cpu, task } = on;
        self.account_start(sys, on);
        self.watch_start(sys, on);
        if self.config.detect == Detect::Score {
            self.came[cpu] = (sys.now_ns, detect::license_level(sys, cpu));
        }
        self.refresh_caps(sys, task);
        let kind = self.memo.of(&self.tasks[task as usize].t);
        let (queue, fits) = (kind.queue, kind.fits >> self.class[cpu] & 1 == 1);
        self.set_running_queue(cpu, queue);
        let lane = &mut self.tasks[task as usize];
        lane.slice_end_ns = sys.now_ns + lane.slice_ns;
        self.run[cpu].begins(&lane.t, sys.now_ns);
        if fits && lane.t.task_type == policy::TYPE_WIDE as u8 {
            lane.t.flags |= policy::FLAG_RAN_FIT;
        }
        self.time_stay(sys, on);
        !fits
    }

    #[inline]
    fn tick(&mut self, sys: &mut Sys, on: OnCpu, sink: &mut impl Sink) -> bool {
        let OnCpu { cpu, task } = on;
        self.counters.decisions += 1;
        self.ticks[cpu] = self.ticks[cpu].wrapping_add(1);
        self.account_run(sys, on);
        self.read_hint(sys, on, sink);
        let t = &self.tasks[task as usize].t;
        if self.memo.ticks[t.task_type as usize & 3] || t.last.is_away() {
            self.tell(sys, on, Event::Tick, 0, sink);
        }
        self.watch_level(sys, on, self.tasks[task as usize].t.level);
        self.refresh_caps(sys, task);
        let lane = &self.tasks[task as usize];
        let expired = sys.now_ns >= lane.slice_end_ns;
        let kind = *self.memo.of(&lane.t);
        self.set_running_queue(cpu, kind.queue);
        let class = self.class[cpu];
        let (fits, is_guest) = (kind.fits >> class & 1 == 1, kind.guest >> class & 1 == 1);
        expired
            || !fits
            || (is_guest && self.guest_should_go(sys, on))
            || self.better_core_idle(sys, task, cpu)
    }

    fn alarm_ns(&self, cpu: usize) -> u64 {
        self.stay_ends_ns[cpu]
    }

    fn alarm(&mut self, sys: &mut Sys, on: OnCpu, sink: &mut impl Sink) -> bool {
        self.counters.decisions += 1;
        self.stay_is_up(sys, on, sink)
    }

    fn act(&mut self, sys: &mut Sys, on: OnCpu, act: Act, sink: &mut impl Sink) -> Verdict {
        self.on_act(sys, on, act, sink)
    }

    fn idles(&mut self, _: &mut Sys, cpu: usize) -> bool {
        !self.local[cpu].is_empty()
            || !self.queues[self.pinned_at + cpu].queue.is_empty()
            || self.has_work_in_steps(cpu, self.nr_steps(cpu))
    }

    fn ends(&mut self, _: Tid) {}

    fn affinity_changed(&mut self, sys: &mut Sys, task: Tid) {
        self.tasks[task as usize].caps_generation = 0;
        for cpu in 0..self.local.len() {
            if let Some(i) = self.local[cpu].iter().position(|&other| other == task)
                && !sys.allows(task, cpu)
            {
                self.local[cpu].remove(i);
                self.place(sys, task, Enqueue::Again);
            }
        }
        self.requeue_all(sys);
    }

    fn hotplug(&mut self, sys: &mut Sys, sink: &mut impl Sink) {
        self.apply_split(sys, self.split, sink);
        for cpu in 0..sys.layout.nr_cpus {
            if !sys.online.has(cpu) {
                for task in std::mem::take(&mut self.local[cpu]) {
                    self.place(sys, task, Enqueue::Again);
                }
            }
        }
    }

    fn control(&mut self, sys: &mut Sys, sink: &mut impl Sink) -> u64 {
        self.on_control(sys, sink)
    }

    fn watches_from(&self) -> InsnClass {
        match self.config.detect {
            Detect::Trap(from) => from,
            // above every class: never
            Detect::Hint | Detect::Mark | Detect::Score => InsnClass::Amx,
        }
    }

    fn counters(&self) -> SchedCounters {
        self.counters
    }

    fn classes(&self) -> Option<Vec<u8>> {
        Some(self.class.clone())
    }
}

/// Bits of [`policy::Cfg::remigrate`] without which a switch changes nothing.
const SWITCH_BITS: u32 = Remigrate::CONTEXT_SWITCH | Remigrate::GAP | Remigrate::LAST_SYSCALL;
