// SPDX-License-Identifier: MIT OR Apache-2.0
//! A clock on each CPU that calls a program of bpf/trace.bpf.c: `tl_trace_beat`, which detects that
//! a CPU has executed nothing, and `tl_trace_levels`, which reads the licence level of a task that
//! continues to run.
//!
//! perf's CPU clock is a timer of the kernel on its CPU, which goes on while the CPU idles: no
//! hardware counter is needed, so virtual machines have it. It costs an interrupt every period on
//! every CPU, also on idle ones, which then sleep less deeply. So the former is there only if it is
//! asked for, the latter only where levels are counted.
//!
//! Source: perf_event_open(2).

use std::os::fd::AsRawFd;

use cpumodel::CpuSet;
use hw::perf::{self, Event, Whose};
use libbpf_rs::{Link, ProgramMut};

use crate::error::{Error, Result};

/// Time between two beats: the tick of CONFIG_HZ=250, which a busy CPU has anyway.
pub(super) const BEAT_NS: u64 = 4_000_000;
/// Time between two beats that is recorded: one was missed.
pub(super) const STALL_NS: u64 = 2 * BEAT_NS;
/// Time between two looks at a level: no more than what it is held after wide code (670 us on
/// Skylake-SP), to a round number.
pub(super) const LEVELS_NS: u64 = 1_000_000;

/// Calls the program on every CPU, every `period_ns`.
pub(super) fn attach(
    program: &ProgramMut<'_>,
    online: &CpuSet,
    period_ns: u64,
) -> Result<Vec<Link>> {
    let event = Event {
        kind: perf::SOFTWARE,
        config: perf::CPU_CLOCK,
        sample_period: period_ns,
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
