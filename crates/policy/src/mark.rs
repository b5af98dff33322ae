// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which calls of a marked function count, see policy/mark.h.

unsafe extern "C" {
    fn tlp_mark_rule(level: u32, arg: u32, least: u32, number: u32) -> u64;
    fn tlp_mark_number(rule: u64) -> u32;
    fn tlp_mark_level(rule: u64) -> u32;
    fn tlp_mark_counts(rule: u64, value: u64) -> u32;
    fn tlp_calls_enter(calls: *mut Calls, counts: u32) -> u32;
    fn tlp_calls_return(calls: *mut Calls) -> u32;
}

/// Integer arguments that a rule can name (`TL_MARK_ARGS`).
pub const MARK_ARGS: u32 = 6;
/// Nested calls whose returns the kernel reports (`TL_CALLS_MAX`).
pub const CALLS_MAX: u32 = 64;

/// The rule of a mark, one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MarkRule(pub u64);

impl MarkRule {
    /// Calls count as code of this level if argument `arg` is at least `least`; all do with `arg`
    /// 0.
    pub fn new(level: u32, arg: u32, least: u32) -> Self {
        // SAFETY: takes and returns numbers.
        MarkRule(unsafe { tlp_mark_rule(level, arg, least, 0) })
    }

    /// The same rule with a number of the caller's.
    pub fn numbered(self, number: u16) -> Self {
        MarkRule(self.0 & !(0xffff << 16) | u64::from(number) << 16)
    }

    /// That number.
    pub fn number(self) -> u32 {
        // SAFETY: as in `new`.
        unsafe { tlp_mark_number(self.0) }
    }

    /// The level.
    pub fn level(self) -> u32 {
        // SAFETY: as in `new`.
        unsafe { tlp_mark_level(self.0) }
    }

    /// Whether a call counts whose argument has this value.
    pub fn counts(self, value: u64) -> bool {
        // SAFETY: as in `new`.
        unsafe { tlp_mark_counts(self.0, value) != 0 }
    }
}

/// `tl_calls`: the marked functions that a task is inside of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
#[allow(missing_docs)] // each field is explained where it is defined
pub struct Calls {
    pub ignored: u64,
    pub depth: u32,
}
const _: () = assert!(size_of::<Calls>() == 16);

impl Calls {
    /// A call; whether it is to be reported.
    pub fn enter(&mut self, counts: bool) -> bool {
        // SAFETY: plain data on both sides, layout asserted.
        unsafe { tlp_calls_enter(self, counts.into()) != 0 }
    }

    /// The return of the innermost call; whether it is to be reported.
    pub fn leave(&mut self) -> bool {
        // SAFETY: as in `enter`.
        unsafe { tlp_calls_return(self) != 0 }
    }
}
