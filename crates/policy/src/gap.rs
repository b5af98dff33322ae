// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whether a task stays on its wide CPU after a section, see policy/gap.h.

/// `tl_gap`: the gap after a task's last section, and what the task has learned from others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Gap {
    /// CPU time since the section ended; saturates.
    pub ran_ns: u32,
    /// By pattern of the last three gaps: above 0, leaving at once has been cheaper.
    pub lean: [i8; 8],
    /// What leaving at once has cost beyond twice the best, in 16ths of the break-even time.
    pub spent: u8,
    /// Level of the last section.
    pub level: u8,
    /// `tl_gap_state`.
    pub state: u8,
    /// The last gaps, the latest in bit 0: 1 was long.
    pub past: u8,
}
const _: () = assert!(size_of::<Gap>() == 16);

impl Gap {
    /// Parts of the break-even time that costs are counted in (`TL_GAP_EVEN`).
    pub const EVEN: u8 = 16;
    /// [`Gap::spent`] at most (`TL_GAP_SLACK`).
    pub const SLACK: u8 = 48;
    const STAYS: u8 = 1;

    /// Of a task that has ended a section of this level, and stays.
    pub fn staying(level: u8) -> Self {
        Gap { level, state: Self::STAYS, ..Gap::default() }
    }

    /// Whether it stays.
    pub fn stays(&self) -> bool {
        self.state == Self::STAYS
    }
}
