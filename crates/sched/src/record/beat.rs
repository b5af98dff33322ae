// SPDX-License-Identifier: MIT OR Apache-2.0
//! A clock on each CPU that lets `tl_trace_beat` (bpf/trace.bpf.c) see when a CPU has stood still.
//!
//! perf's CPU clock is a timer of the kernel on its CPU, which goes on while the CPU idles: no hardware
//! counter is needed, so virtual machines have it. It costs an interrupt every [`PERIOD_NS`] on every CPU,
//! also on idle ones, which then sleep less deeply. So it is there only if it is asked for.
//!
//! Source: perf_event_open(2).

use std::os::fd::AsRawFd;

use hw::perf::{self, Event, Whose};
use libbpf_rs::{Link, ProgramMut};
use machine::CpuSet;

use crate::error::{Error, Result};

/// Time between two beats: the tick of CONFIG_HZ=250, which a busy CPU has anyway.
const PERIOD_NS: u64 = 4_000_000;
/// Time between two beats that is told: one was missed.
pub(super) const STALL_NS: u64 = 2 * PERIOD_NS;

/// PERF_COUNT_SW_CPU_CLOCK.
const CPU_CLOCK: u64 = 0;

/// Lets the program see the beats of every CPU.
pub(super) fn attach(program: &ProgramMut<'_>, online: &CpuSet) -> Result<Vec<Link>> {
    let event = Event {
        kind: perf::SOFTWARE,
        config: CPU_CLOCK,
        sample_period: PERIOD_NS,
        ..Event::default()
    };
    let one = |cpu: usize| {
        let what = format!("cannot make a clock on CPU {cpu}");
        let clock = perf::open(&event, Whose::Cpu(cpu as u32), None);
        let clock = clock.map_err(|e| Error::failed(what.clone(), e))?;
        let link = program.attach_perf_event(clock.as_raw_fd());
        let link = link.map_err(|e| Error::failed(what, format!("{e:#}")))?;
        // The link closes it.
        std::mem::forget(clock);
        Ok(link)
    };
    online.iter().map(one).collect()
}
