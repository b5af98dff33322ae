// SPDX-License-Identifier: MIT OR Apache-2.0
//! The scenario's file. People read and change it, so each step is a line, and what the recording
//! could not say is a comment.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use trace::Info;
use trace::follow::TaskId;

use super::courses::{Act, Course, Courses};
use super::groups::GroupMade;
use super::{Arrivals, Made, Request};

/// Acts of all tasks together: a file of some megabytes, read in a second. What comes later in the
/// recording is left out.
const ACTS_MAX: usize = 200_000;
/// Units of work of the entire recording, at most: each is a step.
const UNITS_MAX: f64 = 20_000.0;
/// Class of instructions by level: heavy ones, whose level does not depend on how dense they are
/// here.
const CLASSES: [&str; 3] = ["heavy-256", "heavy-512", "amx"];
/// Simulated time: a policy that adapts needs a while, and a recording may be short.
const DURATION_NS: u64 = 3_000_000_000;
const WARMUP_NS: u64 = 1_000_000_000;

/// Writes it.
pub(super) fn write(
    mut courses: Courses,
    groups: Vec<GroupMade>,
    info: &Info,
    request: &Request<'_>,
) -> Made {
    let window_ns = cut(&mut courses);
    let unit = Unit::of(&courses, request);
    let queues = queues(&courses.courses, &groups);
    let gaps = gaps(info, request);
    let mut text = head(&courses, info, request, window_ns, &gaps);
    for group in &groups {
        text += &group_table(group, &courses, &queues, &unit, request);
    }
    if courses.arrivals == Arrivals::Open {
        for group in groups.iter().filter(|group| group.arrivals > 0) {
            text += &source_table(group, courses.end_ns - courses.start_ns);
        }
    }
    Made {
        text,
        arrivals: courses.arrivals,
        work: unit.name(),
        groups,
        left_out: courses.left_out,
        window_ns,
        recorded_ns: courses.end_ns - courses.start_ns,
        active_cores: courses.active_cores,
        counted: courses.counted,
        gaps,
    }
}

/// What the recording does not show. Losses are written once a second (sched::record).
fn gaps(info: &Info, request: &Request<'_>) -> Vec<&'static str> {
    let cut_off = "the recording was cut off, or is still being written: losses of its last second are not known";
    let affinities =
        "its kernel does not report changes of affinities: tasks keep those they began with";
    let all = [(request.is_partial, cut_off), (!info.affinities, affinities)];
    all.into_iter().filter_map(|(applies, gap)| applies.then_some(gap)).collect()
}

/// Leaves out what is too much, from a moment on that is the same for all. Returns how much time is
/// left.
fn cut(courses: &mut Courses) -> u64 {
    let all_ns = courses.end_ns - courses.start_ns;
    let mut times: Vec<u64> = courses
        .courses
        .iter()
        .flat_map(|course| course.acts.iter().map(|(at_ns, _)| *at_ns))
        .collect();
    if times.len() <= ACTS_MAX {
        return all_ns;
    }
    let (_, &mut until_ns, _) = times.select_nth_unstable(ACTS_MAX);
    for course in &mut courses.courses {
        course.acts.retain(|(at_ns, _)| *at_ns < until_ns);
        // A wait for a task may end after that, by one that is left out.
        if let Some((since_ns, act @ (Act::Take | Act::Sleep { .. }))) = course.acts.last_mut() {
            *act = Act::Rest { ns: (until_ns - *since_ns).max(1) };
        }
    }
    courses.courses.iter_mut().filter(|course| course.acts.is_empty()).for_each(|course| {
        let ns = until_ns.saturating_sub(courses.start_ns).max(1);
        course.acts.push((courses.start_ns, Act::Rest { ns }));
    });
    until_ns - courses.start_ns
}

/// What a completion is.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Unit {
    /// So many millions of cycles.
    Cycles(u64),
    /// A return from the function that is counted.
    Calls,
    /// Work that something outside asked for.
    Arrivals,
}

impl Unit {
    fn of(courses: &Courses, request: &Request<'_>) -> Self {
        if courses.arrivals == Arrivals::Open {
            return Unit::Arrivals;
        }
        if request.counts.is_some() {
            return Unit::Calls;
        }
        let acts = courses.courses.iter().flat_map(|course| &course.acts);
        let cycles = |(_, act): &(u64, Act)| match act {
            Act::Work { cycles, .. } => *cycles,
            _ => 0.0,
        };
        let all: f64 = acts.map(cycles).sum();
        let mut millions = 1;
        while all / (millions as f64 * 1e6) > UNITS_MAX {
            millions *= 10;
        }
        Unit::Cycles(millions)
    }

    fn name(self) -> String {
        match self {
            Unit::Cycles(1) => "million cycles".into(),
            Unit::Cycles(millions) => format!("{millions} million cycles"),
            Unit::Calls => "call".into(),
            Unit::Arrivals => "arrival".into(),
        }
    }
}

/// By task: the queue that it takes from.
type Queues = BTreeMap<TaskId, String>;

fn queues(courses: &[Course], groups: &[GroupMade]) -> Queues {
    let of_group = |group: &GroupMade| -> Queues {
        let members = group.members.iter().enumerate();
        let queue = |(number, &member): (usize, &usize)| {
            (courses[member].task, format!("{}/{number}", group.name))
        };
        members.map(queue).collect()
    };
    groups.iter().flat_map(of_group).collect()
}

fn head(
    courses: &Courses,
    info: &Info,
    request: &Request<'_>,
    window_ns: u64,
    gaps: &[&str],
) -> String {
    let Request { name, machine, .. } = request;
    let clock = match courses.counted {
        true => "Cycles were counted.",
        false => "Cycles are time at the clock that the licence model says the core had.",
    };
    let arrivals = match courses.arrivals {
        Arrivals::Closed => "Sleeps that no recorded task ended last as long as they did.",
        Arrivals::Open => "What no recorded task woke for arrives at the recorded rate.",
    };
    let mut text = format!(
        "# A recording of {}: {:.3} s on {} (Linux {}).\n# {clock} {arrivals}\n\
         # Clocks are those of a machine with {} active cores. Tasks repeat what they did, each in its own program.\n\
         {}schema = 1\nname = {}\nabout = {}\nmachine = {}\nduration_ns = {DURATION_NS}\nwarmup_ns = {WARMUP_NS}\n",
        one_line(&info.target),
        window_ns as f64 / 1e9,
        one_line(&info.processor),
        one_line(&info.kernel),
        courses.active_cores,
        gaps.iter().map(|gap| format!("# Note: {gap}.\n")).collect::<String>(),
        quoted(name),
        quoted(&format!("recorded: {}", one_line(&info.target))),
        quoted(machine),
    );
    for level in levels(&courses.courses) {
        let class = CLASSES[usize::from(level - 1).min(CLASSES.len() - 1)];
        let _ = write!(text, "\n[code.wide-{level}]\nclass = \"{class}\"\nper_cycle = 1.0\n");
        if let Some(scale) = request.none_scale {
            let _ = write!(
                text,
                "[variant.none.code.wide-{level}]\nclass = \"scalar\"\nscale = {scale:?}\n"
            );
        }
    }
    text
}

/// A string as the file has it.
fn quoted(text: &str) -> String {
    toml::Value::String(text.to_owned()).to_string()
}

/// Text from a recording within a comment: it must not end it.
fn one_line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// Levels of wide code that runs.
fn levels(courses: &[Course]) -> BTreeSet<u8> {
    let level = |(_, act): &(u64, Act)| match act {
        Act::Work { level, .. } if *level > 0 => Some(*level),
        _ => None,
    };
    courses.iter().flat_map(|course| &course.acts).filter_map(level).collect()
}

fn group_table(
    group: &GroupMade,
    courses: &Courses,
    queues: &Queues,
    unit: &Unit,
    request: &Request<'_>,
) -> String {
    let (tasks, affinity) = group.placed(request.onto.as_ref());
    let mut text = format!("\n[[group]]\nname = {}\ntasks = {tasks}\n", quoted(&group.name));
    if let Some(cpus) = affinity {
        let _ = writeln!(text, "cpus = \"{cpus}\"");
    }
    // Known to be scalar: its wide code is in sections.
    text += "scalar = true\n";
    if group.kernel {
        text += "kernel = true\n";
    }
    if request.sensitive_frac < 1.0 {
        let khz = request.platform.clock_khz(0, courses.active_cores);
        let sensitive_frac = request.sensitive_frac;
        let _ = write!(text, "sensitive_frac = {sensitive_frac:?}\nreference_khz = {khz}\n");
    }
    let _ = writeln!(text, "work = {}\nprograms = [", quoted(&unit.name()));
    for &member in &group.members {
        text += " [\n";
        let course = &courses.courses[member];
        let mut program = Program::new(queues, courses.arrivals, unit, course.task);
        course.acts.iter().for_each(|(_, act)| program.act(act));
        for step in program.finish() {
            let _ = writeln!(text, "  {step},");
        }
        text += " ],\n";
    }
    text + "]\n"
}

fn source_table(group: &GroupMade, recorded_ns: u64) -> String {
    let gap_ns = (recorded_ns / group.arrivals).max(100);
    format!(
        "\n[[source]]\nname = {}\nto = {}\ngap_ns = {{ mean = {gap_ns} }}\n",
        quoted(&format!("to {}", group.name)),
        quoted(&group.name)
    )
}

/// One task's steps.
struct Program<'a> {
    queues: &'a Queues,
    arrivals: Arrivals,
    unit: &'a Unit,
    task: TaskId,
    steps: Vec<String>,
    level: u8,
    /// Cycles that are less than one, or belong to a unit that is not complete.
    rest: f64,
    towards_unit: u64,
    /// What runs was asked for from outside, and is not answered yet.
    asked: bool,
}

impl<'a> Program<'a> {
    fn new(queues: &'a Queues, arrivals: Arrivals, unit: &'a Unit, task: TaskId) -> Self {
        Program {
            queues,
            arrivals,
            unit,
            task,
            steps: Vec::new(),
            level: 0,
            rest: 0.0,
            towards_unit: 0,
            asked: false,
        }
    }

    fn act(&mut self, act: &Act) {
        match act {
            Act::Work { level, cycles, kernel } => {
                self.be_at(*level);
                self.rest += cycles;
                let whole = self.rest.floor();
                self.rest -= whole;
                self.work(*level, whole as u64, *kernel);
            }
            Act::Sleep { ns } => self.sleep(*ns),
            Act::Rest { ns } => {
                self.answer();
                self.steps.push(format!("{{ sleep_ns = {ns} }}"));
            }
            Act::Take => {
                self.answer();
                self.steps.push(format!("{{ take = {} }}", quoted(&self.queues[&self.task])));
            }
            Act::Put { to } => {
                self.steps.push(format!("{{ put = {} }}", quoted(&self.queues[to])));
            }
            Act::Counts if *self.unit == Unit::Calls => self.done(),
            Act::Counts => {}
        }
    }

    fn finish(mut self) -> Vec<String> {
        self.be_at(0);
        self.answer();
        self.steps
    }

    /// Ends and begins wide sections.
    fn be_at(&mut self, level: u8) {
        if level == self.level {
            return;
        }
        if self.level > 0 {
            self.steps.push("{ wide_end = true }".into());
        }
        if level > 0 {
            self.steps.push(format!("{{ wide_begin = {level} }}"));
        }
        self.level = level;
    }

    /// Work, cut where a unit is complete.
    fn work(&mut self, level: u8, cycles: u64, kernel: bool) {
        let Unit::Cycles(millions) = *self.unit else {
            return self.piece(level, cycles, kernel);
        };
        let (unit, mut left) = (millions * 1_000_000, cycles);
        while left > 0 {
            let whole = left / unit;
            if self.towards_unit == 0 && whole > 1 {
                let piece = step(level, unit, kernel);
                let steps = format!("[{piece}, {{ done = true }}]");
                self.steps.push(format!("{{ repeat = {whole}, steps = {steps} }}"));
                left -= whole * unit;
                continue;
            }
            let now = left.min(unit - self.towards_unit);
            self.piece(level, now, kernel);
            self.towards_unit += now;
            left -= now;
            if self.towards_unit == unit {
                self.towards_unit = 0;
                self.done();
            }
        }
    }

    fn piece(&mut self, level: u8, cycles: u64, kernel: bool) {
        if cycles > 0 {
            self.steps.push(step(level, cycles, kernel));
        }
    }

    fn sleep(&mut self, ns: u64) {
        self.answer();
        match self.arrivals {
            Arrivals::Closed => self.steps.push(format!("{{ sleep_ns = {ns} }}")),
            Arrivals::Open => {
                self.steps.push("{ take = \"inbox\" }".into());
                self.asked = true;
            }
        }
    }

    fn answer(&mut self) {
        if std::mem::take(&mut self.asked) {
            self.done();
        }
    }

    fn done(&mut self) {
        self.steps.push("{ done = true }".into());
    }
}

/// Work as a step.
fn step(level: u8, cycles: u64, kernel: bool) -> String {
    match (kernel, level) {
        (true, _) => format!("{{ syscall_cycles = {cycles} }}"),
        (false, 0) => format!("{{ work = \"scalar\", cycles = {cycles} }}"),
        (false, level) => format!("{{ work = \"wide-{level}\", cycles = {cycles} }}"),
    }
}
