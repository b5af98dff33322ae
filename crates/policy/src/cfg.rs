// SPDX-License-Identifier: MIT OR Apache-2.0
//! The settings: `tl_cfg`, policy/task.h and policy/rest.h.

unsafe extern "C" {
    fn tlp_rest_stays(cfg: *const Cfg, phase_ns: u64) -> u32;
    fn tlp_rest_is_over(cfg: *const Cfg, until_ns: u64, now_ns: u64) -> u32;
}

/// Parties of tasks, see [`party`](crate::party).
pub const NR_PARTIES: usize = 4;

/// How long wide periods without an open section last at most, unless it is set; ns
/// (`TL_WIDE_TIMEOUT_NS`).
pub const WIDE_TIMEOUT_NS: u64 = 100_000_000;

/// `tl_remigrate` as named switches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Remigrate {
    /// End at the next system call's entry.
    pub syscall_entry: bool,
    /// End at the next system call's return.
    pub syscall_return: bool,
    /// End at the first context switch after having run on a fit CPU.
    pub context_switch: bool,
    /// End a fixed time after the last event.
    pub timeout: bool,
    /// Do not end at once at an explicit end, where the task has learned that (policy/gap.h).
    pub gap: bool,
    /// End at the entry of a section's last system call, which the task learns (policy/last.h).
    pub last_syscall: bool,
}

impl Remigrate {
    /// See [`Remigrate::syscall_entry`]; these are the bits of `enum tl_remigrate`.
    pub const SYSCALL_ENTRY: u32 = 1 << 0;
    /// See [`Remigrate::syscall_return`].
    pub const SYSCALL_RETURN: u32 = 1 << 1;
    /// See [`Remigrate::context_switch`].
    pub const CONTEXT_SWITCH: u32 = 1 << 2;
    const TIMEOUT: u32 = 1 << 3;
    /// See [`Remigrate::gap`].
    pub const GAP: u32 = 1 << 4;
    /// See [`Remigrate::last_syscall`].
    pub const LAST_SYSCALL: u32 = 1 << 5;

    /// As the bits that C knows.
    pub fn bits(self) -> u32 {
        let switches = [
            (self.syscall_entry, Self::SYSCALL_ENTRY),
            (self.syscall_return, Self::SYSCALL_RETURN),
            (self.context_switch, Self::CONTEXT_SWITCH),
            (self.timeout, Self::TIMEOUT),
            (self.gap, Self::GAP),
            (self.last_syscall, Self::LAST_SYSCALL),
        ];
        switches.iter().filter(|(is_on, _)| *is_on).map(|(_, bit)| bit).sum()
    }
}

/// `tl_cfg`: the settings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Cfg {
    /// Slice of scalar and default tasks.
    pub slice_ns: u64,
    /// Slice of wide tasks.
    pub slice_wide_ns: u64,
    /// Fallback timeout of wide periods without an open section; 0 = none.
    pub wide_timeout_ns: u64,
    /// Timeout of [`Remigrate::timeout`].
    pub remigrate_timeout_ns: u64,
    /// Scalar phases announced to be shorter are spent where the task is; 0 = none is.
    pub rest_below_ns: u64,
    /// [`Remigrate::bits`].
    pub remigrate: u32,
    /// Type of tasks no one classified.
    pub unclassified: u32,
    /// What a nanosecond of the tasks of a party counts, 1024 = as much, 0 = the same; see
    /// policy/shares.h.
    pub counts_q10: [u16; NR_PARTIES],
}

impl Cfg {
    /// Whether a task stays for a scalar phase of that length. See policy/rest.h.
    #[inline]
    pub fn rest_stays(&self, phase_ns: u64) -> bool {
        // SAFETY: reads the settings, and keeps no pointer.
        unsafe { tlp_rest_stays(self, phase_ns) != 0 }
    }

    /// Whether a rest that was to end at `until_ns` has ended.
    #[inline]
    pub fn rest_is_over(&self, until_ns: u64, now_ns: u64) -> bool {
        // SAFETY: as above.
        unsafe { tlp_rest_is_over(self, until_ns, now_ns) != 0 }
    }
}
