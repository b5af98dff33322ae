// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tasks that stay on their wide CPU after a section (policy/gap.h), until a timer fires. As
//! bpf/stays.bpf.h.

use policy::Event;

use super::Lane;
use crate::events::Sink;
use crate::sched::OnCpu;
use crate::sys::Sys;

impl Lane {
    /// Set the CPU's timer to the end of its task's stay, if it stays. Not while all CPUs take
    /// everything: then there is no CPU to leave for.
    #[inline]
    pub(super) fn time_stay(&mut self, sys: &Sys, OnCpu { cpu, task }: OnCpu) {
        let t = &self.tasks[task as usize].t;
        let left_ns = if self.has_wide_cpus() { t.stays_ns(&self.config.cfg) } else { 0 };
        self.stay_ends_ns[cpu] = if left_ns > 0 { sys.now_ns + left_ns } else { u64::MAX };
    }

    /// The timer has fired. Whether the CPU is to choose anew: the task has stayed for long enough,
    /// and a section that has begun meanwhile is not known of.
    pub(super) fn stay_is_up(&mut self, sys: &Sys, on: OnCpu, sink: &mut impl Sink) -> bool {
        self.account_run(sys, on);
        self.read_hint(sys, on, sink);
        self.tell(sys, on, Event::Tick, 0, sink);
        self.time_stay(sys, on);
        self.must_leave(sys, on)
    }
}
