// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the policy knows of a task, and the events that change it: policy/task.h.

use crate::cfg::Cfg;
use crate::gap::Gap;
use crate::last::Last;
use crate::mix::Mix;
use crate::score::Score;
use crate::stay::Stay;

unsafe extern "C" {
    fn tlp_task_init(t: *mut Task, cfg: *const Cfg, parent_type: u8, parent_level: u8, now_ns: u64);
    fn tlp_task_classify_scalar(t: *mut Task) -> u32;
    fn tlp_task_set_rule(t: *mut Task, rule: u32) -> u32;
    fn tlp_task_gives_hints(t: *const Task) -> u32;
    fn tlp_rule_choose(by_group: u32, by_name: u32) -> u32;
    fn tlp_task_renew(t: *mut Task);
    fn tlp_task_event(t: *mut Task, cfg: *const Cfg, event: u32, level: u32, now_ns: u64) -> u32;
    fn tlp_task_ran(t: *mut Task, used_ns: u64, level: u32);
    fn tlp_task_stays_ns(t: *const Task, cfg: *const Cfg) -> u64;
    fn tlp_task_bequest(t: *const Task) -> u32;
    fn tlp_task_bequest_type(t: *const Task, level: u32) -> u32;
    fn tlp_task_syscall_matters(t: *const Task) -> u32;
    fn tlp_task_need(t: *const Task) -> u32;
    fn tlp_task_queue(t: *const Task) -> u32;
    fn tlp_task_fits(t: *const Task, class: u32) -> u32;
    fn tlp_task_is_guest(t: *const Task, class: u32) -> u32;
    fn tlp_task_slice_ns(t: *const Task, cfg: *const Cfg) -> u64;
}

/// `tl_type`: never classified.
pub const TYPE_DEFAULT: u32 = 0;
/// `tl_type`: known to be scalar.
pub const TYPE_SCALAR: u32 = 1;
/// `tl_type`: in a wide period.
pub const TYPE_WIDE: u32 = 2;

/// Parts of a `cpu.weight` that effective weights are counted in.
pub const WEIGHT_UNIT: u32 = 1024;
/// Effective weight of a task of nice 0 that shares its group with no one else.
pub const WEIGHT_NICE0: u32 = 100 * WEIGHT_UNIT;

/// [`Task::flags`]: ran on a fit CPU in this wide period.
pub const FLAG_RAN_FIT: u8 = 1;
/// [`Task::flags`]: was wide when it entered its system call.
pub const FLAG_SYSCALL_WIDE: u8 = 2;
/// [`Task::flags`]: has given hints, so its score does not count.
pub const FLAG_HINTS: u8 = 4;

/// [`Task::flags`]: has a rule, and would be default without.
pub const FLAG_UNKNOWN: u8 = 8;

/// [`Task::flags`]: is or was wide since it came to its CPU.
pub const FLAG_WAS_WIDE: u8 = 16;

/// `tl_rule`: what the user has decided about a task. See policy/rule.h.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Rule {
    /// Nothing.
    #[default]
    None,
    /// It is in a wide section of this level all the time, 1..=3.
    Wide(u8),
    /// It is scalar, whatever it does.
    Scalar,
    /// It is default, whatever it does.
    Alone,
}

impl Rule {
    /// As the number that C knows.
    pub fn number(self) -> u32 {
        match self {
            Rule::None => 0,
            Rule::Wide(level) => u32::from(level.clamp(1, 3)),
            Rule::Scalar => 4,
            Rule::Alone => 5,
        }
    }

    /// The rule of a task with this one by its control groups, and this one by its name.
    pub fn choose(by_group: Rule, by_name: Rule) -> Rule {
        // SAFETY: two numbers.
        match unsafe { tlp_rule_choose(by_group.number(), by_name.number()) } {
            0 => Rule::None,
            4 => Rule::Scalar,
            5 => Rule::Alone,
            level => Rule::Wide(level as u8),
        }
    }
}

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
    pub rule: u8,
    pub zero: [u8; 7],
}
const _: () = assert!(size_of::<Task>() == 120);

impl Task {
    /// A task that has just come to be, from a parent of this type and level.
    pub fn new(cfg: &Cfg, parent_type: u32, parent_level: u32, now_ns: u64) -> Self {
        let mut task = Task::default();
        // SAFETY: plain data on both sides, layout asserted.
        unsafe { tlp_task_init(&mut task, cfg, parent_type as u8, parent_level as u8, now_ns) };
        task
    }

    /// Say that a task no one classified is scalar; true if its type changed.
    pub fn classify_scalar(&mut self) -> bool {
        // SAFETY: as in `new`.
        unsafe { tlp_task_classify_scalar(self) != 0 }
    }

    /// It has this rule from now on; true if its type or level changed.
    pub fn set_rule(&mut self, rule: Rule) -> bool {
        // SAFETY: as in `new`.
        unsafe { tlp_task_set_rule(self, rule.number()) != 0 }
    }

    /// Whether it counts as a task that gives hints.
    pub fn gives_hints(&self) -> bool {
        // SAFETY: as in `new`; the task is only read.
        unsafe { tlp_task_gives_hints(self) != 0 }
    }

    /// The scheduler was away: nothing is known of what the task does now, nor of its clock.
    pub fn renew(&mut self) {
        // SAFETY: as in `new`.
        unsafe { tlp_task_renew(self) }
    }

    /// An event; true if type or level changed.
    #[inline]
    pub fn event(&mut self, cfg: &Cfg, event: Event, level: u32, now_ns: u64) -> bool {
        // SAFETY: as in `new`.
        unsafe { tlp_task_event(self, cfg, event as u32, level, now_ns) != 0 }
    }

    /// It ran for so long, wide at this level, or at 0 not.
    #[inline]
    pub fn ran(&mut self, used_ns: u64, level: u8) {
        // SAFETY: as in `new`.
        unsafe { tlp_task_ran(self, used_ns, level.into()) }
    }

    /// How long it counts as wide yet without an open section, if it goes on running; 0 = no
    /// longer, or it has not begun.
    #[inline]
    pub fn stays_ns(&self, cfg: &Cfg) -> u64 {
        if !self.gap.stays() && self.loose_level == 0 {
            return 0; // most tasks: saves a call
        }
        // SAFETY: as in `need`.
        unsafe { tlp_task_stays_ns(self, cfg) }
    }

    /// Type and level that a child inherits.
    pub fn bequest(&self) -> (u32, u32) {
        // SAFETY: as in `new`; the task is only read.
        unsafe {
            let level = tlp_task_bequest(self);
            (tlp_task_bequest_type(self, level), level)
        }
    }

    /// Whether a system call says anything about it, of whom most say nothing. See policy/task.h.
    #[inline]
    pub fn syscall_matters(&self) -> bool {
        // SAFETY: as in `need`.
        unsafe { tlp_task_syscall_matters(self) != 0 }
    }

    /// Class of CPU that it needs.
    pub fn need(&self) -> u32 {
        // SAFETY: as in `new`; the task is only read.
        unsafe { tlp_task_need(self) }
    }

    /// Queue that it waits in.
    pub fn queue(&self) -> u32 {
        // SAFETY: as in `need`.
        unsafe { tlp_task_queue(self) }
    }

    /// Whether a CPU of the class may run it at all.
    pub fn fits(&self, class: u32) -> bool {
        // SAFETY: as in `need`.
        unsafe { tlp_task_fits(self, class) != 0 }
    }

    /// Whether it only fills idle time of a CPU of the class.
    pub fn is_guest(&self, class: u32) -> bool {
        // SAFETY: as in `need`.
        unsafe { tlp_task_is_guest(self, class) != 0 }
    }

    /// Its time slice.
    pub fn slice_ns(&self, cfg: &Cfg) -> u64 {
        // SAFETY: as in `need`.
        unsafe { tlp_task_slice_ns(self, cfg) }
    }
}
