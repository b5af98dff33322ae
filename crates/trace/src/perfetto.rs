// SPDX-License-Identifier: MIT OR Apache-2.0
//! A recording as a trace for Perfetto, in the format of [`report::trace_event`].
//!
//! ```text
//!   CPUs        CPU 0   |nginx |   |nginx ||x265 (wide)  |      slices: who ran
//!   nginx       tid 71  |CPU 0 |...|CPU 0 |                     slices: where it ran, and "waits"
//!   x265        tid 90                     |CPU 0 (wide) |
//! ```
//!
//! A run inside of marked functions has the category `wide` and says the level. Traps are moments.
//! Licence levels are a counter for each CPU: what a look at its counters finds is the mean level
//! since the look before, or since the switch before.
//!
//! Limits: the format wants the name of a slice with the slice, so a task has the name there that
//! it had at the time; its track has the last one.

use std::collections::{BTreeMap, HashSet};
use std::io::{self, Write};

use report::trace_event::{Arg, TraceEvents, Track};

use crate::event::{Event, What};
use crate::follow::{Follower, Run, Task, TaskId, Visit, Wait};
use crate::info::Info;

/// The process that holds the CPUs' tracks; tasks' processes have their own number, which is never
/// 0.
const CPUS: u32 = 0;

/// The last look at a CPU's counters of licence levels.
#[derive(Clone, Copy)]
struct Levels {
    since_ns: u64,
    at_ns: u64,
    cycles: f64,
    /// Cycles times their level.
    weighted: f64,
}

/// Writes a recording while it is followed.
pub struct Perfetto<W> {
    events: TraceEvents<W>,
    start_ns: u64,
    cpus: HashSet<u16>,
    levels: BTreeMap<u16, Levels>,
    /// The first error ends the writing and is reported at the end.
    error: io::Result<()>,
}

impl<W: Write> Perfetto<W> {
    /// Writes to `out`; times are counted from the recording's begin.
    pub fn new(out: W, info: &Info) -> io::Result<Self> {
        let mut events = TraceEvents::new(out)?;
        events.name_process(Track { process: CPUS, thread: 0 }, "CPUs")?;
        let (cpus, levels) = (HashSet::new(), BTreeMap::new());
        Ok(Perfetto { events, start_ns: info.start_ns, cpus, levels, error: Ok(()) })
    }

    /// Names the tracks, and ends the document.
    pub fn finish(mut self, info: &Info, follower: &Follower) -> io::Result<()> {
        for (cpu, levels) in std::mem::take(&mut self.levels) {
            self.write_levels(cpu, levels);
        }
        self.error?;
        for cpu in self.cpus {
            self.events.name_thread(of_cpu(cpu), &format!("CPU {cpu}"))?;
        }
        for task in follower.tasks().iter().filter(|task| task.tid != 0) {
            let name = task.name.to_string();
            if task.tgid == task.tid || task.tgid == 0 {
                self.events.name_process(of_task(task), &name)?;
            }
            self.events.name_thread(of_task(task), &name)?;
        }
        self.events.finish(&[
            ("target", Arg::Text(&info.target)),
            ("kernel", Arg::Text(&info.kernel)),
            ("schema", Arg::Number(report::SCHEMA.into())),
        ])
    }

    fn write(&mut self, write: impl FnOnce(&mut TraceEvents<W>) -> io::Result<()>) {
        if self.error.is_ok() {
            self.error = write(&mut self.events);
        }
    }

    /// A look at a CPU's counters of levels, which may consist of several events of one time.
    fn look(&mut self, cpu: u16, at_ns: u64) -> &mut Levels {
        let new = |since_ns| Levels { since_ns, at_ns, cycles: 0.0, weighted: 0.0 };
        let last = self.levels.get(&cpu).copied();
        if let Some(last) = last.filter(|last| last.at_ns != at_ns) {
            self.write_levels(cpu, last);
            self.levels.insert(cpu, new(last.at_ns));
        }
        let start_ns = self.start_ns;
        self.levels.entry(cpu).or_insert_with(|| new(start_ns))
    }

    fn write_levels(&mut self, cpu: u16, levels: Levels) {
        if levels.cycles > 0.0 {
            let (of, mean) = (format!("CPU {cpu}"), levels.weighted / levels.cycles);
            let since_ns = levels.since_ns.saturating_sub(self.start_ns);
            let track = of_cpu(cpu);
            self.write(|events| events.counter(track, since_ns, &of, "licence level", mean));
        }
    }
}

fn of_cpu(cpu: u16) -> Track {
    Track { process: CPUS, thread: u32::from(cpu) + 1 }
}

/// Where the process is not known, the task is alone.
fn of_task(task: &Task) -> Track {
    Track { process: if task.tgid == 0 { task.tid } else { task.tgid }, thread: task.tid }
}

impl<W: Write> Visit for Perfetto<W> {
    fn ran(&mut self, run: &Run, task: &Task) {
        self.cpus.insert(run.cpu);
        // A damaged file may have events before its begin.
        let time = [run.start_ns, run.end_ns].map(|at_ns| at_ns.saturating_sub(self.start_ns));
        let time = (time[0], time[1]);
        let category = if run.level > 0 { "wide" } else { "scalar" };
        let level = ("level of marks", Arg::Number(run.level.into()));
        let (name, place) = (task.name.to_string(), format!("CPU {}", run.cpu));
        let (on_cpu, on_task) = (of_cpu(run.cpu), of_task(task));
        let tid = ("tid", Arg::Number(task.tid.into()));
        self.write(|events| {
            events.slice(on_cpu, time, &name, category, &[tid, level])?;
            events.slice(on_task, time, &place, category, &[level])
        });
    }

    fn waited(&mut self, wait: &Wait, task: &Task) {
        // One that was asked for before the recording began waited in it since then.
        let start_ns = wait.start_ns.saturating_sub(self.start_ns);
        let time = (start_ns, wait.end_ns.saturating_sub(self.start_ns));
        let why = if wait.woken { "was woken" } else { "was preempted" };
        let track = of_task(task);
        self.write(|events| events.slice(track, time, "waits", "waits", &[("it", Arg::Text(why))]));
    }

    fn event(&mut self, event: &Event, _: Option<TaskId>) {
        if let What::Trap { level, .. } = event.what {
            let (at_ns, track) = (event.at_ns.saturating_sub(self.start_ns), of_cpu(event.cpu));
            self.write(|events| events.moment(track, at_ns, &format!("trap, level {level}")));
        }
        match event.what {
            What::LevelCycles { license_level, cycles } => {
                self.cpus.insert(event.cpu);
                let levels = self.look(event.cpu, event.at_ns);
                levels.cycles += cycles as f64;
                levels.weighted += cycles as f64 * f64::from(license_level);
            }
            // What is counted next has begun here.
            What::Switch { .. } => {
                self.look(event.cpu, event.at_ns);
            }
            _ => {}
        }
    }
}
