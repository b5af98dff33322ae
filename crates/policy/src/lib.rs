// SPDX-License-Identifier: MIT OR Apache-2.0
//! The policy, as it runs in the kernel, for everything that is not the kernel.
//!
//! `policy/` is C that is compiled twice: to BPF, and natively by this crate. Nothing is decided
//! here; each function calls its namesake in C, whose header has the explanation. Times are
//! nanoseconds of whatever clock the caller uses throughout.

mod clock;
mod ffi;
mod gap;
pub mod groups;
mod last;
mod mark;
mod mix;
mod score;
mod sizing;
mod standby;
mod stay;
mod turns;

pub use clock::Clock;
pub use gap::Gap;
pub use groups::Budget;
pub use last::Last;
pub use mark::{CALLS_MAX, Calls, MARK_ARGS, MarkRule};
pub use mix::Mix;
pub use score::Score;
pub use sizing::{Sizing, SizingInput, Split, Tier, Tiers, TiersInput, WIDE_AUTO};
pub use standby::{
    Exposure, LEVEL_HOLD_NS, Losses, NR_PARTIES, PARTY_MIXED, PARTY_PLAIN, Standby, StandbyInput,
    StandbyState, StandbyWhy, party,
};
pub use stay::Stay;
pub use turns::{SIDE_DEFAULT, SIDE_NONE, SIDE_OWN, SIDE_PINNED, Sides, Turns};

/// How long wide periods without an open section last at most, unless it is set; ns
/// (`TL_WIDE_TIMEOUT_NS`).
pub const WIDE_TIMEOUT_NS: u64 = 100_000_000;
/// Highest licence level.
pub const LEVEL_MAX: u32 = 3;
/// CPU classes: 0 is scalar, the others the highest level that may run there.
pub const NR_CLASSES: u32 = LEVEL_MAX + 1;
/// Looks for an idle CPU, at most: each class in the cache, the node and the machine.
pub const IDLE_LOOKS: usize = 3 * NR_CLASSES as usize;
/// CPUs that the tables of the kernel build hold.
pub const CPUS_MAX: usize = 1024;
/// Shards that the tables of the kernel build hold.
pub const SHARDS_MAX: usize = 64;
/// CPUs of a shard, at most.
pub const SHARD_CPUS: usize = 16;
/// [`Task::look`]: scopes of a search, from the last-level cache to the machine.
pub const NR_SCOPES: u32 = 3;
/// The whole capacity of a CPU, as targets count.
pub const TARGET_ONE: u32 = 1024;
/// Ticks at which the default target is sent again.
pub const TARGET_REPEATS: u32 = 16;
/// Parts of a `cpu.weight` that effective weights are counted in.
pub const WEIGHT_UNIT: u32 = 1024;
/// Effective weight of a task of nice 0 that shares its group with no one else.
pub const WEIGHT_NICE0: u32 = 100 * WEIGHT_UNIT;

/// `tl_type`: never classified.
pub const TYPE_DEFAULT: u32 = 0;
/// `tl_type`: known to be scalar.
pub const TYPE_SCALAR: u32 = 1;
/// `tl_type`: in a wide period.
pub const TYPE_WIDE: u32 = 2;

/// Kinds of time, see [`kind`].
pub const NR_KINDS: usize = 8;

/// What a task's time is counted by: its type, and the level of a wide one.
#[inline]
pub fn kind(task_type: u8, level: u8) -> usize {
    usize::from(task_type + level) % NR_KINDS
}

/// Queue of default tasks.
pub const QUEUE_DEFAULT: u32 = 0;
/// Queue of scalar tasks.
pub const QUEUE_SCALAR: u32 = 1;
/// Queue of wide tasks for class 1; those of higher classes follow.
pub const QUEUE_WIDE: u32 = 2;
/// Number of queues per shard.
pub const NR_QUEUES: u32 = QUEUE_WIDE + LEVEL_MAX;
/// "No queue", e.g. of an idle CPU.
pub const QUEUE_NONE: u32 = 255;

/// The class of a CPU that is offline.
pub const CLASS_NONE: u8 = 255;

/// [`Task::flags`]: ran on a fit CPU in this wide period.
pub const FLAG_RAN_FIT: u8 = 1;
/// [`Task::flags`]: was wide when it entered its system call.
pub const FLAG_SYSCALL_WIDE: u8 = 2;
/// [`Task::flags`]: has given hints, so its score does not count.
pub const FLAG_HINTS: u8 = 4;

/// `tl_event`: what may change a task's type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum Event {
    /// A hint: a wide section begins.
    HintBegin = 0,
    /// A hint: it ends.
    HintEnd,
    /// A marked function is entered.
    MarkEnter,
    /// It returns.
    MarkReturn,
    /// A wide instruction trapped.
    Trap,
    /// System call entry.
    SyscallEntry,
    /// System call return.
    SyscallReturn,
    /// The task stops running.
    SwitchOut,
    /// Time has passed.
    Tick,
    /// Its power score speaks for this level.
    Score,
    /// A hint: a section ends, and what follows is known to be long.
    HintAway,
}

impl Event {
    /// All events, in the order of the C enum.
    pub const ALL: [Event; 11] = [
        Event::HintBegin,
        Event::HintEnd,
        Event::MarkEnter,
        Event::MarkReturn,
        Event::Trap,
        Event::SyscallEntry,
        Event::SyscallReturn,
        Event::SwitchOut,
        Event::Tick,
        Event::Score,
        Event::HintAway,
    ];
}

/// `tl_remigrate` as named switches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Remigrate {
    /// End at the next system call's entry.
    pub syscall_entry: bool,
    /// End at the next system call's return.
    pub syscall_return: bool,
    /// End at the first context switch after having run on a fit CPU.
    pub context_switch: bool,
    /// End a fixed time after the last event.
    pub timeout: bool,
    /// Do not end at once at an explicit end, where the task has learned that (policy/gap.h).
    pub gap: bool,
    /// End at the entry of a section's last system call, which the task learns (policy/last.h).
    pub last_syscall: bool,
}

impl Remigrate {
    /// See [`Remigrate::syscall_entry`]; these are the bits of `enum tl_remigrate`.
    pub const SYSCALL_ENTRY: u32 = 1 << 0;
    /// See [`Remigrate::syscall_return`].
    pub const SYSCALL_RETURN: u32 = 1 << 1;
    /// See [`Remigrate::context_switch`].
    pub const CONTEXT_SWITCH: u32 = 1 << 2;
    const TIMEOUT: u32 = 1 << 3;
    /// See [`Remigrate::gap`].
    pub const GAP: u32 = 1 << 4;
    /// See [`Remigrate::last_syscall`].
    pub const LAST_SYSCALL: u32 = 1 << 5;

    /// As the bits that C knows.
    pub fn bits(self) -> u32 {
        let switches = [
            (self.syscall_entry, Self::SYSCALL_ENTRY),
            (self.syscall_return, Self::SYSCALL_RETURN),
            (self.context_switch, Self::CONTEXT_SWITCH),
            (self.timeout, Self::TIMEOUT),
            (self.gap, Self::GAP),
            (self.last_syscall, Self::LAST_SYSCALL),
        ];
        switches.iter().filter(|(is_on, _)| *is_on).map(|(_, bit)| bit).sum()
    }
}

/// `tl_cfg`: the settings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Cfg {
    /// Slice of scalar and default tasks.
    pub slice_ns: u64,
    /// Slice of wide tasks.
    pub slice_wide_ns: u64,
    /// Fallback timeout of wide periods without an open section; 0 = none.
    pub wide_timeout_ns: u64,
    /// Timeout of [`Remigrate::timeout`].
    pub remigrate_timeout_ns: u64,
    /// Scalar phases announced to be shorter are spent where the task is; 0 = none is.
    pub rest_below_ns: u64,
    /// [`Remigrate::bits`].
    pub remigrate: u32,
    /// Type of tasks no one classified.
    pub unclassified: u32,
}

impl Cfg {
    /// Whether a task stays for a scalar phase of that length. See policy/rest.h.
    #[inline]
    pub fn rest_stays(&self, phase_ns: u64) -> bool {
        // SAFETY: reads the settings, and keeps no pointer.
        unsafe { ffi::tlp_rest_stays(self, phase_ns) != 0 }
    }

    /// Whether a rest that was to end at `until_ns` has ended.
    #[inline]
    pub fn rest_is_over(&self, until_ns: u64, now_ns: u64) -> bool {
        // SAFETY: as above.
        unsafe { ffi::tlp_rest_is_over(self, until_ns, now_ns) != 0 }
    }
}

/// `tl_task`: what the policy knows of a task. See policy/task.h.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
#[allow(missing_docs)] // each field is explained where it is defined
pub struct Task {
    pub vtime_ns: u64,
    pub evidence_ns: u64,
    pub enqueued_ns: u64,
    pub started_ns: u64,
    pub weight: u32,
    pub clock: u32,
    pub task_type: u8,
    pub level: u8,
    pub hint_level: u8,
    pub mark_level: u8,
    pub loose_level: u8,
    pub mark_depth: u8,
    pub caps: u8,
    pub flags: u8,
    pub score: Score,
    pub mix: Mix,
    pub stay: Stay,
    pub gap: Gap,
    pub last: Last,
}
const _: () = assert!(size_of::<Task>() == 104);

/// `tl_target`: what was sent to a CPU's frequency governor. See policy/target.h.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
#[allow(missing_docs)]
pub struct Target {
    pub told_q10: u32,
    pub repeats: u32,
}

impl Task {
    /// A task that has just come to be, from a parent of this type and level.
    pub fn new(cfg: &Cfg, parent_type: u32, parent_level: u32, now_ns: u64) -> Self {
        let mut task = Task::default();
        // SAFETY: plain data on both sides, layout asserted.
        unsafe {
            ffi::tlp_task_init(&mut task, cfg, parent_type as u8, parent_level as u8, now_ns)
        };
        task
    }

    /// Say that a task no one classified is scalar; true if its type changed.
    pub fn classify_scalar(&mut self) -> bool {
        // SAFETY: as in `new`.
        unsafe { ffi::tlp_task_classify_scalar(self) != 0 }
    }

    /// An event; true if type or level changed.
    #[inline]
    pub fn event(&mut self, cfg: &Cfg, event: Event, level: u32, now_ns: u64) -> bool {
        // SAFETY: as in `new`.
        unsafe { ffi::tlp_task_event(self, cfg, event as u32, level, now_ns) != 0 }
    }

    /// It ran for so long, wide at this level, or at 0 not.
    #[inline]
    pub fn ran(&mut self, used_ns: u64, level: u8) {
        // SAFETY: as in `new`.
        unsafe { ffi::tlp_task_ran(self, used_ns, level.into()) }
    }

    /// How long it counts as wide yet without an open section, if it goes on running; 0 = no
    /// longer, or it has not begun.
    #[inline]
    pub fn stays_ns(&self, cfg: &Cfg) -> u64 {
        if !self.gap.stays() && self.loose_level == 0 {
            return 0; // most tasks: saves a call
        }
        // SAFETY: as in `need`.
        unsafe { ffi::tlp_task_stays_ns(self, cfg) }
    }

    /// Type and level that a child inherits.
    pub fn bequest(&self) -> (u32, u32) {
        // SAFETY: as in `new`; the task is only read.
        unsafe {
            let level = ffi::tlp_task_bequest(self);
            (ffi::tlp_task_bequest_type(self, level), level)
        }
    }

    /// Whether a system call says anything about it, of whom most say nothing. See policy/task.h.
    #[inline]
    pub fn syscall_matters(&self) -> bool {
        // SAFETY: as in `need`.
        unsafe { ffi::tlp_task_syscall_matters(self) != 0 }
    }

    /// Class of CPU that it needs.
    pub fn need(&self) -> u32 {
        // SAFETY: as in `new`; the task is only read.
        unsafe { ffi::tlp_task_need(self) }
    }

    /// Queue that it waits in.
    pub fn queue(&self) -> u32 {
        // SAFETY: as in `need`.
        unsafe { ffi::tlp_task_queue(self) }
    }

    /// Whether a CPU of the class may run it at all.
    pub fn fits(&self, class: u32) -> bool {
        // SAFETY: as in `need`.
        unsafe { ffi::tlp_task_fits(self, class) != 0 }
    }

    /// Whether it only fills idle time of a CPU of the class.
    pub fn is_guest(&self, class: u32) -> bool {
        // SAFETY: as in `need`.
        unsafe { ffi::tlp_task_is_guest(self, class) != 0 }
    }

    /// Whether it gives up its CPU at once after a change of its type; `wanted`: something waits
    /// that goes before it, or a scalar CPU that it may use is idle. See policy/locality.h.
    pub fn must_leave(&self, class: u32, wanted: bool) -> bool {
        // SAFETY: as in `need`.
        unsafe { ffi::tlp_must_leave(self, class, wanted.into()) != 0 }
    }

    /// Its time slice.
    pub fn slice_ns(&self, cfg: &Cfg) -> u64 {
        // SAFETY: as in `need`.
        unsafe { ffi::tlp_task_slice_ns(self, cfg) }
    }

    /// Charge CPU time; returns what it is on the task's clock, ns.
    #[inline]
    pub fn charge(&mut self, used_ns: u64) -> u64 {
        // SAFETY: as in `new`.
        unsafe { ffi::tlp_vtime_charge(self, used_ns) }
    }

    /// Enter the queue with this id and clock, where a lag costs at most `most_wait_ns`, from the
    /// clock whose value is `old_vtime_ns`.
    #[inline]
    pub fn place(
        &mut self,
        id: u32,
        old_vtime_ns: u64,
        clock: &Clock,
        slice_ns: u64,
        most_wait_ns: u64,
    ) {
        // SAFETY: as in `new`; the clock is only read.
        unsafe { ffi::tlp_vtime_place(self, id, old_vtime_ns, clock, slice_ns, most_wait_ns) }
    }

    /// Whether it may go on where it is when there is nothing else for its CPU.
    #[inline]
    pub fn may_stay(&self, class: u32, better_idle: bool, better_core: bool) -> bool {
        // SAFETY: as in `need`.
        unsafe {
            ffi::tlp_may_stay(self, class, u32::from(better_idle), u32::from(better_core)) != 0
        }
    }

    /// Class and scope of the `i`-th look for an idle CPU; `None` when there is none left.
    pub fn look(&self, i: u32) -> Option<(u32, u32)> {
        // SAFETY: as in `need`.
        let (class, scope) =
            unsafe { (ffi::tlp_look_class(self, i), ffi::tlp_look_scope(self, i)) };
        (class < NR_CLASSES).then_some((class, scope))
    }

    /// Class to search for an idle CPU as the `i`-th; [`NR_CLASSES`] when there is none left.
    pub fn idle_class(&self, i: u32) -> u32 {
        // SAFETY: as in `need`.
        unsafe { ffi::tlp_idle_class(self, i) }
    }
}

impl Target {
    /// What to send to the governor, if anything, for a task that asks for `asked_q10` (0: for
    /// nothing).
    pub fn tell(&mut self, asked_q10: u32, is_tick: bool) -> Option<u32> {
        // SAFETY: plain data on both sides.
        let told_q10 = unsafe { ffi::tlp_target_tell(self, asked_q10, u32::from(is_tick)) };
        (told_q10 != 0).then_some(told_q10)
    }
}

/// Defines safe functions over C functions of plain integers.
macro_rules! plain {
    ($($(#[$doc:meta])* $name:ident = $c:ident($($arg:ident: $ty:ty),*) -> $ret:ty;)*) => {
        $($(#[$doc])*
        pub fn $name($($arg: $ty),*) -> $ret {
            // SAFETY: integers in, an integer out, no memory.
            unsafe { ffi::$c($($arg),*) }
        })*
    };
}

plain! {
    /// Id of a queue of a shard.
    queue_id = tlp_queue_id(shard: u32, queue: u32) -> u32;
    /// Id of the queue of the tasks that may run on this CPU only.
    pinned_id = tlp_pinned_id(cpu: u32) -> u32;
    /// The slice of a task whose queue has so many tasks and CPUs.
    slice_in_round_ns = tlp_slice_in_round_ns(slice_ns: u64, nr_tasks: u32, nr_cpus: u32) -> u64;
    /// Longest wait that a lag may cost in that queue.
    most_wait_ns = tlp_most_wait_ns(slice_ns: u64, nr_tasks: u32, nr_cpus: u32) -> u64;
    /// The class of a CPU in whose shard a task waits that does not wait where it is.
    waits_at_class = tlp_waits_at_class(queue_class: u32, caps: u32) -> u32;
    /// Class of the CPUs that are there for a queue; [`NR_CLASSES`] if all are.
    queue_class = tlp_queue_class(queue: u32) -> u32;
    /// Steps in which a CPU of the class looks for work.
    nr_steps = tlp_nr_steps(class: u32) -> u32;
    /// The step's queue other than the default queue.
    step_queue = tlp_step_queue(class: u32, step: u32) -> u32;
    /// Step at which the class serves the queue; `nr_steps(class)` or more if never.
    queue_step = tlp_queue_step(class: u32, queue: u32) -> u32;
    /// Rank of a CPU as victim; 0 = none.
    victim_rank = tlp_victim_rank(need: u32, class: u32, running_queue: u32, arrives: u32) -> u32;
    /// The best rank there is.
    victim_best = tlp_victim_best(need: u32) -> u32;
    /// Flags of a CPU on the hint page.
    cpu_flags = tlp_cpu_flags(class: u32, nr_scalar_cpus: u32) -> u8;
}

/// Whether the default queue belongs to the step.
pub fn step_has_default(step: u32) -> bool {
    // SAFETY: integers in, an integer out.
    unsafe { ffi::tlp_step_has_default(step) != 0 }
}

/// Whether a task waits in the shard where it is; see policy/locality.h.
#[inline]
pub fn waits_here(
    queue_class: u32,
    caps: u32,
    here_class: u32,
    allowed: bool,
    everywhere: bool,
    shard_classes: u32,
) -> bool {
    let (allowed, everywhere) = (u32::from(allowed), u32::from(everywhere));
    // SAFETY: integers in, an integer out.
    let here = unsafe {
        ffi::tlp_waits_here(queue_class, caps, here_class, allowed, everywhere, shard_classes)
    };
    here != 0
}

/// Whether a sibling of a shared core is the one whose task goes to an idle core.
#[inline]
pub fn leaves_core(is_first: bool, nr_ticks: u32) -> bool {
    // SAFETY: integers in, an integer out.
    unsafe { ffi::tlp_leaves_core(u32::from(is_first), nr_ticks) != 0 }
}

/// Whether a CPU's look for work, counted from 0, compares its shard with another one.
#[inline]
pub fn compares_now(nr_looks: u32) -> bool {
    // SAFETY: an integer in, an integer out.
    unsafe { ffi::tlp_compares_now(nr_looks) != 0 }
}

/// `tl_backlog`: what waits in a shard for a CPU that compares.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Backlog {
    /// Of the head.
    pub key_ns: u64,
    /// 0 = nothing waits, and there is no head.
    pub nr_waiting: u32,
    /// CPUs of the shard that serve it.
    pub nr_cpus: u32,
}
const _: () = assert!(size_of::<Backlog>() == 16);

/// The key that a running task counts with where its CPU compares its shard with another one.
#[inline]
pub fn running_key(key_ns: u64, now_ns: u64) -> u64 {
    // SAFETY: integers in, an integer out.
    unsafe { ffi::tlp_running_key(key_ns, now_ns) }
}

/// Whether a CPU takes from another shard although its own has work.
#[inline]
pub fn helps(own: &Backlog, other: &Backlog, slice_ns: u64) -> bool {
    // SAFETY: plain data on both sides.
    unsafe { ffi::tlp_helps(own, other, slice_ns) != 0 }
}
