// SPDX-License-Identifier: MIT OR Apache-2.0
//! The application's own figure decides whether wide code is kept apart; see policy/goal.h.

unsafe extern "C" {
    fn tlp_goal_apart(g: *const Goal) -> u32;
    fn tlp_goal_update(g: *mut Goal, input: *const GoalInput) -> u32;
}

/// `tl_goal_input`: what came since the last call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct GoalInput {
    /// Wall time.
    pub elapsed_ns: u64,
    /// Period of the samples.
    pub every_ns: u64,
    /// Value of a sample, in any unit; 2^40 at most.
    pub value: u64,
    /// 1: one came.
    pub has_value: u32,
    /// 1: less is better.
    pub lower: u32,
}

/// What the last measurement has shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GoalFound {
    /// None has ended.
    NothingYet,
    /// Keeping wide code apart makes the figure better.
    Better,
    /// It makes it worse.
    Worse,
    /// No difference that shows.
    NoDifference,
    /// The figure never changes.
    Constant,
    /// There is no figure.
    Silent,
}

/// `tl_goal`: state of the measurements. All zero is the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Goal {
    side_ns: u64,
    silent_ns: u64,
    kept_ns: u64,
    hold_ns: u64,
    sum: u64,
    first: u64,
    value: u64,
    gains_q16: i64,
    squares_q32: u64,
    nr_pairs: u32,
    nr_blocks: u16,
    nr_samples: u8,
    found: u8,
    measures: u8,
    primed: u8,
    varies: u8,
    began: u8,
    reserved: [u8; 4],
}
const _: () = assert!(size_of::<Goal>() == 88);

impl Goal {
    /// Take in what came; true if what [`Goal::apart`] says has changed.
    pub fn update(&mut self, input: &GoalInput) -> bool {
        // SAFETY: plain data on both sides, layout asserted.
        unsafe { tlp_goal_update(self, input) != 0 }
    }

    /// Whether wide code is to be kept apart now: as was found, or to measure.
    pub fn apart(&self) -> bool {
        // SAFETY: plain data, only read.
        unsafe { tlp_goal_apart(self) != 0 }
    }

    /// Whether a measurement goes on.
    pub fn measures(&self) -> bool {
        self.measures != 0
    }

    /// What the last one that ended has shown.
    pub fn found(&self) -> GoalFound {
        match self.found {
            1 => GoalFound::Better,
            2 => GoalFound::Worse,
            3 => GoalFound::NoDifference,
            4 => GoalFound::Constant,
            5 => GoalFound::Silent,
            _ => GoalFound::NothingYet,
        }
    }

    /// What keeping wide code apart does to the figure, positive: it is better; with the standard
    /// error. Of the measurement that goes on, or the last one; `None` before two pairs of blocks.
    pub fn gain_frac(&self) -> Option<(f64, f64)> {
        let n = f64::from(self.nr_pairs);
        if self.nr_pairs < 2 {
            return None;
        }
        let mean = self.gains_q16 as f64 / 65536.0 / n;
        let mean_square = self.squares_q32 as f64 / 65536.0 / 65536.0 / n;
        let variance = (mean_square - mean * mean).max(0.0) * n / (n - 1.0);
        Some((mean, (variance / n).sqrt()))
    }
}
