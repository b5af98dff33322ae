// SPDX-License-Identifier: MIT OR Apache-2.0
//! What levels cost other code, and whether to separate wide code at all; see policy/exposure.h
//! and policy/standby.h.

use crate::cfg::NR_PARTIES;
use crate::{LEVEL_MAX, Mix, Task};

unsafe extern "C" {
    fn tlp_party(m: *const Mix, level: u32, hints: u32) -> u32;
    fn tlp_exposure_turns(e: *mut Exposure, old_level: u32, new_level: u32, now_ns: u64) -> u32;
    fn tlp_exposure_nr_missed(begun: u32, is_open: u32, span_ns: u64) -> u32;
    fn tlp_exposure_missed(e: *mut Exposure, level: u32, nr: u32, span_ns: u64, now_ns: u64)
    -> u32;
    fn tlp_exposure_ran(
        e: *const Exposure,
        l: *mut Losses,
        level: u32,
        shares: u32,
        used_ns: u64,
        now_ns: u64,
    );
    fn tlp_standby_update(s: *mut Standby, input: *const StandbyInput) -> u32;
    fn tlp_standby_is_away(s: *const Standby) -> u32;
    fn tlp_standby_keeps_marks(s: *const Standby) -> u32;
}

/// How long a core holds a level, ns (`TL_LEVEL_HOLD_NS`).
pub const LEVEL_HOLD_NS: u64 = 670_000;
/// What tasks are given to go home before the scheduler stands by, ns (`TL_GOING_HOME_NS`).
pub const GOING_HOME_NS: u64 = 2_000_000;
/// The same at most, where a CPU does not get to choose anew, ns (`TL_GOING_HOME_MAX_NS`).
pub const GOING_HOME_MAX_NS: u64 = 20_000_000;
/// From the start to the first look, ns (`TL_STANDBY_PAUSE_NS`).
pub const FIRST_LOOK_NS: u64 = 1_000_000_000;

/// [`party`]: no wide code recently.
pub const PARTY_PLAIN: usize = 0;

/// The party of a task that ran at this level: [`PARTY_PLAIN`], or the highest level of its wide
/// code.
#[inline]
pub fn party(task: &Task, level: u8) -> usize {
    let hints = u32::from(task.gives_hints());
    // SAFETY: plain data, only read.
    unsafe { tlp_party(&task.mix, level.into(), hints) as usize }
}

/// `tl_exposure`: the levels of a core. All zero: none was ever raised.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Exposure {
    /// By level less one: until when it is held; the maximum is "as long as such code runs".
    pub until_ns: [u64; LEVEL_MAX as usize],
}

impl Exposure {
    /// What runs on the core was of one level and is of another, 0 = none. True if the core raises
    /// its level for it.
    #[inline]
    pub fn turns(&mut self, old_level: u8, new_level: u8, now_ns: u64) -> bool {
        // SAFETY: plain data on both sides, layout asserted.
        unsafe { tlp_exposure_turns(self, old_level.into(), new_level.into(), now_ns) != 0 }
    }

    /// Of so many sections begun in so much CPU time, the last one of which may be open: those that
    /// were not noticed.
    pub fn nr_missed(begun: u32, is_open: bool, span_ns: u64) -> u32 {
        // SAFETY: no memory.
        unsafe { tlp_exposure_nr_missed(begun, is_open.into(), span_ns) }
    }

    /// So many sections of this level, in so much CPU time until now, were not noticed as they came
    /// and went. How often the core must have raised its level.
    pub fn missed(&mut self, level: u8, nr: u32, span_ns: u64, now_ns: u64) -> u32 {
        // SAFETY: as in `turns`.
        unsafe { tlp_exposure_missed(self, level.into(), nr, span_ns, now_ns) }
    }

    /// Code of this level has run for so long until now; `shares`: a sibling is busy.
    #[inline]
    pub fn ran(&self, losses: &mut Losses, level: u8, shares: bool, used_ns: u64, now_ns: u64) {
        let (level, shares) = (level.into(), shares.into());
        // SAFETY: as in `turns`.
        unsafe { tlp_exposure_ran(self, losses, level, shares, used_ns, now_ns) }
    }
}

/// `tl_losses`: what the tasks of a party did and lost, as sums.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Losses {
    /// CPU time.
    pub run_ns: u64,
    /// Of it, exposed to each level; may wrap below 0, see policy/exposure.h.
    pub exposed_ns: [u64; LEVEL_MAX as usize],
    /// Of CPU time next to a busy sibling.
    pub shared_ns: u64,
    /// Time waited in queues.
    pub wait_ns: u64,
    /// Starts on another CPU than before.
    pub moves: u64,
    /// Levels raised.
    pub raises: u64,
    /// How often a task turned wide.
    pub sections: u64,
}
const _: () = assert!(size_of::<Losses>() == 72);

impl Losses {
    /// What has come on top of an earlier reading.
    pub fn since(&self, before: &Losses) -> Losses {
        let exposed_ns = std::array::from_fn(|level| {
            self.exposed_ns[level].wrapping_sub(before.exposed_ns[level])
        });
        Losses {
            run_ns: self.run_ns.saturating_sub(before.run_ns),
            exposed_ns,
            shared_ns: self.shared_ns.saturating_sub(before.shared_ns),
            wait_ns: self.wait_ns.saturating_sub(before.wait_ns),
            moves: self.moves.saturating_sub(before.moves),
            raises: self.raises.saturating_sub(before.raises),
            sections: self.sections.saturating_sub(before.sections),
        }
    }

    /// Both together.
    pub fn add(&mut self, other: &Losses) {
        self.run_ns += other.run_ns;
        for (sum, new) in self.exposed_ns.iter_mut().zip(other.exposed_ns) {
            *sum = sum.wrapping_add(new);
        }
        self.shared_ns += other.shared_ns;
        self.wait_ns += other.wait_ns;
        self.moves += other.moves;
        self.raises += other.raises;
        self.sections += other.sections;
    }
}

/// `tl_kernel_use`: what the tasks of a party did under the kernel's own scheduler.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct KernelUse {
    /// CPU time.
    pub run_ns: u64,
    /// Time waited in queues.
    pub wait_ns: u64,
    /// Migrations.
    pub moves: u64,
}

impl KernelUse {
    /// Both together.
    pub fn add(&mut self, other: &KernelUse) {
        self.run_ns += other.run_ns;
        self.wait_ns += other.wait_ns;
        self.moves += other.moves;
    }

    /// What has come on top of an earlier reading.
    pub fn since(&self, before: &KernelUse) -> KernelUse {
        KernelUse {
            run_ns: self.run_ns.saturating_sub(before.run_ns),
            wait_ns: self.wait_ns.saturating_sub(before.wait_ns),
            moves: self.moves.saturating_sub(before.moves),
        }
    }
}

/// What the scheduler does about wide code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StandbyState {
    /// The kernel's own scheduler is at work, nothing is armed.
    StandingBy,
    /// All CPUs take everything, detection works.
    Looking,
    /// Wide and scalar CPUs are divided.
    Apart,
}

/// Why it stands by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StandbyWhy {
    /// No licence level lowers a clock.
    NoLevels,
    /// No wide code was seen.
    NothingWide,
    /// It slows no other code.
    NothingLost,
    /// Keeping it apart was tried.
    CostsMore,
    /// An application's figure says so (policy/goal.h).
    Goal,
}

/// `tl_standby_input`: what was seen since the last call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct StandbyInput {
    /// Wall time.
    pub elapsed_ns: u64,
    /// By party.
    pub losses: [Losses; NR_PARTIES],
    /// While looking, by party: what the tasks that are there did when the scheduler was last away.
    pub kernel: [KernelUse; NR_PARTIES],
    /// How long that was.
    pub kernel_ns: u64,
    /// CPU time that all used then.
    pub kernel_run_ns: u64,
    /// Time that wide tasks waited in queues.
    pub wide_wait_ns: u64,
    /// Clock that each level lacks, 1024 = all of it.
    pub lacks_q10: [u32; LEVEL_MAX as usize],
    /// CPUs of the machine.
    pub nr_cpus: u32,
    /// 1: sections are seen, not only their begins.
    pub sees: u32,
    /// 1: a marked function was called, or a thread gives hints now.
    pub news: u8,
    /// 1: a thread has a target for its CPU (policy/target.h).
    pub asks: u8,
    /// What an application's figure decides in place of this; see [`StandbyInput::follow`].
    pub goal: u16,
}

impl StandbyInput {
    /// An application's figure decides instead: whether wide code is kept apart.
    pub fn follow(self, apart: bool) -> Self {
        StandbyInput { goal: 1 + u16::from(apart), ..self }
    }
}

/// `tl_shares`: what the parties had under the kernel's own scheduler, and what their time counts
/// since. All zero: nothing is known, and all time counts the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Shares {
    run_ns: [u64; NR_PARTIES],
    elapsed_ns: u64,
    tuned_ns: u64,
    /// Of all CPUs, 1024 = all; 0 = not known, or they were not busy.
    pub before_q10: [u32; NR_PARTIES],
    /// 1024 = as much; 0 = the same.
    pub counts_q10: [u32; NR_PARTIES],
}
const _: () = assert!(size_of::<Shares>() == 80);

impl Shares {
    /// For [`Cfg::counts_q10`](crate::Cfg::counts_q10).
    pub fn counts(&self) -> [u16; NR_PARTIES] {
        self.counts_q10.map(|counts| counts as u16)
    }
}

/// `tl_standby`: state of the decision. All zero is the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
#[allow(missing_docs)] // each field is explained where it is defined
pub struct Standby {
    pub sums: [Losses; NR_PARTIES],
    pub wide_wait_ns: u64,
    pub summed_ns: u64,
    pub age_ns: u64,
    pub hold_ns: u64,
    pub apart_ns: u64,
    pub pause_ns: u64,
    pub failed_ns: u64,
    pub lost_q10: [u32; NR_PARTIES],
    pub share_q10: [u32; NR_PARTIES],
    pub wait_q10: [u32; NR_PARTIES],
    pub at_most_q10: u32,
    pub won_q10: u32,
    pub nr_attempts: u32,
    state: u8,
    why: u8,
    asks: u8,
    was_away: u8,
    pub shares: Shares,
}
const _: () = assert!(size_of::<Standby>() == 488);

impl Standby {
    /// At the start, as if it had stood by for so long already.
    pub fn begun(age_ns: u64) -> Self {
        Standby { age_ns, ..Standby::default() }
    }

    /// Whether the probes of marks are to be in place.
    pub fn keeps_marks(&self) -> bool {
        // SAFETY: plain data, only read.
        unsafe { tlp_standby_keeps_marks(self) != 0 }
    }

    /// Whether the kernel's own scheduler is to be at work.
    pub fn is_away(&self) -> bool {
        // SAFETY: plain data, only read.
        unsafe { tlp_standby_is_away(self) != 0 }
    }

    /// Take in what was seen; true if the state has changed.
    pub fn update(&mut self, input: &StandbyInput) -> bool {
        // SAFETY: plain data on both sides, layout asserted.
        unsafe { tlp_standby_update(self, input) != 0 }
    }

    /// What is done now.
    pub fn state(&self) -> StandbyState {
        match self.state {
            0 => StandbyState::StandingBy,
            1 => StandbyState::Looking,
            _ => StandbyState::Apart,
        }
    }

    /// Why it stands by; `None` if it does not, or has not looked yet.
    pub fn why(&self) -> Option<StandbyWhy> {
        match self.why {
            1 => Some(StandbyWhy::NoLevels),
            2 => Some(StandbyWhy::NothingWide),
            3 => Some(StandbyWhy::NothingLost),
            4 => Some(StandbyWhy::CostsMore),
            5 => Some(StandbyWhy::Goal),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    unsafe extern "C" {
        fn tlp_level_hold_ns() -> u64;
        fn tlp_first_look_ns() -> u64;
        fn tlp_going_home_ns() -> u64;
        fn tlp_going_home_max_ns() -> u64;
    }

    /// The constants are C's.
    #[test]
    fn the_times_are_those_of_c() {
        // SAFETY: no memory.
        unsafe {
            assert_eq!(LEVEL_HOLD_NS, tlp_level_hold_ns());
            assert_eq!(FIRST_LOOK_NS, tlp_first_look_ns());
            assert_eq!(GOING_HOME_NS, tlp_going_home_ns());
            assert_eq!(GOING_HOME_MAX_NS, tlp_going_home_max_ns());
        }
    }
}
