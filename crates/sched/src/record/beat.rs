// SPDX-License-Identifier: MIT OR Apache-2.0
//! A clock on each CPU that lets `tl_trace_beat` (bpf/trace.bpf.c) see when a CPU has stood still.
//!
//! perf's CPU clock is a timer of the kernel on its CPU, which goes on while the CPU idles: no hardware
//! counter is needed, so virtual machines have it. It costs an interrupt every [`PERIOD_NS`] on every CPU,
//! also on idle ones, which then sleep less deeply. So it is there only if it is asked for.
//!
//! Source: perf_event_open(2).

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use libbpf_rs::{Link, ProgramMut, libbpf_sys};
use machine::CpuSet;

use crate::error::{Error, Result};

/// Time between two beats: the tick of CONFIG_HZ=250, which a busy CPU has anyway.
const PERIOD_NS: u64 = 4_000_000;
/// Time between two beats that is told: one was missed.
pub(super) const STALL_NS: u64 = 2 * PERIOD_NS;

/// PERF_TYPE_SOFTWARE, PERF_COUNT_SW_CPU_CLOCK.
const SOFTWARE: u32 = 1;
const CPU_CLOCK: u64 = 0;
const CLOSE_ON_EXEC: libc::c_ulong = 8;

/// Lets the program see the beats of every CPU.
pub(super) fn attach(program: &ProgramMut<'_>, online: &CpuSet) -> Result<Vec<Link>> {
    let one = |cpu: usize| {
        let what = format!("cannot make a clock on CPU {cpu}");
        let clock = open(cpu).map_err(|e| Error::failed(what.clone(), e))?;
        let link = program.attach_perf_event(clock.as_raw_fd());
        let link = link.map_err(|e| Error::failed(what, format!("{e:#}")))?;
        // The link closes it.
        std::mem::forget(clock);
        Ok(link)
    };
    online.iter().map(one).collect()
}

fn open(cpu: usize) -> io::Result<OwnedFd> {
    // SAFETY: a struct of numbers, all of which may be 0.
    let mut attr: libbpf_sys::perf_event_attr = unsafe { std::mem::zeroed() };
    (attr.type_, attr.config) = (SOFTWARE, CPU_CLOCK);
    attr.size = size_of_val(&attr) as u32;
    attr.__bindgen_anon_1.sample_period = PERIOD_NS;
    let every_task = -1;
    let no_group = -1;
    // SAFETY: the kernel reads `size` bytes of the local.
    let fd = unsafe {
        libc::syscall(
            libc::SYS_perf_event_open,
            &raw const attr,
            every_task,
            cpu as libc::c_int,
            no_group,
            CLOSE_ON_EXEC,
        )
    };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a new file descriptor, nobody else's.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}
