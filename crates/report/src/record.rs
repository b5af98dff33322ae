// SPDX-License-Identifier: MIT OR Apache-2.0
//! A recording in numbers: what `turbolane trace` says.

use serde::{Deserialize, Serialize};

use crate::text::{Align, Table, duration, wrap};

/// A recording in numbers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct RecordSummary {
    /// What was recorded: `system`, `pid N` or the command.
    pub target: String,
    /// The kernel's release.
    pub kernel: String,
    /// The processor's name.
    pub processor: String,
    /// The CPUs that were online.
    pub cpus: String,
    /// Which licence counters there were, or why none.
    pub license_counters: String,
    /// It holds the recording to its end; false: partial, still being written or cut off.
    pub complete: bool,
    /// From the begin to the end, or to the last event of a partial one.
    pub duration_ns: u64,
    /// Events in it.
    pub events: u64,
    /// Events that were dropped because a buffer was full.
    pub lost_events: u64,
    /// The same by CPU, where there are any: CPU, events.
    pub lost_cpus: Vec<(u32, u64)>,
    /// Events that carry the time of the one before them, since they came too late.
    pub late_events: u64,
    /// Switches that contradict the ones before: a consequence of lost events.
    pub contradicting_switches: u64,
    /// Returns from marked functions that were entered before the recording began.
    pub unpaired_returns: u64,
    /// Context switches.
    pub switches: u64,
    /// Wake-ups.
    pub wakes: u64,
    /// Changes of a task's CPU.
    pub migrations: u64,
    /// System calls; `null`: not recorded.
    pub syscalls: Option<u64>,
    /// Instructions that a CPU withheld.
    pub traps: u64,
    /// Idle time of all CPUs; `null`: only some tasks were recorded.
    pub idle_ns: Option<u64>,
    /// Times at which a CPU executed nothing; `null`: not recorded.
    pub stalls: Option<StallSummary>,
    /// Cycles by licence level, from counters; `null`: there are none.
    pub levels: Option<LevelsSummary>,
    /// From wake-up to running; `null`: no one was woken.
    pub wake_latency: Option<LatencySummary>,
    /// The marked functions.
    pub marks: Vec<MarkSummary>,
    /// Tasks that ran, longest first.
    pub tasks: Vec<TaskSummary>,
}

/// Times at which a CPU, a virtual one, executed nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct StallSummary {
    /// How many.
    pub count: u64,
    /// All of them, of all CPUs together.
    pub total_ns: u64,
    /// The longest.
    pub longest_ns: u64,
}

/// Cycles by licence level.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct LevelsSummary {
    /// Counts of a level at a time: looks of the recorder, samples of perf.
    pub samples: u64,
    /// Core cycles at each level, from level 0.
    pub level_cycles: Vec<u64>,
    /// By CPU.
    pub cpus: Vec<CpuLevels>,
    /// By the task that ran when a count was taken, most cycles first.
    pub tasks: Vec<TaskLevels>,
}

/// A CPU's cycles by licence level.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct CpuLevels {
    /// The CPU.
    pub cpu: u32,
    /// Core cycles at each level that it was seen at, from level 0.
    pub level_cycles: Vec<u64>,
}

/// A task's cycles by licence level.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct TaskLevels {
    /// The thread's number.
    pub tid: u32,
    /// Its last name.
    pub name: String,
    /// Core cycles at each level that it was seen at, from level 0.
    pub level_cycles: Vec<u64>,
}

/// How long a wait took.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct LatencySummary {
    /// Waits.
    pub count: u64,
    /// Half of them took no longer.
    pub p50_ns: u64,
    /// 90 %.
    pub p90_ns: u64,
    /// 99 %.
    pub p99_ns: u64,
    /// 99.9 %.
    pub p999_ns: u64,
    /// The longest.
    pub max_ns: u64,
}

/// A marked function.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct MarkSummary {
    /// File and function.
    pub name: String,
    /// Licence level of its code.
    pub level: u8,
    /// Times it was entered.
    pub calls: u64,
}

/// A task.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct TaskSummary {
    /// The thread's number.
    pub tid: u32,
    /// The process's number; 0: unknown.
    pub pid: u32,
    /// Its last name.
    pub name: String,
    /// Time on CPUs.
    pub run_ns: u64,
    /// Of that, inside of marked functions.
    pub wide_ns: u64,
    /// Time that it could have run and did not.
    pub wait_ns: u64,
    /// The longest of these waits.
    pub longest_wait_ns: u64,
    /// Times that it stopped running.
    pub runs: u64,
    /// Of these, to wait for something.
    pub sleeps: u64,
    /// Times it was woken.
    pub wakes: u64,
    /// Times it changed its CPU.
    pub migrations: u64,
    /// Calls of marked functions.
    pub marks: u64,
    /// Instructions that its CPU withheld.
    pub traps: u64,
}

impl RecordSummary {
    /// The recording as text of at most `width` columns, with so many tasks.
    pub fn text(&self, width: usize, top: usize) -> String {
        let mut text = String::new();
        let mut line =
            |label: &str, value: &str| text += &wrap(&format!("{label:<12}"), value, width);
        let partial = "partial: it is still being written, or was cut off";
        line("recording", &format!("{}, {}", self.target, duration(self.duration_ns)));
        if !self.complete {
            line("", partial);
        }
        line("machine", &format!("{}, Linux {}, CPUs {}", self.processor, self.kernel, self.cpus));
        line("licence", &self.license_counters);
        line("events", &self.events_text());
        line("lost", &self.lost_text());
        line("switches", &self.switches_text());
        if let Some(latency) = &self.wake_latency {
            line("wake-ups", &latency.text());
        }
        if let Some(stalls) = &self.stalls {
            line("stalls", &stalls.text());
        }
        if let Some(levels) = &self.levels {
            let (shares, samples) = (levels.shares(&levels.level_cycles), levels.samples);
            line("levels", &format!("{shares} of the cycles in {samples} counts"));
        }
        for mark in &self.marks {
            line("mark", &format!("{}@{}: {} calls", mark.name, mark.level, mark.calls));
        }
        if let Some(levels) = &self.levels {
            text += &levels.tables(width, top);
        }
        if self.levels.is_none() || !self.tasks.is_empty() {
            text += "\n";
            text += &self.task_table(width, top);
        }
        text
    }

    fn events_text(&self) -> String {
        let mut text = self.events.to_string();
        if self.duration_ns > 0 {
            text +=
                &format!(", {:.0} a second", self.events as f64 / (self.duration_ns as f64 / 1e9));
        }
        if self.late_events > 0 {
            text += &format!(
                "; {} reported too late, with the time of the event before",
                self.late_events
            );
        }
        text
    }

    fn lost_text(&self) -> String {
        if self.lost_events == 0 {
            return "none".into();
        }
        let cpus = self.lost_cpus.iter().map(|(cpu, lost)| format!("{lost} on CPU {cpu}"));
        let cpus: Vec<String> = cpus.collect();
        let so = "what follows is incomplete; record with a larger --buffer";
        format!("{} events ({}): {so}", self.lost_events, cpus.join(", "))
    }

    fn switches_text(&self) -> String {
        let mut text = format!("{}, {} migrations", self.switches, self.migrations);
        if let Some(syscalls) = self.syscalls {
            text += &format!(", {syscalls} system calls");
        }
        if self.traps > 0 {
            text += &format!(", {} traps", self.traps);
        }
        if self.contradicting_switches > 0 {
            text += &format!("; {} switches contradict others", self.contradicting_switches);
        }
        text
    }

    fn task_table(&self, width: usize, top: usize) -> String {
        let mut table = Table::new(&[
            ("TID", Align::Right),
            ("RUN", Align::Right),
            ("WIDE", Align::Right),
            ("WIDE %", Align::Right),
            ("WAIT", Align::Right),
            ("LONGEST", Align::Right),
            ("RUNS", Align::Right),
            ("MIGR", Align::Right),
            ("NAME", Align::Left),
        ]);
        for task in self.tasks.iter().take(top) {
            table.row(vec![
                task.tid.to_string(),
                duration(task.run_ns),
                duration(task.wide_ns),
                format!("{:.1}", 100.0 * task.wide_ns as f64 / task.run_ns.max(1) as f64),
                duration(task.wait_ns),
                duration(task.longest_wait_ns),
                task.runs.to_string(),
                task.migrations.to_string(),
                task.name.clone(),
            ]);
        }
        table.text(width) + &more(self.tasks.len(), top, "tasks")
    }
}

/// What a table of so many rows leaves out.
fn more(rows: usize, top: usize, what: &str) -> String {
    let rest = rows.saturating_sub(top);
    if rest > 0 { format!("and {rest} more {what}: --top N\n") } else { String::new() }
}

impl StallSummary {
    fn text(&self) -> String {
        if self.count == 0 {
            return "none: every CPU executed code all the time".into();
        }
        let (total, longest) = (duration(self.total_ns), duration(self.longest_ns));
        format!(
            "CPUs executed nothing {} times, {total} of CPU time in total, {longest} at most",
            self.count
        )
    }
}

impl LevelsSummary {
    fn shares(&self, level_cycles: &[u64]) -> String {
        let shares = self.percents(level_cycles);
        let shares = shares.iter().enumerate().map(|(level, pct)| format!("level {level} {pct} %"));
        shares.collect::<Vec<_>>().join(", ")
    }

    /// Of each level that there is at all, of this many cycles.
    fn percents(&self, level_cycles: &[u64]) -> Vec<String> {
        let all: f64 = level_cycles.iter().map(|&cycles| cycles as f64).sum();
        let cycles = |level: usize| level_cycles.get(level).map_or(0.0, |&cycles| cycles as f64);
        let percent = |level| format!("{:.1}", 100.0 * cycles(level) / all.max(1.0));
        (0..self.level_cycles.len()).map(percent).collect()
    }

    fn tables(&self, width: usize, top: usize) -> String {
        let cpus = self.cpus.iter().map(|cpu| (cpu.cpu, "", &cpu.level_cycles));
        let tasks =
            self.tasks.iter().map(|task| (task.tid, task.name.as_str(), &task.level_cycles));
        let mut text = "\n".to_string() + &self.table("TID", "NAME", tasks, width, top);
        text += &more(self.tasks.len(), top, "tasks");
        text += "\n";
        text += &self.table("CPU", "", cpus, width, top);
        text + &more(self.cpus.len(), top, "CPUs")
    }

    /// Shares of levels of tasks or CPUs, and their share of all cycles.
    fn table<'a>(
        &self,
        of: &str,
        name: &str,
        rows: impl Iterator<Item = (u32, &'a str, &'a Vec<u64>)>,
        width: usize,
        top: usize,
    ) -> String {
        let levels: Vec<String> =
            (0..self.level_cycles.len()).map(|level| format!("LEVEL {level} %")).collect();
        let mut head = vec![(of, Align::Right), ("CYCLES %", Align::Right)];
        head.extend(levels.iter().map(|level| (level.as_str(), Align::Right)));
        head.push((name, Align::Left));
        let mut table = Table::new(&head);
        let sum = |cycles: &[u64]| cycles.iter().map(|&cycles| cycles as f64).sum::<f64>();
        let all = sum(&self.level_cycles).max(1.0);
        for (id, name, level_cycles) in rows.take(top) {
            let mut cells = vec![id.to_string(), format!("{:.1}", 100.0 * sum(level_cycles) / all)];
            cells.extend(self.percents(level_cycles));
            cells.push(name.to_string());
            table.row(cells);
        }
        table.text(width)
    }
}

impl LatencySummary {
    fn text(&self) -> String {
        format!(
            "{}; until it ran: median {}, 90 % {}, 99 % {}, 99.9 % {}, longest {}",
            self.count,
            duration(self.p50_ns),
            duration(self.p90_ns),
            duration(self.p99_ns),
            duration(self.p999_ns),
            duration(self.max_ns)
        )
    }
}
