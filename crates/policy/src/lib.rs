// SPDX-License-Identifier: MIT OR Apache-2.0
//! The policy, as it runs in the kernel, for everything that is not the kernel.
//!
//! `policy/` is C that is compiled twice: to BPF, and natively by this crate. Nothing is decided
//! here; each function calls its namesake in C, whose header has the explanation. Each module names
//! its headers, and declares the functions of c/native.c that it calls. Times are nanoseconds of
//! whatever clock the caller uses throughout.

/// Declares C functions of plain integers, and defines safe functions over them.
macro_rules! plain {
    ($($(#[$doc:meta])* $name:ident = $c:ident($($arg:ident: $ty:ty),*) -> $ret:ty;)*) => {
        unsafe extern "C" {
            $(fn $c($($arg: $ty),*) -> $ret;)*
        }
        $($(#[$doc])*
        pub fn $name($($arg: $ty),*) -> $ret {
            // SAFETY: integers in, an integer out, no memory.
            unsafe { $c($($arg),*) }
        })*
    };
}

pub mod bound;
mod cfg;
mod clock;
mod cpus;
mod gap;
mod goal;
pub mod groups;
mod last;
mod locality;
mod mark;
mod mix;
mod queues;
mod score;
mod sizing;
mod standby;
mod stay;
mod target;
mod task;
mod turns;
mod wake;

pub use cfg::{Cfg, NR_PARTIES, Remigrate, WIDE_TIMEOUT_NS};
pub use clock::{Clock, most_wait_ns, slice_in_round_ns};
pub use cpus::{cpu_flags, victim_best, victim_rank};
pub use gap::Gap;
pub use goal::{Goal, GoalFound, GoalInput};
pub use groups::Budget;
pub use last::Last;
pub use locality::{
    Backlog, IDLE_LOOKS, NR_SCOPES, compares_now, helps, leaves_core, running_key, waits_at_class,
    waits_here,
};
pub use mark::{CALLS_MAX, Calls, MARK_ARGS, MarkRule};
pub use mix::Mix;
pub use queues::{
    NR_QUEUES, QUEUE_DEFAULT, QUEUE_NONE, QUEUE_SCALAR, QUEUE_WIDE, nr_steps, pinned_id,
    queue_class, queue_id, queue_step, step_has_default, step_queue,
};
pub use score::Score;
pub use sizing::{Sizing, SizingInput, Split, Tier, Tiers, TiersInput, WIDE_AUTO};
pub use standby::{
    Exposure, FIRST_LOOK_NS, GOING_HOME_MAX_NS, GOING_HOME_NS, KernelUse, LEVEL_HOLD_NS, Losses,
    PARTY_PLAIN, Shares, Standby, StandbyInput, StandbyState, StandbyWhy, party,
};
pub use stay::Stay;
pub use target::{TARGET_ONE, TARGET_REPEATS, Target};
pub use task::{
    Event, FLAG_HINTS, FLAG_RAN_FIT, FLAG_SYSCALL_WIDE, FLAG_UNKNOWN, FLAG_WAS_WIDE, Rule,
    TYPE_DEFAULT, TYPE_SCALAR, TYPE_WIDE, Task, WEIGHT_NICE0, WEIGHT_UNIT,
};
pub use turns::{SIDE_DEFAULT, SIDE_NONE, SIDE_OWN, SIDE_PINNED, Sides, Turns};
pub use wake::{Comer, Run, WakeFrom};

/// Highest licence level.
pub const LEVEL_MAX: u32 = 3;
/// CPU classes: 0 is scalar, the others the highest level that may run there.
pub const NR_CLASSES: u32 = LEVEL_MAX + 1;
/// CPUs that the tables of the kernel build hold.
pub const CPUS_MAX: usize = 1024;
/// Shards that the tables of the kernel build hold.
pub const SHARDS_MAX: usize = 64;
/// CPUs of a shard, at most.
pub const SHARD_CPUS: usize = 16;
/// Kinds of time, see [`kind`].
pub const NR_KINDS: usize = 8;

/// What a task's time is counted by: its type, and the level of a wide one.
#[inline]
pub fn kind(task_type: u8, level: u8) -> usize {
    usize::from(task_type + level) % NR_KINDS
}

/// The class of a CPU that is offline.
pub const CLASS_NONE: u8 = 255;
