// SPDX-License-Identifier: MIT OR Apache-2.0
//! The last system call of a section, see policy/last.h.

/// `tl_last`: where a task is in its section's system calls, and what the task has learned from
/// others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Last {
    /// CPU time since the call's entry or return; saturates.
    pub ran_ns: u32,
    /// By place: from [`Last::SURE`] on, the next one is expected to be short.
    pub sure: [u8; 8],
    /// `tl_last_state`.
    pub state: u8,
    /// The last two tails, the latest in bit 0: 1 was long.
    pub past: u8,
    /// Of the last call: the tails before it, and bit 2 if it was its section's first.
    pub place: u8,
    #[doc(hidden)]
    pub zero: u8,
}
const _: () = assert!(size_of::<Last>() == 16);

impl Last {
    /// `TL_LAST_SURE`.
    pub const SURE: u8 = 3;
    /// `TL_LAST_SURE_MOST`.
    pub const SURE_MOST: u8 = 15;
    const CALL_AWAY: u8 = 3;
    const TAIL_AWAY: u8 = 4;

    /// Whether the task's sections are no evidence at the moment (`tl_last_is_away`).
    #[inline]
    pub fn is_away(&self) -> bool {
        self.state >= Self::CALL_AWAY
    }

    /// The same, and the call is over: its section may be (`tl_last_is_after`).
    #[inline]
    pub fn is_after(&self) -> bool {
        self.state == Self::TAIL_AWAY
    }
}
