// SPDX-License-Identifier: MIT OR Apache-2.0
//! A record of a run: who ran where and at which clock, over time, for charts and exports.
//!
//! A series holds points at which something changed; between two points it is constant. A record
//! has a window and a limit: a run of minutes has more switches than a chart has pixels or a file
//! should have bytes. What did not fit is counted, not silently dropped.

use crate::events::{Happened, Sink};
use crate::sys::Tid;

/// A core's licence from a point in time on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LicensePoint {
    /// From when, ns since the start of the run.
    pub at_ns: u64,
    /// Granted level.
    pub level: u8,
    /// Clock, kHz; 0 while the core is halted.
    pub khz: u32,
    /// It waits for a higher level.
    pub throttled: bool,
}

/// What a CPU runs from a point in time on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunPoint {
    /// From when, ns since the start of the run.
    pub at_ns: u64,
    /// The task; `None` if it idles.
    pub task: Option<Tid>,
    /// Level that its code asks for.
    pub asks: u8,
}

/// A CPU's class from a point in time on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClassPoint {
    /// From when, ns since the start of the run.
    pub at_ns: u64,
    /// Highest level that may run there, 0 = scalar CPU.
    pub class: u8,
}

/// A record.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunRecord {
    /// The window, ns since the start of the run.
    pub from_ns: u64,
    /// Its end.
    pub to_ns: u64,
    /// Core of each CPU.
    pub core_of: Vec<u16>,
    /// By core: its licence. The first point may be before the window.
    pub licenses: Vec<Vec<LicensePoint>>,
    /// By CPU: what it runs. The first point may be before the window.
    pub runs: Vec<Vec<RunPoint>>,
    /// By CPU: its class. The first point may be before the window.
    pub classes: Vec<Vec<ClassPoint>>,
    /// Group of each task.
    pub group_of: Vec<u16>,
    /// Names of the groups.
    pub groups: Vec<String>,
    /// Points that exceeded the limit; 0: the record is complete.
    pub nr_dropped: u64,
}

impl RunRecord {
    /// What a CPU ran in the window: from when, until when, what.
    pub fn run_spans(&self, cpu: usize) -> impl Iterator<Item = (u64, u64, &RunPoint)> {
        self.spans(&self.runs[cpu], |point| point.at_ns)
    }

    /// A core's licence in the window: from when, until when, which.
    pub fn license_spans(&self, core: usize) -> impl Iterator<Item = (u64, u64, &LicensePoint)> {
        self.spans(&self.licenses[core], |point| point.at_ns)
    }

    /// Points with the times between which each holds.
    fn spans<'a, P>(
        &self,
        points: &'a [P],
        at_ns: fn(&P) -> u64,
    ) -> impl Iterator<Item = (u64, u64, &'a P)> {
        let (from_ns, to_ns) = (self.from_ns, self.to_ns);
        points.iter().enumerate().filter_map(move |(i, point)| {
            let start_ns = at_ns(point).max(from_ns);
            let end_ns = points.get(i + 1).map_or(to_ns, at_ns);
            (start_ns < end_ns).then_some((start_ns, end_ns, point))
        })
    }
}

/// Keeps a record.
#[derive(Clone, Debug)]
pub struct Recorder {
    record: RunRecord,
    limit: usize,
    nr_points: usize,
}

/// Replaces the last point while the window has not begun, and an earlier one of the same time.
fn push<P: Copy>(series: &mut Vec<P>, point: P, at_ns: impl Fn(&P) -> u64, from_ns: u64) -> bool {
    let now_ns = at_ns(&point);
    match series.last_mut() {
        Some(last) if now_ns <= from_ns || at_ns(last) == now_ns => {
            *last = point;
            false
        }
        _ => {
            series.push(point);
            true
        }
    }
}

impl Recorder {
    /// Of a machine with these cores by CPU, from one time to another, at most so many points.
    pub fn new(core_of: Vec<u16>, from_ns: u64, to_ns: u64, limit: usize) -> Self {
        let nr_cpus = core_of.len();
        let nr_cores = core_of.iter().max().map_or(0, |&core| core as usize + 1);
        let record = RunRecord {
            from_ns,
            to_ns,
            core_of,
            licenses: vec![Vec::new(); nr_cores],
            runs: vec![vec![RunPoint { at_ns: 0, task: None, asks: 0 }]; nr_cpus],
            classes: vec![vec![ClassPoint { at_ns: 0, class: 0 }]; nr_cpus],
            ..Default::default()
        };
        Recorder { record, limit, nr_points: 0 }
    }

    /// The record, with the names of the groups and who belongs to them.
    pub fn finish(mut self, groups: Vec<String>, group_of: Vec<u16>) -> RunRecord {
        self.record.groups = groups;
        self.record.group_of = group_of;
        self.record
    }

    fn run(&mut self, cpu: u16, point: RunPoint) {
        let from_ns = self.record.from_ns;
        let series = &mut self.record.runs[cpu as usize];
        self.nr_points += usize::from(push(series, point, |p| p.at_ns, from_ns));
    }

    fn take(&mut self, at_ns: u64, what: &Happened<'_>) {
        let from_ns = self.record.from_ns;
        match *what {
            Happened::Start { task, cpu } => {
                let asks = self.record.runs[cpu as usize].last().map_or(0, |p| p.asks);
                self.run(cpu, RunPoint { at_ns, task: Some(task), asks });
            }
            Happened::Stop { cpu, .. } => {
                self.run(cpu, RunPoint { at_ns, task: None, asks: 0 });
            }
            Happened::Asks { cpu, level } => {
                let task = self.record.runs[cpu as usize].last().and_then(|p| p.task);
                self.run(cpu, RunPoint { at_ns, task, asks: level });
            }
            Happened::License { core, level, khz, throttled } => {
                let point = LicensePoint { at_ns, level, khz, throttled };
                let series = &mut self.record.licenses[core as usize];
                self.nr_points += usize::from(push(series, point, |p| p.at_ns, from_ns));
            }
            Happened::Class { cpu, class } => {
                let series = &mut self.record.classes[cpu as usize];
                if series.last().is_none_or(|last| last.class != class) {
                    let point = ClassPoint { at_ns, class };
                    self.nr_points += usize::from(push(series, point, |p| p.at_ns, from_ns));
                }
            }
            _ => {}
        }
    }
}

impl Sink for Recorder {
    const WANTED: bool = true;

    fn happened(&mut self, at_ns: u64, what: &Happened<'_>) {
        if at_ns >= self.record.to_ns {
            return;
        }
        if self.nr_points >= self.limit {
            self.record.nr_dropped += 1;
            return;
        }
        self.take(at_ns, what);
    }
}
