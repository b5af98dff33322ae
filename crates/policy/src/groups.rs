// SPDX-License-Identifier: MIT OR Apache-2.0
//! Control groups: policy/groups.h and policy/bandwidth.h.

unsafe extern "C" {
    fn tlp_group_weight(weight: u32, is_idle: u32) -> u32;
    fn tlp_group_load(before: u32, now: i64) -> u32;
    fn tlp_group_factor(parent_factor: u64, weight: u32, load: u32) -> u64;
    fn tlp_group_task_weight(factor: u64, own_weight: u32) -> u32;
    fn tlp_budget_returns(left_ns: i64) -> u32;
    fn tlp_budget_set(b: *mut Budget, period_us: u64, quota_us: u64, burst_us: u64, now_ns: u64);
    fn tlp_budget_refill(b: *mut Budget, now_ns: u64) -> i64;
}

/// How often loads become factors, and periods begin.
pub const PASS_NS: u64 = 10_000_000;
/// A factor of 1.
pub const ONE: u64 = 1 << 26;
/// A quota from here on is none.
pub const QUOTA_NONE: u64 = 1 << 44;

/// The weight that counts of a group with this `cpu.weight` and `cpu.idle`.
pub fn weight(weight: u32, is_idle: bool) -> u32 {
    // SAFETY: plain values.
    unsafe { tlp_group_weight(weight, u32::from(is_idle)) }
}

/// A group's load after a pass that found `now`.
pub fn load(before: u32, now: i64) -> u32 {
    // SAFETY: plain values.
    unsafe { tlp_group_load(before, now) }
}

/// What a unit of weight in a group is worth at the root.
pub fn factor(parent_factor: u64, weight: u32, load: u32) -> u64 {
    // SAFETY: plain values.
    unsafe { tlp_group_factor(parent_factor, weight, load) }
}

/// A task's effective weight.
pub fn task_weight(factor: u64, own_weight: u32) -> u32 {
    // SAFETY: plain values.
    unsafe { tlp_group_task_weight(factor, own_weight) }
}

/// How many held tasks come back for what is left of a budget.
pub fn returns(left_ns: i64) -> u32 {
    // SAFETY: plain values.
    unsafe { tlp_budget_returns(left_ns) }
}

/// `tl_budget`: a limit of CPU time. See policy/bandwidth.h.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
#[allow(missing_docs)]
pub struct Budget {
    pub quota_ns: u64,
    pub period_ns: u64,
    pub burst_ns: u64,
    pub next_ns: u64,
    pub left_ns: i64,
}

impl Budget {
    /// A budget that begins now.
    pub fn new(period_us: u64, quota_us: u64, burst_us: u64, now_ns: u64) -> Self {
        let mut budget = Budget::default();
        // SAFETY: a budget of our own.
        unsafe { tlp_budget_set(&mut budget, period_us, quota_us, burst_us, now_ns) };
        budget
    }

    /// Begin the periods that are due.
    pub fn refill(&mut self, now_ns: u64) {
        // SAFETY: a budget of our own.
        self.left_ns += unsafe { tlp_budget_refill(self, now_ns) };
    }

    /// Whether nothing is left.
    pub fn is_out(&self) -> bool {
        self.quota_ns != 0 && self.left_ns <= 0
    }
}
