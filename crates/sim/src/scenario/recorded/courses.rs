// SPDX-License-Identifier: MIT OR Apache-2.0
//! What each task did, in order, in terms that do not depend on the machine.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use cpumodel::{CpuSet, Topology};
use trace::counted::Counted;
use trace::demand::{Bound, highest_at_a_time, of_levels, of_marks, snapped, switches};
use trace::follow::{Run, Task, TaskId};
use trace::levels::Stretch;
use trace::{Info, Why};

use super::cycles::CoreClock;
use super::{Arrivals, Collector, Point, Request, Unusable, Woken};

/// Of all CPU time, what the tasks that are kept have at least: the busiest ones, whether they are
/// a few threads or the thousands of processes of a build.
const KEPT_SHARE: f64 = 0.99;
/// Tasks that are kept, the busiest.
const TASKS_MAX: usize = 4096;
/// Of a task's time, what it sleeps at most if the CPUs limit it.
const SLEEPS_LITTLE: f64 = 0.1;
/// Of the time that tasks run, what they wait for CPUs at least if the CPUs limit them.
const WAITS_MUCH: f64 = 0.1;

/// Something that a task does.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Act {
    /// So many cycles of this level's code, in the kernel or not.
    Work { level: u8, cycles: f64, kernel: bool },
    /// Sleeps, until something outside wakes it after this time.
    Sleep { ns: u64 },
    /// Sleeps for this time: nobody saw what ends it.
    Rest { ns: u64 },
    /// Sleeps, until one of the tasks wakes it.
    Take,
    /// Wakes another.
    Put { to: TaskId },
    /// Returns from the function that is counted.
    Counts,
}

/// A task that is kept.
#[derive(Clone, Debug)]
pub(super) struct Course {
    pub task: TaskId,
    /// With the time at which each began.
    pub acts: Vec<(u64, Act)>,
    /// CPU time, and of that in wide code.
    pub busy_ns: u64,
    pub wide_ns: u64,
    /// Sleeps that something outside ended.
    pub arrivals: u64,
    /// CPUs that it may use; `None`: all of them, or not known.
    pub affinity: Option<CpuSet>,
}

/// All that are kept, and what was found out on the way.
#[derive(Clone, Debug)]
pub(super) struct Courses {
    pub courses: Vec<Course>,
    pub arrivals: Arrivals,
    pub start_ns: u64,
    pub end_ns: u64,
    pub left_out: (usize, f64),
    pub active_cores: usize,
    pub counted: bool,
}

impl Courses {
    /// Whether something is counted.
    pub fn count(&self) -> bool {
        let mut acts = self.courses.iter().flat_map(|course| &course.acts);
        acts.any(|(_, act)| *act == Act::Counts)
    }
}

/// From what was collected.
pub(super) fn of(
    collected: Collector,
    info: &Info,
    tasks: &[Task],
    end_ns: u64,
    request: &Request<'_>,
) -> Result<Courses, Unusable> {
    let Collector { start_ns, runs, levels, woken, points, affinities, waited_ns, .. } = collected;
    let by_cpu = by_cpu(&runs);
    let topology = topology(&by_cpu, info, request)?;
    let (kept, left_out) = kept(&runs, tasks)?;
    let span_ns = end_ns.saturating_sub(start_ns).max(1);
    let active_cores = request.active_cores.unwrap_or_else(|| active(&by_cpu, &topology, span_ns));
    let is_marked = runs.iter().any(|run| run.level > 0);
    let counted = !levels.is_empty();
    if !is_marked && !counted {
        return Err(Unusable::NoWide);
    }
    let clock_khz: Vec<u32> = (0..request.platform.nr_levels() as u8)
        .map(|level| request.platform.clock_khz(level, active_cores))
        .collect();
    let stretches: BTreeMap<u16, Vec<Stretch>> =
        by_cpu.keys().map(|&cpu| (cpu, levels.stretches(cpu, &clock_khz))).collect();
    // A level that no CPU ever had was not asked for, whatever a mark says: the same function may
    // have another form.
    let most = stretches.values().flatten().map(|stretch| stretch.level).max().unwrap_or(u8::MAX);
    let cpus = by_cpu.values().zip(stretches).map(|(runs, (cpu, stretches))| {
        let demand = match is_marked {
            true => of_marks(runs.iter(), most),
            false => {
                let times = &request.platform.times;
                let demand = of_levels(&stretches, times, Bound::Least);
                snapped(demand, &switches(runs.iter()), times)
            }
        };
        (cpu, Counted { stretches, demand })
    });
    let machine = Machine::new(cpus.collect(), by_cpu, topology, request, active_cores);
    let has_wakes = !woken.is_empty();
    let (peers, woken) = wakers(woken, &machine.runs, tasks, &kept);
    let mut acts = Acts { machine: &machine, peers, woken, has_wakes, points, start_ns, end_ns };
    let mut courses: Vec<Course> = Vec::new();
    for (task, runs) in by_task(&runs, &kept) {
        let mut course = acts.course(task, &runs);
        course.affinity = affinities.get(&task).filter(|cpus| !is_everything(cpus, info)).copied();
        courses.push(course);
    }
    let arrivals = request.arrivals.unwrap_or_else(|| limited_by(&courses, &waited_ns, span_ns));
    Ok(Courses { courses, arrivals, start_ns, end_ns, left_out, active_cores, counted })
}

/// What ran on each CPU, in order.
fn by_cpu(runs: &[Run]) -> BTreeMap<u16, Vec<Run>> {
    let mut by_cpu: BTreeMap<u16, Vec<Run>> = BTreeMap::new();
    for run in runs.iter().filter(|run| run.end_ns > run.start_ns) {
        by_cpu.entry(run.cpu).or_default().push(*run);
    }
    by_cpu.values_mut().for_each(|runs| runs.sort_by_key(|run| run.start_ns));
    by_cpu
}

/// Of the machine that was recorded, as far as the model of its CPU says.
fn topology(
    by_cpu: &BTreeMap<u16, Vec<Run>>,
    info: &Info,
    request: &Request<'_>,
) -> Result<Topology, Unusable> {
    let last = by_cpu.keys().next_back().ok_or(Unusable::Empty)?;
    let cpu = usize::from(*last);
    let online: CpuSet = info.cpus.parse().unwrap_or_default();
    let per_package = request.platform.nr_cores * request.platform.threads_per_core;
    // As many packages as its CPUs fill; a guest has a part of one.
    let packages = online.highest().unwrap_or(cpu).max(cpu) / per_package + 1;
    let nr_cpus = per_package * packages;
    if packages > 8 {
        return Err(Unusable::TooSmall { cpu, nr_cpus: per_package });
    }
    debug_assert!(cpu < nr_cpus);
    Ok(request.platform.topology(packages))
}

/// Tasks that ran for long enough, and what is left out.
fn kept(runs: &[Run], tasks: &[Task]) -> Result<(BTreeSet<TaskId>, (usize, f64)), Unusable> {
    let mut busy_ns: BTreeMap<TaskId, u64> = BTreeMap::new();
    for run in runs {
        *busy_ns.entry(run.task).or_default() += run.end_ns - run.start_ns;
    }
    // Who records is no part of the load.
    busy_ns.retain(|&task, _| tasks[task].name.bytes() != b"turbolane");
    let all_ns: u64 = busy_ns.values().sum();
    if all_ns == 0 {
        return Err(Unusable::Empty);
    }
    let mut by_time: Vec<(TaskId, u64)> = busy_ns.iter().map(|(&task, &ns)| (task, ns)).collect();
    by_time.sort_by_key(|&(task, ns)| (std::cmp::Reverse(ns), task));
    let mut sum_ns = 0;
    let enough = |(_, ns): &&(TaskId, u64)| {
        let before_ns = sum_ns;
        sum_ns += ns;
        (before_ns as f64) < KEPT_SHARE * all_ns as f64
    };
    let nr = by_time.iter().take(TASKS_MAX).take_while(enough).count();
    let left_ns: u64 = by_time[nr..].iter().map(|(_, ns)| ns).sum();
    let left_out = (by_time.len() - nr, left_ns as f64 / all_ns as f64);
    Ok((by_time[..nr].iter().map(|(task, _)| *task).collect(), left_out))
}

/// Cores that were busy, on average and rounded up; at least one.
fn active(by_cpu: &BTreeMap<u16, Vec<Run>>, topology: &Topology, span_ns: u64) -> usize {
    let busy_ns = |cpu: usize| -> u64 {
        let runs = u16::try_from(cpu).ok().and_then(|cpu| by_cpu.get(&cpu));
        runs.into_iter().flatten().map(|run| run.end_ns - run.start_ns).sum()
    };
    // Of a core's siblings the busier one.
    let of_core = |core: &cpumodel::Core| core.cpus.iter().map(busy_ns).max().unwrap_or(0);
    let sum_ns: u64 = topology.cores().iter().map(of_core).sum();
    (sum_ns as f64 / span_ns as f64).ceil().max(1.0) as usize
}

/// The recorded machine.
struct Machine {
    counted: BTreeMap<u16, Counted>,
    runs: BTreeMap<u16, Vec<Run>>,
    /// By CPU, of its core.
    clocks: BTreeMap<u16, CoreClock>,
    topology: Topology,
    /// Share of a core that a CPU has while another of its siblings is busy.
    shared: f64,
}

impl Machine {
    fn new(
        counted: BTreeMap<u16, Counted>,
        runs: BTreeMap<u16, Vec<Run>>,
        topology: Topology,
        request: &Request<'_>,
        active_cores: usize,
    ) -> Self {
        let clock = |cpu: &u16| {
            let siblings = topology.siblings_of(usize::from(*cpu));
            let of_core = siblings.iter().filter_map(|cpu| counted.get(&u16::try_from(cpu).ok()?));
            let asked = of_core.flat_map(|counted| counted.demand.iter().copied()).collect();
            let demands = highest_at_a_time(asked);
            let sensitive_frac = request.sensitive_frac;
            (*cpu, CoreClock::new(&demands, request.platform, active_cores, sensitive_frac))
        };
        let clocks = runs.keys().map(clock).collect();
        let threads = request.platform.threads_per_core.max(1) as f64;
        let shared = (request.platform.smt_frac / threads).min(1.0);
        Machine { counted, runs, clocks, topology, shared }
    }

    /// A piece of a run in parts of one level each, with their cycles.
    fn work(&self, run: &Run, start_ns: u64, end_ns: u64) -> Vec<(u64, u8, f64)> {
        let (counted, clock) = (&self.counted[&run.cpu], &self.clocks[&run.cpu]);
        let has_cycles = (!counted.stretches.is_empty()).then_some(counted);
        let part = |&(start_ns, end_ns, level): &(u64, u64, u8)| {
            let cycles = clock.cycles(start_ns, end_ns, level, has_cycles);
            (start_ns, level, cycles * self.share(run.cpu, start_ns, end_ns))
        };
        counted.pieces(start_ns, end_ns).iter().map(part).collect()
    }

    /// What of a core's throughput a CPU had in this time, on average.
    fn share(&self, cpu: u16, start_ns: u64, end_ns: u64) -> f64 {
        if self.shared >= 1.0 || end_ns <= start_ns {
            return 1.0;
        }
        let siblings = self.topology.siblings_of(usize::from(cpu));
        let others = siblings.iter().filter(|&other| other != usize::from(cpu));
        let busy_ns = |other: usize| -> u64 {
            let runs = u16::try_from(other).ok().and_then(|other| self.runs.get(&other));
            let runs = runs.map_or(&[][..], Vec::as_slice);
            let first = runs.partition_point(|run| run.end_ns <= start_ns);
            let within = runs[first..].iter().take_while(|run| run.start_ns < end_ns);
            within.map(|run| run.end_ns.min(end_ns) - run.start_ns.max(start_ns)).sum()
        };
        let both_ns = others.map(busy_ns).max().unwrap_or(0);
        1.0 - (1.0 - self.shared) * both_ns as f64 / (end_ns - start_ns) as f64
    }
}

/// What ends a task's sleep.
#[derive(Clone, Copy, Debug)]
struct End {
    /// When it is runnable.
    at_ns: u64,
    by_peer: bool,
}

type Ends = HashMap<TaskId, Vec<End>>;
type Puts = HashMap<TaskId, Vec<(u64, Point)>>;

/// Who woke whom, of those that are kept: what the wakers did, and what ended the others' sleeps.
fn wakers(
    woken: Vec<Woken>,
    by_cpu: &BTreeMap<u16, Vec<Run>>,
    tasks: &[Task],
    kept: &BTreeSet<TaskId>,
) -> (Puts, Ends) {
    let (mut puts, mut ends) = (Puts::new(), Ends::new());
    for wake in woken.iter().filter(|wake| kept.contains(&wake.task)) {
        let waker = (wake.waker != 0).then(|| runs_at(by_cpu, wake.cpu, wake.at_ns)).flatten();
        let is_peer = |task: &TaskId| {
            tasks[*task].tid == wake.waker && kept.contains(task) && *task != wake.task
        };
        let peer = waker.filter(is_peer);
        let at_ns = wake.at_ns.saturating_sub(wake.delay_ns.into());
        ends.entry(wake.task).or_default().push(End { at_ns, by_peer: peer.is_some() });
        if let Some(peer) = peer {
            puts.entry(peer).or_default().push((wake.at_ns, Point::Wakes(wake.task)));
        }
    }
    (puts, ends)
}

/// Who runs on a CPU at a moment; at a switch, the one that stops.
fn runs_at(by_cpu: &BTreeMap<u16, Vec<Run>>, cpu: u16, at_ns: u64) -> Option<TaskId> {
    let runs = by_cpu.get(&cpu)?;
    let at = runs.partition_point(|run| run.end_ns < at_ns);
    runs.get(at).filter(|run| run.start_ns <= at_ns).map(|run| run.task)
}

/// The runs of each task that is kept, in order.
fn by_task(runs: &[Run], kept: &BTreeSet<TaskId>) -> BTreeMap<TaskId, Vec<Run>> {
    let mut by_task: BTreeMap<TaskId, Vec<Run>> = BTreeMap::new();
    for run in runs.iter().filter(|run| kept.contains(&run.task)) {
        by_task.entry(run.task).or_default().push(*run);
    }
    by_task.values_mut().for_each(|runs| runs.sort_by_key(|run| run.start_ns));
    by_task
}

fn is_everything(cpus: &CpuSet, info: &Info) -> bool {
    info.cpus.parse::<CpuSet>().is_ok_and(|online| online.is_subset(cpus))
}

/// Whether the CPUs limit the load, or what comes from outside. A task counts by its CPU time: one
/// that looks after something once a second sleeps most of the time, and does not matter.
fn limited_by(courses: &[Course], waited_ns: &BTreeMap<TaskId, u64>, span_ns: u64) -> Arrivals {
    let (mut busy_ns, mut waits_ns, mut sleeps) = (0.0, 0.0, 0.0);
    for course in courses {
        let slept_ns = |(_, act): &(u64, Act)| if let Act::Sleep { ns } = act { *ns } else { 0 };
        let asleep = course.acts.iter().map(slept_ns).sum::<u64>() as f64 / span_ns as f64;
        busy_ns += course.busy_ns as f64;
        waits_ns += waited_ns.get(&course.task).copied().unwrap_or(0) as f64;
        sleeps += asleep.min(1.0) * course.busy_ns as f64;
    }
    let is_limit = sleeps <= SLEEPS_LITTLE * busy_ns || waits_ns >= WAITS_MUCH * busy_ns;
    if is_limit { Arrivals::Closed } else { Arrivals::Open }
}

/// Turns runs and what lies between them into acts.
struct Acts<'a> {
    machine: &'a Machine,
    peers: Puts,
    woken: Ends,
    /// Wake-ups were recorded.
    has_wakes: bool,
    points: HashMap<TaskId, Vec<(u64, Point)>>,
    start_ns: u64,
    end_ns: u64,
}

impl Acts<'_> {
    fn course(&mut self, task: TaskId, runs: &[Run]) -> Course {
        let mut points = self.points.remove(&task).unwrap_or_default();
        points.extend(self.peers.remove(&task).unwrap_or_default());
        points.sort_by_key(|(at_ns, _)| *at_ns);
        let ends = self.woken.remove(&task).unwrap_or_default();
        let mut walk =
            Walk { machine: self.machine, points, next: 0, in_kernel: false, acts: Vec::new() };
        let mut arrivals = 0;
        // Since when it sleeps. Who is not woken before it runs for the first time was woken before
        // all that is looked at, and waits for a CPU at first.
        let first_ns = runs.first().map_or(self.start_ns, |run| run.start_ns);
        let waits = self.has_wakes && ends.first().is_none_or(|end| end.at_ns > first_ns);
        let mut asleep_ns = (first_ns > self.start_ns && !waits).then_some(self.start_ns);
        for run in runs {
            if let Some(since_ns) = asleep_ns.take() {
                let act = sleep(&ends, since_ns, run.start_ns);
                arrivals += u64::from(matches!(act, Some(Act::Sleep { .. })));
                walk.acts.extend(act.map(|act| (since_ns, act)));
            }
            walk.run(run);
            asleep_ns = match run.why {
                Some(Why::Sleeps | Why::Blocks | Why::Ends) => Some(run.end_ns),
                Some(Why::Preempted) | None => None,
            };
        }
        if let Some(since_ns) = asleep_ns {
            // Who was woken, and did not run any more, has been woken: else that would be left over
            // when all begin anew.
            let seen = ends.last().is_some_and(|end| end.at_ns >= since_ns);
            let ns = self.end_ns.saturating_sub(since_ns).max(1);
            let act =
                if seen { sleep(&ends, since_ns, self.end_ns) } else { Some(Act::Rest { ns }) };
            walk.acts.extend(act.map(|act| (since_ns, act)));
        }
        let busy_ns: u64 = runs.iter().map(|run| run.end_ns - run.start_ns).sum();
        let wide_ns = (busy_ns as f64 * walk.wide_frac()) as u64;
        Course { task, acts: walk.acts, busy_ns, wide_ns, arrivals, affinity: None }
    }
}

/// What a task does from `since_ns` on until it runs; nothing if it was runnable again at once.
fn sleep(ends: &[End], since_ns: u64, runs_ns: u64) -> Option<Act> {
    let at = ends.partition_point(|end| end.at_ns < since_ns);
    let end = ends.get(at).filter(|end| end.at_ns <= runs_ns);
    match end {
        Some(End { by_peer: true, .. }) => Some(Act::Take),
        Some(End { at_ns, .. }) => {
            let ns = at_ns - since_ns;
            (ns > 0).then_some(Act::Sleep { ns })
        }
        None => Some(Act::Sleep { ns: runs_ns.saturating_sub(since_ns).max(1) }),
    }
}

/// One task's acts, as its runs are walked through.
struct Walk<'a> {
    machine: &'a Machine,
    points: Vec<(u64, Point)>,
    next: usize,
    in_kernel: bool,
    acts: Vec<(u64, Act)>,
}

impl Walk<'_> {
    fn run(&mut self, run: &Run) {
        let mut from_ns = run.start_ns;
        while let Some(&(at_ns, point)) = self.points.get(self.next) {
            // What happens at its end belongs to it: it wakes another and sleeps.
            if at_ns > run.end_ns {
                break;
            }
            self.next += 1;
            let at_ns = at_ns.max(from_ns);
            self.work(run, from_ns, at_ns);
            from_ns = at_ns;
            match point {
                Point::Enter => self.in_kernel = true,
                Point::Exit => self.in_kernel = false,
                Point::Counts => self.acts.push((at_ns, Act::Counts)),
                Point::Wakes(to) => self.acts.push((at_ns, Act::Put { to })),
            }
        }
        self.work(run, from_ns, run.end_ns);
    }

    fn work(&mut self, run: &Run, start_ns: u64, end_ns: u64) {
        for (at_ns, level, cycles) in self.machine.work(run, start_ns, end_ns) {
            let kernel = self.in_kernel;
            match self.acts.last_mut() {
                Some((_, Act::Work { level: last, cycles: sum, kernel: was }))
                    if *last == level && *was == kernel =>
                {
                    *sum += cycles;
                }
                _ if cycles > 0.0 => self.acts.push((at_ns, Act::Work { level, cycles, kernel })),
                _ => {}
            }
        }
    }

    /// Of the cycles, those of wide code.
    fn wide_frac(&self) -> f64 {
        let (mut all, mut wide) = (0.0, 0.0);
        for (_, act) in &self.acts {
            if let Act::Work { level, cycles, .. } = act {
                all += cycles;
                wide += if *level > 0 { *cycles } else { 0.0 };
            }
        }
        if all > 0.0 { wide / all } else { 0.0 }
    }
}
