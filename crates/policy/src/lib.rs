// SPDX-License-Identifier: MIT OR Apache-2.0
//! The policy, as it runs in the kernel, for everything that is not the kernel.
//!
//! `policy/` is C that is compiled twice: to BPF, and natively by this crate. Nothing is decided
//! here; each function calls its namesake in C, whose header has the explanation. Times are
//! nanoseconds of whatever clock the caller uses throughout.

mod ffi;
mod mix;
mod score;
mod sizing;

pub use mix::Mix;
pub use score::Score;
pub use sizing::{Sizing, SizingInput, Split, Tier, Tiers, TiersInput, WIDE_AUTO};

/// Highest licence level.
pub const LEVEL_MAX: u32 = 3;
/// CPU classes: 0 is scalar, the others the highest level that may run there.
pub const NR_CLASSES: u32 = LEVEL_MAX + 1;
/// CPUs that the tables of the kernel build hold.
pub const CPUS_MAX: usize = 1024;
/// LLCs that the tables of the kernel build hold.
pub const LLCS_MAX: usize = 64;
/// The whole capacity of a CPU, as targets count.
pub const TARGET_ONE: u32 = 1024;
/// Ticks at which the default target is told again.
pub const TARGET_REPEATS: u32 = 16;
/// Weight of a task of nice 0.
pub const WEIGHT_NICE0: u32 = 100;

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
/// Number of queues per LLC.
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
}

impl Event {
    /// All events, in the order of the C enum.
    pub const ALL: [Event; 10] = [
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
}

impl Remigrate {
    /// As the bits that C knows.
    pub fn bits(self) -> u32 {
        u32::from(self.syscall_entry)
            | u32::from(self.syscall_return) << 1
            | u32::from(self.context_switch) << 2
            | u32::from(self.timeout) << 3
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
    /// Type of tasks nobody classified.
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
}
const _: () = assert!(size_of::<Task>() == 64);

/// `tl_turns`: a CPU's balance between the two queues of a step. See policy/queues.h.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
#[allow(missing_docs)]
pub struct Turns {
    pub lead_ns: i64,
    pub queue: u32,
    pub nr_tasks: u32,
    pub first_ns: i64,
}

/// `tl_target`: what a CPU's frequency governor has been told. See policy/target.h.
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

    /// Say that a task nobody classified is scalar; true if its type changed.
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

    /// Its time slice.
    pub fn slice_ns(&self, cfg: &Cfg) -> u64 {
        // SAFETY: as in `need`.
        unsafe { ffi::tlp_task_slice_ns(self, cfg) }
    }

    /// Charge CPU time.
    #[inline]
    pub fn charge(&mut self, used_ns: u64) {
        // SAFETY: as in `new`.
        unsafe { ffi::tlp_vtime_charge(self, used_ns) }
    }

    /// Enter the queue with this id.
    #[inline]
    pub fn place(&mut self, id: u32, old_clock_ns: u64, new_clock_ns: u64, slice_ns: u64) {
        // SAFETY: as in `new`.
        unsafe { ffi::tlp_vtime_place(self, id, old_clock_ns, new_clock_ns, slice_ns) }
    }

    /// How far the clock of its queue goes when it has used CPU time, where `nr_tasks` of the
    /// queue's tasks wait or run.
    #[inline]
    pub fn clock_step_ns(&self, used_ns: u64, nr_tasks: u32) -> u64 {
        // SAFETY: as in `need`.
        unsafe { ffi::tlp_vtime_step(self, used_ns, nr_tasks) }
    }

    /// Class to search for an idle CPU as the `i`-th; [`NR_CLASSES`] when there is none left.
    pub fn idle_class(&self, i: u32) -> u32 {
        // SAFETY: as in `need`.
        unsafe { ffi::tlp_idle_class(self, i) }
    }
}

impl Turns {
    /// Whether it is the turn of the step's own queue.
    #[inline]
    pub fn own_first(&self) -> bool {
        // SAFETY: plain data on both sides, only read.
        unsafe { ffi::tlp_turns_own_first(self) != 0 }
    }

    /// The CPU took a task from the queue with this id, where `nr_tasks` waited, while the other
    /// queue had tasks too.
    #[inline]
    pub fn begin(&mut self, id: u32, nr_tasks: u32) {
        // SAFETY: plain data on both sides.
        unsafe { ffi::tlp_turns_begin(self, id, nr_tasks) }
    }

    /// What runs now did not come from a queue while the other had tasks.
    #[inline]
    pub fn end(&mut self) {
        // SAFETY: as in `begin`.
        unsafe { ffi::tlp_turns_end(self) }
    }

    /// The CPU's task has used CPU time.
    #[inline]
    pub fn charge(&mut self, task: &Task, used_ns: u64, slice_ns: u64) {
        // SAFETY: as in `begin`; the task is only read.
        unsafe { ffi::tlp_turns_charge(self, task, used_ns, slice_ns) }
    }

    /// Whether a task that wakes may go before all queues of this CPU.
    #[inline]
    pub fn may_go_first(&self, slice_ns: u64) -> bool {
        // SAFETY: as in `own_first`.
        unsafe { ffi::tlp_turns_may_go_first(self, slice_ns) != 0 }
    }

    /// The CPU's task has used CPU time, one of `nr_tasks` of its queue that wait or run: all that
    /// this moves. Returns how far the clock of its queue goes, ns.
    #[inline]
    pub fn charge_all(
        &mut self,
        task: &mut Task,
        cfg: &Cfg,
        used_ns: u64,
        nr_tasks: u32,
        went_first: bool,
    ) -> u64 {
        // SAFETY: as in `begin`.
        unsafe { ffi::tlp_charge(task, self, cfg, used_ns, nr_tasks, u32::from(went_first)) }
    }

    /// The CPU's task has used CPU time; `went_first`: it went before all queues.
    #[inline]
    pub fn charge_first(&mut self, went_first: bool, used_ns: u64, slice_ns: u64) {
        // SAFETY: as in `begin`.
        unsafe { ffi::tlp_turns_charge_first(self, u32::from(went_first), used_ns, slice_ns) }
    }
}

impl Target {
    /// What to tell the governor, if anything, for a task that asks for `asked_q10` (0: for nothing).
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
    /// Id of a queue of an LLC.
    queue_id = tlp_queue_id(llc: u32, queue: u32) -> u32;
    /// Class of the CPUs that are there for a queue; [`NR_CLASSES`] if all are.
    queue_class = tlp_queue_class(queue: u32) -> u32;
    /// Lowest class in a set, bit per class; 0 if there is none.
    lowest_class = tlp_lowest_class(caps: u32) -> u32;
    /// Steps in which a CPU of the class looks for work.
    nr_steps = tlp_nr_steps(class: u32) -> u32;
    /// The step's queue beside the default queue.
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
