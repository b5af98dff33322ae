// SPDX-License-Identifier: MIT OR Apache-2.0
//! A simulation's timelines as a trace for Perfetto, in the format of [`crate::trace_event`].
//!
//! A run is a process, named by machine and policy. In it
//!
//! - each CPU is a thread; what ran on it are slices, coloured by name;
//! - each core has two counters: its clock in MHz, 0 while it is halted, and its licence level. A
//!   core that waits for a licence shows it by a third counter.
//!
//! Limits: the format has no task ids on CPU tracks; a task is found by its name.

use std::io::{self, Write};

use super::{CoreTrack, CpuTrack, SimReport, SimRun, Timeline};
use crate::trace_event::{Arg, TraceEvents, Track};

/// Thread numbers of a run's cores, after those of its CPUs: Perfetto sorts by them.
const CORES: u32 = 100_000;

impl SimReport {
    /// Writes the trace. Runs without a timeline are left out.
    pub fn write_perfetto(&self, out: &mut dyn Write) -> io::Result<()> {
        let mut events = TraceEvents::new(out)?;
        for (process, run) in (1..).zip(&self.runs) {
            if let Some(timeline) = &run.timeline {
                write_run(&mut events, process, run, timeline)?;
            }
        }
        events.finish(&[
            ("scenario", Arg::Text(&self.scenario)),
            ("seed", Arg::Number(self.seed as f64)),
            ("schema", Arg::Number(self.schema.into())),
        ])
    }
}

type Events<'a> = TraceEvents<&'a mut dyn Write>;

fn write_run(
    events: &mut Events,
    process: u32,
    run: &SimRun,
    timeline: &Timeline,
) -> io::Result<()> {
    let name = format!("{}: {}", run.machine.name, run.policy);
    events.name_process(Track { process, thread: 0 }, &name)?;
    for cpu in &timeline.cpus {
        let track = Track { process, thread: cpu.cpu + 1 };
        events.name_thread(track, &format!("CPU {}", cpu.cpu))?;
        write_cpu(events, track, cpu, timeline, &run.machine.levels)?;
    }
    for core in &timeline.cores {
        write_core(events, Track { process, thread: CORES + core.core }, core)?;
    }
    Ok(())
}

fn write_cpu(
    events: &mut Events,
    track: Track,
    cpu: &CpuTrack,
    timeline: &Timeline,
    levels: &[String],
) -> io::Result<()> {
    for (at, &start_ns) in cpu.start_ns.iter().enumerate() {
        let name = &timeline.tasks[cpu.task[at] as usize].name;
        let asks = cpu.asks[at];
        let level = levels.get(usize::from(asks)).map_or("", String::as_str);
        let category = if asks > 0 { "wide" } else { "scalar" };
        let args = [("asks for level", Arg::Number(asks.into())), ("level", Arg::Text(level))];
        events.slice(track, (start_ns, cpu.end_ns[at]), name, category, &args)?;
    }
    Ok(())
}

fn write_core(events: &mut Events, track: Track, core: &CoreTrack) -> io::Result<()> {
    let of = format!("core {}", core.core);
    for (at, &at_ns) in core.at_ns.iter().enumerate() {
        let clock_mhz = f64::from(core.clock_khz[at]) / 1e3;
        events.counter(track, at_ns, &of, "clock MHz", clock_mhz)?;
        events.counter(track, at_ns, &of, "licence level", core.level[at].into())?;
        events.counter(track, at_ns, &of, "throttled", core.throttled[at].into())?;
    }
    Ok(())
}
