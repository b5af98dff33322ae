// SPDX-License-Identifier: MIT OR Apache-2.0
//! The power score, see policy/score.h.

unsafe extern "C" {
    fn tlp_score_switch(s: *mut Score, before: u32, now: u32, run_ns: u64) -> u32;
    fn tlp_score_level(s: *const Score) -> u32;
    fn tlp_score_code(level: u32) -> u32;
}

/// `tl_score`: what a task's runs have said about the licence level of its code.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Score {
    /// 1024 = level 1.
    pub score_q10: u16,
    /// The level that the task is believed to ask for.
    pub level: u8,
    /// 1 + the highest level of an instruction in its process's files, 0 = not known; see
    /// [`Score::code_of`].
    pub code: u8,
    /// Runs that said something.
    pub nr_samples: u32,
}
const _: () = assert!(size_of::<Score>() == 8);

impl Score {
    /// The score of a task that runs longer than this is of its own making, ns
    /// (`TL_SCORE_LONG_NS`).
    pub const LONG_NS: u64 = 1_000_000;

    /// The task leaves its CPU, whose licence level was `before` when it came and is `now`; true if
    /// that says something about the task.
    #[inline]
    pub fn switch(&mut self, before: u32, now: u32, run_ns: u64) -> bool {
        // SAFETY: plain data on both sides, layout asserted.
        unsafe { tlp_score_switch(self, before, now, run_ns) != 0 }
    }

    /// The level that it speaks for: the nearest, or what is believed. Believed it is by
    /// [`crate::Event::Score`].
    #[inline]
    pub fn speaks_for(&self) -> u32 {
        // SAFETY: as in `switch`; the score is only read.
        unsafe { tlp_score_level(self) }
    }

    /// [`Score::code`] of a process whose code has this highest level; above
    /// [`crate::LEVEL_MAX`]: it cannot be said.
    pub fn code_of(level: u32) -> u8 {
        // SAFETY: a function of its argument.
        unsafe { tlp_score_code(level) as u8 }
    }

    /// As a number of levels.
    pub fn value(&self) -> f64 {
        f64::from(self.score_q10) / 1024.0
    }
}
