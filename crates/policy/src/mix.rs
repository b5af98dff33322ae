// SPDX-License-Identifier: MIT OR Apache-2.0
//! How much of a task's work is wide, see policy/mix.h.

unsafe extern "C" {
    fn tlp_mix_ran(m: *mut Mix, used_ns: u64, level: u32);
    fn tlp_mix_wide_ns(m: *const Mix, waited_ns: u64, level: u32) -> u64;
}

/// `tl_mix`: a task's recent CPU time, and the wide part of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Mix {
    /// CPU time, ns.
    pub run_ns: u32,
    /// Of it as a wide task.
    pub wide_ns: u32,
    /// The highest level since the sums were halved.
    pub level: u8,
    /// The highest level before that.
    pub last_level: u8,
    /// 0.
    pub reserved: [u8; 6],
}
const _: () = assert!(size_of::<Mix>() == 16);

impl Mix {
    /// The sums are halved when they come to this, ns (`TL_MIX_NS`).
    pub const NS: u64 = 400_000_000;

    /// The task ran at this level, 0 = not wide.
    #[inline]
    pub fn ran(&mut self, used_ns: u64, level: u8) {
        // SAFETY: plain data on both sides, layout asserted.
        unsafe { tlp_mix_ran(self, used_ns, level.into()) }
    }

    /// Of the time that the task waited, as one of this level: for wide code, ns.
    #[inline]
    pub fn wide_ns(&self, waited_ns: u64, level: u8) -> u64 {
        // SAFETY: as in `ran`; the mix is only read.
        unsafe { tlp_mix_wide_ns(self, waited_ns, level.into()) }
    }
}
