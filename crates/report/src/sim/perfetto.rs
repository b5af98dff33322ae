// SPDX-License-Identifier: MIT OR Apache-2.0
//! A simulation's timelines as a trace for Perfetto (ui.perfetto.dev) and chrome://tracing.
//!
//! The format is the JSON trace-event format, which both read: one object with `traceEvents`. A
//! run is a process, named by machine and policy. In it
//!
//! - each CPU is a thread; what ran on it are complete events (`ph: X`), coloured by name;
//! - each core has two counters (`ph: C`): its clock in MHz, 0 while it stands still, and its
//!   licence level. A core that waits for a licence shows it by a third counter.
//!
//! Times in this format are microseconds; they are written with three decimals, so that no
//! nanosecond is lost.
//!
//! Limits: the format has no task ids on CPU tracks; a task is found by its name.

use std::io::{self, Write};

use serde_json::{Value, json};

use super::{CoreTrack, CpuTrack, SimReport, SimRun, Timeline};

/// Thread numbers of a run's cores, behind those of its CPUs: Perfetto sorts by them.
const CORES: u32 = 100_000;

impl SimReport {
    /// Writes the trace. Runs without a timeline are left out.
    pub fn write_perfetto(&self, out: &mut dyn Write) -> io::Result<()> {
        let mut events = Events { out, first: true };
        write!(events.out, "{{\"displayTimeUnit\":\"ns\",\"traceEvents\":[")?;
        for (process, run) in (1..).zip(&self.runs) {
            if let Some(timeline) = &run.timeline {
                events.run(process, run, timeline)?;
            }
        }
        let (scenario, seed) = (&self.scenario, self.seed);
        let about = json!({ "scenario": scenario, "seed": seed, "schema": self.schema });
        writeln!(events.out, "\n],\"otherData\":{about}}}")
    }
}

/// Writes one event a line.
struct Events<'a> {
    out: &'a mut dyn Write,
    first: bool,
}

impl Events<'_> {
    fn event(&mut self, event: &Value) -> io::Result<()> {
        let comma = if std::mem::take(&mut self.first) { "" } else { "," };
        write!(self.out, "{comma}\n{event}")
    }

    fn run(&mut self, process: u32, run: &SimRun, timeline: &Timeline) -> io::Result<()> {
        let name = format!("{}: {}", run.machine.name, run.policy);
        self.name(process, 0, "process_name", &name)?;
        for track in &timeline.cpus {
            self.name(process, track.cpu + 1, "thread_name", &format!("CPU {}", track.cpu))?;
            self.cpu(process, track, timeline, &run.machine.levels)?;
        }
        for track in &timeline.cores {
            self.core(process, track)?;
        }
        Ok(())
    }

    fn name(&mut self, process: u32, thread: u32, what: &str, name: &str) -> io::Result<()> {
        let args = json!({ "name": name });
        self.event(&json!({ "ph": "M", "pid": process, "tid": thread, "name": what, "args": args }))
    }

    fn cpu(
        &mut self,
        process: u32,
        track: &CpuTrack,
        timeline: &Timeline,
        levels: &[String],
    ) -> io::Result<()> {
        for (at, &start_ns) in track.start_ns.iter().enumerate() {
            let task = &timeline.tasks[track.task[at] as usize];
            let asks = track.asks[at];
            let level = levels.get(usize::from(asks)).map_or("", String::as_str);
            self.event(&json!({
                "ph": "X",
                "pid": process,
                "tid": track.cpu + 1,
                "ts": micros(start_ns),
                "dur": micros(track.end_ns[at] - start_ns),
                "name": task.name,
                "cat": if asks > 0 { "wide" } else { "scalar" },
                "args": { "asks for level": asks, "level": level },
            }))?;
        }
        Ok(())
    }

    fn core(&mut self, process: u32, track: &CoreTrack) -> io::Result<()> {
        for (at, &at_ns) in track.at_ns.iter().enumerate() {
            let clock_mhz = f64::from(track.clock_khz[at]) / 1e3;
            let values = [
                ("clock MHz", json!(clock_mhz)),
                ("licence level", json!(track.level[at])),
                ("throttled", json!(u8::from(track.throttled[at]))),
            ];
            for (what, value) in values {
                self.event(&json!({
                    "ph": "C",
                    "pid": process,
                    "tid": CORES + track.core,
                    "ts": micros(at_ns),
                    "name": format!("core {} {what}", track.core),
                    "args": { what: value },
                }))?;
            }
        }
        Ok(())
    }
}

/// Microseconds. An `f64` holds the nanoseconds of 100 days exactly enough for three decimals.
fn micros(ns: u64) -> f64 {
    ns as f64 / 1e3
}
