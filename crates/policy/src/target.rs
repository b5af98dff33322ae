// SPDX-License-Identifier: MIT OR Apache-2.0
//! The performance target of a CPU: policy/target.h.

unsafe extern "C" {
    fn tlp_target_tell(t: *mut Target, asked_q10: u32, is_tick: u32) -> u32;
}

/// The whole capacity of a CPU, as targets count.
pub const TARGET_ONE: u32 = 1024;
/// Ticks at which the default target is sent again.
pub const TARGET_REPEATS: u32 = 16;

/// `tl_target`: what was sent to a CPU's frequency governor. See policy/target.h.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
#[allow(missing_docs)]
pub struct Target {
    pub told_q10: u32,
    pub repeats: u32,
}

impl Target {
    /// What to send to the governor, if anything, for a task that asks for `asked_q10` (0: for
    /// nothing).
    pub fn tell(&mut self, asked_q10: u32, is_tick: bool) -> Option<u32> {
        // SAFETY: plain data on both sides.
        let told_q10 = unsafe { tlp_target_tell(self, asked_q10, u32::from(is_tick)) };
        (told_q10 != 0).then_some(told_q10)
    }
}
