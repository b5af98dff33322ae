// SPDX-License-Identifier: MIT OR Apache-2.0
//! MuQSS's virtual deadlines: a task gets a slice, and its deadline is one round-robin interval,
//! scaled by its weight, after it got it (Kolivas, sched-MuQSS.txt). sched_yield() renews nothing:
//! it yields to earlier deadlines only (MuQSS's yield_type 1, the default). So 256 threads that
//! yield all the time migrate 2,160 times in two million passes (THESIS Table 5.6, unmitigated).

/// MuQSS's rr_interval.
pub(super) const INTERVAL_NS: u64 = 6_000_000;

/// A task's slice and deadline.
#[derive(Clone, Copy, Debug)]
pub(super) struct Turn {
    pub deadline_ns: u64,
    pub left_ns: u64,
    pub started_ns: u64,
    weight: u32,
}

impl Turn {
    pub(super) fn new(now_ns: u64, weight: u32) -> Self {
        let mut turn = Turn { deadline_ns: 0, left_ns: 0, started_ns: 0, weight };
        turn.renew(now_ns, INTERVAL_NS);
        turn
    }

    /// Its slice is used up, or it gave up the rest: the next one.
    pub(super) fn renew(&mut self, now_ns: u64, slice_ns: u64) {
        self.left_ns = slice_ns;
        self.deadline_ns = now_ns + INTERVAL_NS * 100 / u64::from(self.weight.max(1));
    }

    /// Charge what it ran since the last time; returns that.
    pub(super) fn charge(&mut self, now_ns: u64) -> u64 {
        let used_ns = now_ns - self.started_ns;
        self.started_ns = now_ns;
        self.left_ns = self.left_ns.saturating_sub(used_ns);
        used_ns
    }
}
