// SPDX-License-Identifier: MIT OR Apache-2.0
//! Memory for hints, the board and the areas: the Rust twin of `bpf/hint_page.h`, which has the
//! picture and the argument about the order of stores and loads.
//!
//! Every field is an atomic, since the daemon, the kernel and other processes write while we read.
//! All accesses are relaxed, which on x86 costs nothing over a plain one; where order matters the
//! place says so.
//!
//! Trust: a process maps the board, which it can only read, and its own areas, which no other
//! process gets. What it reads in an area, any of its threads may have written, and children that
//! inherited the mapping: indices are checked, and no value there is used as an address or a
//! length.

use core::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering::Relaxed};

/// `TL_HINT_MAGIC`: "TLH1", little endian.
pub const MAGIC: u32 = u32::from_le_bytes(*b"TLH1");
/// `TL_HINT_ABI`: version of the layout.
pub const ABI: u32 = 2;
/// `TL_HINT_CPUS`: entries of [`Board::cpu`].
pub const CPUS: usize = 1024;
/// `TL_HINT_AREAS`: areas of all processes together.
pub const AREAS: usize = 4096;
/// `TL_HINT_AREA_SLOTS`: entries of [`Area::slot`].
pub const AREA_SLOTS: usize = 64;
/// `TL_HINT_MODE_SCX`: the scheduler moves threads that yield.
pub const MODE_SCX: u32 = 1;
/// `TL_HINT_MODE_AFFINITY`: threads move themselves by `sched_setaffinity`.
pub const MODE_AFFINITY: u32 = 2;
/// `TL_HINT_CPU_LEVEL`: bits of a [`Board::cpu`] entry: highest level the CPU may run, 0 = scalar.
pub const CPU_LEVEL: u8 = 0x0f;
/// `TL_HINT_CPU_SCALAR_LEAVES`: a task that turns scalar on this CPU should give it up.
pub const CPU_SCALAR_LEAVES: u8 = 0x80;
/// After so long without a sign of life, which it gives each second while its scheduler stands by,
/// a daemon is taken for dead.
const SILENCE_NS: u64 = 10_000_000_000;

/// `TL_HINT_SILENT`: value of [`Slot::want`] before the thread has said anything.
pub const SILENT: u32 = u32::MAX;

/// What the board is about; one cache line.
#[repr(C)]
#[derive(Debug)]
pub struct Header {
    /// [`MAGIC`] once the board is ready; by the daemon.
    pub magic: AtomicU32,
    /// [`ABI`]; by the daemon.
    pub abi: AtomicU32,
    /// 1 while a scheduler reads the slots, else 0; set by the daemon, cleared by whoever sees
    /// the scheduler end.
    pub active: AtomicU32,
    /// [`MODE_SCX`] or [`MODE_AFFINITY`]; by the daemon.
    pub mode: AtomicU32,
    /// Entries of [`Board::cpu`] in use; by the daemon.
    pub nr_cpus: AtomicU32,
    /// [`AREA_SLOTS`]; by the daemon.
    pub nr_slots: AtomicU32,
    /// Changes with each change of [`Board::cpu`]; by the daemon.
    pub generation: AtomicU64,
    /// Scalar phases shorter than this are rests (policy/rest.h), 0 = none are; by the daemon.
    pub rest_below_ns: AtomicU64,
    /// 1 if the scheduler passes the governor the slots' [`Slot::target_q10`], else 0; by the
    /// scheduler, as it starts.
    pub takes_targets: AtomicU32,
    /// 1 while the kernel's own scheduler is at work (policy/standby.h), else 0: no CPU is fit
    /// then, and no section moves; by the scheduler.
    pub standing_by: AtomicU32,
    /// `CLOCK_MONOTONIC` of the daemon's last sign of life, while `standing_by`; by the daemon.
    pub alive_ns: AtomicU64,
    /// Share of its clock that a core loses by code of each level with all cores active, 1024 = all
    /// of it; entry 0 is 0; by the daemon.
    pub lacks_q10: [AtomicU16; 4],
}

/// What one thread says; one cache line, so that threads do not disturb each other.
#[repr(C)]
#[derive(Debug)]
pub struct Slot {
    /// Owner, as the initial PID namespace counts; set by the daemon when it gives the slot, for
    /// the library to check. No one else believes it.
    pub tid: AtomicU32,
    /// Licence level of the section the thread is in, 0 = none (scalar), or [`SILENT`]; by the
    /// thread.
    pub want: AtomicU32,
    /// Number of times that an outermost section was begun, or begun again because a heuristic
    /// had ended it; wraps; by the thread, before `want`.
    pub seq: AtomicU32,
    /// `seq` of the section after which the thread rests: `want` is the level it will have again;
    /// any other number: it does not rest; by the thread, after `rest_until_ns`.
    pub rest_seq: AtomicU32,
    /// Affinity mode: [`mask_hash`] of the affinity mask that the thread last gave itself to run
    /// code of level i, 0 = none yet; by the thread, before it takes that mask. By it the daemon
    /// distinguishes our masks, which it undoes, from the user's.
    pub narrowed: [AtomicU64; 4],
    /// `CLOCK_MONOTONIC` at which the rest ends, 0 = there was none; by the thread.
    pub rest_until_ns: AtomicU64,
    /// How fast the thread's CPU is to be: a share of its capacity in 1024ths (policy/target.h), 0
    /// = the thread does not ask; by the thread, or another of its process.
    pub target_q10: AtomicU32,
    /// Not used, 0.
    pub reserved: AtomicU32,
}

/// What the scheduler publishes; applications read it.
#[repr(C)]
#[derive(Debug)]
pub struct Board {
    /// What the board is about.
    pub header: Header,
    /// Not used, 0.
    pub reserved0: [AtomicU8; 1024 - size_of::<Header>()],
    /// Per CPU: [`CPU_LEVEL`] and [`CPU_SCALAR_LEAVES`]; by the daemon.
    pub cpu: [AtomicU8; CPUS],
    /// Not used, 0.
    pub reserved1: [AtomicU8; 2048],
}

/// Slots of one process.
#[repr(C)]
#[derive(Debug)]
pub struct Area {
    /// Per registered thread.
    pub slot: [Slot; AREA_SLOTS],
}

const _: () = {
    assert!(size_of::<Header>() == 64);
    assert!(size_of::<Slot>() == 64);
    assert!(core::mem::offset_of!(Board, cpu) == 1024);
    assert!(size_of::<Board>() == 4096);
    assert!(size_of::<Area>() == 4096);
};

impl Board {
    /// True while a scheduler acts on what the slots say.
    #[inline]
    pub fn is_active(&self) -> bool {
        self.header.active.load(Relaxed) != 0
    }

    /// True while the scheduler stands by: sections are noted, and stay where they are.
    pub fn stands_by(&self) -> bool {
        self.header.standing_by.load(Relaxed) != 0
    }

    /// Whether a daemon whose scheduler stands by has given no sign of life for so long that it
    /// must have been killed.
    pub fn is_orphan(&self, now_ns: u64) -> bool {
        now_ns.saturating_sub(self.header.alive_ns.load(Relaxed)) > SILENCE_NS
    }

    /// Share of its clock that a core loses by code of this level, 0 to 1; 0 if no level lowers it.
    pub fn lost_frac(&self, level: u32) -> f64 {
        let lacks_q10 = self.header.lacks_q10.get(level as usize);
        f64::from(lacks_q10.map_or(0, |lacks| lacks.load(Relaxed)).min(1024)) / 1024.0
    }

    /// The flags of a CPU; `None` for a number that the board has no entry for.
    #[inline]
    pub fn cpu_flags(&self, cpu: u32) -> Option<u8> {
        self.cpu.get(cpu as usize).map(|flags| flags.load(Relaxed))
    }

    /// True if this is a board of our magic and layout.
    pub fn is_ours(&self) -> bool {
        self.header.magic.load(Relaxed) == MAGIC
            && self.header.abi.load(Relaxed) == ABI
            && self.header.nr_slots.load(Relaxed) as usize == AREA_SLOTS
    }
}

/// An affinity mask as slots name it: CPU 0 in bit 0 of word 0.
pub type Mask = [u64; CPUS / 64];

/// Hash of an affinity mask, never 0: FNV-1a over its words.
pub fn mask_hash(mask: &Mask) -> u64 {
    const OFFSET_BASIS: u64 = 0xcbf2_9ce4_8422_2325;
    const PRIME: u64 = 0x0000_0100_0000_01b3;
    let hash = mask.iter().fold(OFFSET_BASIS, |hash, word| (hash ^ word).wrapping_mul(PRIME));
    hash.max(1)
}
