// SPDX-License-Identifier: MIT OR Apache-2.0
//! What one CPU or one task of a recording executed, as a timeline that replays take
//! ([`report::timeline`]).
//!
//! A timeline counts work in cycles at the clock of level 0, a recording knows time:
//!
//! ```text
//!   cycles = time * clock of level 0
//! ```
//!
//! as if the recorded machine had run at that clock all along. It is what DIM 6.2 replays too: a
//! trace of a machine that was not slowed down. On one that was, wide code and what follows it is
//! counted too long, by the ratio of the clocks. Where licence levels were recorded, cycles were:
//! they are the work, whatever the clock was.
//!
//! Time in which the CPU had no task to run, or the task did not run, is idle time. Neighbouring
//! pieces of one level are one period.
//!
//! **Levels.** What a period requests is the level of the marked functions that it is in. Without
//! marks, recorded licence levels are used ([`crate::demand`]). If there are both, marks are used,
//! and [`Export::demand`] reports how much of the recorded levels they explain.
//!
//! **Hints.** DIM 6.2.2's server says "raise the clock" when "the last packet of an HTTP request
//! was received and decrypted, which we identify by the return value of the corresponding OpenSSL
//! function call". A recording holds no return values, but it shows what they made the server do:
//! if a call that takes something in is followed by one that answers, it was the last one of a
//! request. [`Calls`] names both; after the former a unit of work begins, and the hint is given.
//!
//! **Switches.** Where a CPU switches to another task, a mark says which level its power score
//! expects ([`crate::scores`]), if levels were recorded or follow from marks.

use std::collections::{BTreeMap, BTreeSet};

use cpumodel::Times;
use report::timeline::{AMOUNT_MAX, Moment, Period};

use crate::counted::{Agreement, Counted};
use crate::demand::{Bound, Demand, levels_of, of_levels, of_marks, snapped, switches};
use crate::event::{Event, Name, What};
use crate::follow::{Run, Task, TaskId, Visit};
use crate::levels::{Levels, Stretch};
use crate::scores::{Arrival, Scores};

/// Whose timeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Of {
    /// All that ran on this CPU.
    Cpu(u16),
    /// All that this task ran, by the kernel's number: the first that had it.
    Task(u32),
}

/// Marked functions by which requests are distinguished: numbers of marks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Calls {
    /// Takes in what belongs to a request.
    pub takes: u32,
    /// Answers one.
    pub answers: u32,
}

/// The recorded hardware.
#[derive(Clone, Debug, PartialEq)]
pub struct Hardware {
    /// Clock by level; it has no others.
    pub clock_khz: Vec<u32>,
    /// Times of its changes, the hold among them.
    pub times: Times,
}

/// A timeline, and where it comes from.
#[derive(Clone, Debug, PartialEq)]
pub struct Export {
    /// The periods; none if nothing of the kind ran.
    pub periods: Vec<Period>,
    /// Where their levels come from, if licence levels were recorded.
    pub demand: Option<report::timeline::Demand>,
    /// Switches from one task to another, where marks say what is expected of the next.
    pub switches: usize,
    /// Power scores, at the end, of the tasks that were switched to, the highest first.
    pub scores: Vec<Scored>,
}

/// A task's power score.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scored {
    /// The kernel's number.
    pub tid: u32,
    /// Its name.
    pub name: Name,
    /// The score, as a number of levels.
    pub score: f64,
}

/// Collects a timeline.
#[derive(Debug)]
pub struct Timeline {
    of: Of,
    hardware: Hardware,
    bound: Bound,
    calls: Option<Calls>,
    task: Option<TaskId>,
    /// Of everybody, everywhere.
    runs: Vec<Run>,
    levels: Levels,
    /// Of each task that ran: number and last name.
    tasks: BTreeMap<TaskId, (u32, Name)>,
    /// By number of the task: when it returned from taking something in.
    took_ns: BTreeMap<u32, u64>,
    /// When requests were complete.
    complete_ns: BTreeSet<u64>,
}

/// `level` is `None` while nothing ran.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Piece {
    start_ns: u64,
    level: Option<u8>,
    /// Time of which no cycles were counted.
    ns: u64,
    /// Cycles that were.
    cycles: f64,
}

impl Timeline {
    /// As recorded on this hardware, by the least demand that explains its levels.
    pub fn new(of: Of, hardware: Hardware) -> Self {
        Timeline {
            of,
            hardware,
            bound: Bound::Least,
            calls: None,
            task: None,
            runs: Vec::new(),
            levels: Levels::default(),
            tasks: BTreeMap::new(),
            took_ns: BTreeMap::new(),
            complete_ns: BTreeSet::new(),
        }
    }

    /// The same with requests and hints, which these calls report.
    #[must_use]
    pub fn with_hints(self, calls: Calls) -> Self {
        Timeline { calls: Some(calls), ..self }
    }

    /// The same by this one of the demands that explain the levels.
    #[must_use]
    pub fn with_bound(self, bound: Bound) -> Self {
        Timeline { bound, ..self }
    }

    /// What was collected, after the recording's end.
    pub fn export(&self) -> Export {
        let ours: Vec<Run> = self.runs.iter().filter(|run| self.is_ours(run)).copied().collect();
        let (arrivals, scores) = self.scores();
        let (counted, demand) = self.asked(&ours);
        let expected = arrivals.iter().map(|arrival| (arrival.at_ns, arrival.expected)).collect();
        let periods = self.periods(&ours, &counted, &expected);
        Export { periods, demand, switches: arrivals.len(), scores }
    }

    /// What was counted where something ran that is ours, what was asked for there, and how that is
    /// known. Nothing, if no levels were counted.
    fn asked(&self, ours: &[Run]) -> (BTreeMap<u16, Counted>, Option<report::timeline::Demand>) {
        if self.levels.is_empty() {
            return (BTreeMap::new(), None);
        }
        let cpus: BTreeSet<u16> = ours.iter().map(|run| run.cpu).collect();
        if self.runs.iter().any(|run| run.level > 0 && cpus.contains(&run.cpu)) {
            let counted = self.counted(&cpus, |cpu, _| self.marked_on(cpu));
            let demand = self.check(ours, &counted);
            return (counted, Some(demand));
        }
        let by_levels = |bound: Bound| {
            let times = &self.hardware.times;
            self.counted(&cpus, |cpu, stretches| {
                snapped(of_levels(stretches, times, bound), &switches(self.runs_on(cpu)), times)
            })
        };
        let (least, most) = (by_levels(Bound::Least), by_levels(Bound::Most));
        let demand = report::timeline::Demand::Levels {
            hold_ns: self.hardware.times.relax_ns,
            raised_ns: sum(ours, &least, Counted::raised_ns),
            least_ns: sum(ours, &least, Counted::wide_ns),
            most_ns: sum(ours, &most, Counted::wide_ns),
            most: self.bound == Bound::Most,
        };
        (if self.bound == Bound::Most { most } else { least }, Some(demand))
    }

    /// Switches of the CPU from one task to another, and the scores of these tasks; none of a
    /// task's timeline, and none if no one knows levels.
    fn scores(&self) -> (Vec<Arrival>, Vec<Scored>) {
        let Of::Cpu(ours) = self.of else { return Default::default() };
        let cpus: BTreeSet<u16> = self.runs.iter().map(|run| run.cpu).collect();
        let is_counted = !self.levels.is_empty();
        let levels = self.counted(&cpus, |cpu, _| match is_counted {
            true => Vec::new(),
            false => levels_of(&self.marked_on(cpu), &self.hardware.times),
        });
        if !is_counted && levels.values().all(|counted| counted.demand.is_empty()) {
            return Default::default();
        }
        let all = Scores::of(&self.runs, |cpu, side| match is_counted {
            true => levels[&cpu].level(side),
            false => levels[&cpu].asked(side.moment_ns()),
        });
        let mut arrivals: Vec<Arrival> =
            all.arrivals.into_iter().filter(|arrival| arrival.cpu == ours).collect();
        arrivals.dedup_by_key(|arrival| arrival.task);
        // Who came before the first one is not known.
        arrivals.drain(..arrivals.len().min(1));
        let tasks: BTreeSet<TaskId> = arrivals.iter().map(|arrival| arrival.task).collect();
        let scored = |task: &TaskId| {
            let (tid, name) = self.tasks[task];
            Scored { tid, name, score: all.scores[task].value() }
        };
        let mut scores: Vec<Scored> = tasks.iter().map(scored).collect();
        scores.sort_by(|one, other| other.score.total_cmp(&one.score));
        (arrivals, scores)
    }

    fn is_ours(&self, run: &Run) -> bool {
        match self.of {
            Of::Cpu(cpu) => run.cpu == cpu,
            Of::Task(_) => Some(run.task) == self.task,
        }
    }

    /// What was counted on some CPUs, and asked for there.
    fn counted(
        &self,
        cpus: &BTreeSet<u16>,
        demand: impl Fn(u16, &[Stretch]) -> Vec<Demand>,
    ) -> BTreeMap<u16, Counted> {
        let of_cpu = |&cpu: &u16| {
            let stretches = self.levels.stretches(cpu, &self.hardware.clock_khz);
            (cpu, Counted { demand: demand(cpu, &stretches), stretches })
        };
        cpus.iter().map(of_cpu).collect()
    }

    fn runs_on(&self, cpu: u16) -> impl Iterator<Item = &Run> {
        self.runs.iter().filter(move |run| run.cpu == cpu)
    }

    /// What marks say that was asked for on a CPU.
    fn marked_on(&self, cpu: u16) -> Vec<Demand> {
        of_marks(self.runs_on(cpu), self.level_max())
    }

    /// How the levels agree with the marks.
    fn check(&self, ours: &[Run], counted: &BTreeMap<u16, Counted>) -> report::timeline::Demand {
        let times = &self.hardware.times;
        let mut sums = Agreement::default();
        for (cpu, counted) in counted {
            let levels = levels_of(&counted.demand, times);
            let expected = Counted { stretches: Vec::new(), demand: levels };
            for run in ours.iter().filter(|run| run.cpu == *cpu) {
                counted.compare(&expected, run.start_ns, run.end_ns, &mut sums);
            }
        }
        let Agreement { raised_ns, explained_ns, unmet_ns } = sums;
        let wide_ns = sum(ours, counted, Counted::wide_ns);
        let hold_ns = times.relax_ns;
        report::timeline::Demand::Marks { hold_ns, wide_ns, raised_ns, explained_ns, unmet_ns }
    }

    fn level_max(&self) -> u8 {
        self.hardware.clock_khz.len() as u8 - 1
    }

    /// `expected`: when tasks were switched to, and what is expected of them.
    fn periods(
        &self,
        ours: &[Run],
        counted: &BTreeMap<u16, Counted>,
        expected: &BTreeMap<u64, u8>,
    ) -> Vec<Period> {
        let mut periods: Vec<Period> = Vec::new();
        for piece in self.pieces(ours, counted, expected) {
            let first = periods.len();
            periods.extend(self.of_piece(piece));
            let switch = expected.get(&piece.start_ns).filter(|_| piece.level.is_some());
            periods[first].moments.extend(switch.map(|level| Moment::Switch(*level)));
            // Inside of other wide code nothing is cut there, and a hint would be void.
            if self.complete_ns.contains(&piece.start_ns) {
                periods[first].moments.extend([Moment::Request, Moment::Force]);
            }
        }
        periods
    }

    /// What ran, cut where the level changes and where something is expected; other neighbours of
    /// one level are one.
    fn pieces(
        &self,
        ours: &[Run],
        counted: &BTreeMap<u16, Counted>,
        expected: &BTreeMap<u64, u8>,
    ) -> Vec<Piece> {
        let mut pieces: Vec<Piece> = Vec::new();
        let mut push = |piece: Piece| match pieces.last_mut() {
            _ if piece.ns == 0 && piece.cycles == 0.0 => {}
            Some(last) if last.level == piece.level && !expected.contains_key(&piece.start_ns) => {
                (last.ns, last.cycles) = (last.ns + piece.ns, last.cycles + piece.cycles);
            }
            _ => pieces.push(piece),
        };
        let mut until_ns = None;
        for run in ours {
            let idle_ns = run.start_ns.saturating_sub(until_ns.unwrap_or(run.start_ns));
            let start_ns = run.start_ns - idle_ns;
            push(Piece { start_ns, level: None, ns: idle_ns, cycles: 0.0 });
            until_ns = Some(run.end_ns);
            match counted.get(&run.cpu) {
                Some(counted) => {
                    let cut = counted.pieces(run.start_ns, run.end_ns);
                    cut.iter().for_each(|cut| push(self.counted_piece(counted, *cut)));
                }
                None => push(Piece {
                    start_ns: run.start_ns,
                    level: Some(run.level.min(self.level_max())),
                    ns: run.end_ns - run.start_ns,
                    cycles: 0.0,
                }),
            }
        }
        pieces
    }

    fn counted_piece(&self, counted: &Counted, cut: (u64, u64, u8)) -> Piece {
        let (start_ns, end_ns, level) = cut;
        let (cycles, counted_ns) = counted.cycles(start_ns, end_ns);
        let ns = end_ns - start_ns - counted_ns;
        Piece { start_ns, level: Some(level.min(self.level_max())), ns, cycles }
    }

    fn of_piece(&self, piece: Piece) -> Vec<Period> {
        let Some(level) = piece.level else {
            let idle = |idle_ns| Period { idle_ns: Some(idle_ns), ..Period::default() };
            return parts(u128::from(piece.ns)).map(idle).collect();
        };
        let uncounted = u128::from(piece.ns) * u128::from(self.hardware.clock_khz[0]) / 1_000_000;
        // A moment is a cycle: it is enough to ask for a level.
        let cycles = (uncounted + piece.cycles.round() as u128).max(1);
        let busy = |cycles| Period { level, cycles: Some(cycles), ..Period::default() };
        parts(cycles).map(busy).collect()
    }
}

/// A time of all runs together, as what was counted on their CPUs has it.
fn sum(runs: &[Run], counted: &BTreeMap<u16, Counted>, of: fn(&Counted, u64, u64) -> u64) -> u64 {
    runs.iter().map(|run| of(&counted[&run.cpu], run.start_ns, run.end_ns)).sum()
}

/// An amount in as many parts as periods that hold it need.
fn parts(amount: u128) -> impl Iterator<Item = u64> {
    let (most, mut left) = (u128::from(AMOUNT_MAX), amount);
    std::iter::from_fn(move || {
        let part = left.min(most);
        left -= part;
        (part > 0).then_some(part as u64)
    })
}

impl Visit for Timeline {
    fn event(&mut self, event: &Event, _task: Option<TaskId>) {
        self.levels.take(event);
        let Some(calls) = self.calls else { return };
        let ours = match self.of {
            Of::Cpu(cpu) => event.cpu == cpu,
            Of::Task(tid) => event.tid == tid,
        };
        if !ours {
            return;
        }
        match event.what {
            What::MarkReturn { mark } if mark == calls.takes => {
                self.took_ns.insert(event.tid, event.at_ns);
            }
            What::Mark { mark } if mark == calls.answers => {
                self.complete_ns.extend(self.took_ns.remove(&event.tid));
            }
            _ => {}
        }
    }

    fn ran(&mut self, run: &Run, task: &Task) {
        if self.of == Of::Task(task.tid) {
            self.task.get_or_insert(run.task);
        }
        self.tasks.insert(run.task, (task.tid, task.name));
        self.runs.push(*run);
    }
}
