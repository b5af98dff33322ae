// SPDX-License-Identifier: MIT OR Apache-2.0
//! Two queues of a step on one CPU: shares and waits, whatever the tasks do with their turns.

use std::collections::BTreeMap;

use policy::{Cfg, QUEUE_DEFAULT, QUEUE_SCALAR, Task, Turns};
use proptest::prelude::*;

const SLICE_NS: u64 = 1_000_000;

const CFG: Cfg = Cfg {
    slice_ns: SLICE_NS,
    slice_wide_ns: SLICE_NS,
    wide_timeout_ns: 0,
    rest_below_ns: 0,
    remigrate_timeout_ns: 0,
    remigrate: 0,
    unclassified: 0,
};

fn own() -> u32 {
    policy::queue_id(0, QUEUE_SCALAR)
}

fn shared() -> u32 {
    policy::queue_id(0, QUEUE_DEFAULT)
}

struct Job {
    task: Task,
    queue: u32,
    /// Runs so long at a time, then queues up again.
    run_ns: u64,
    used_ns: u64,
    since_ns: u64,
    longest_wait_ns: u64,
}

/// One CPU and tasks that always want to run.
struct Cpu {
    turns: Turns,
    jobs: Vec<Job>,
    clocks: BTreeMap<u32, u64>,
    running: Option<usize>,
    now_ns: u64,
}

impl Cpu {
    fn new(jobs: &[(u32, u32, u64)]) -> Self {
        let job = |&(queue, weight, run_ns): &(u32, u32, u64)| Job {
            task: Task { weight, clock: queue, ..Task::default() },
            queue,
            run_ns,
            used_ns: 0,
            since_ns: 0,
            longest_wait_ns: 0,
        };
        Cpu {
            turns: Turns::default(),
            jobs: jobs.iter().map(job).collect(),
            clocks: BTreeMap::from([(own(), 0), (shared(), 0)]),
            running: None,
            now_ns: 0,
        }
    }

    fn waiting(&self, queue: u32) -> Vec<usize> {
        let waits = |i: &usize| self.jobs[*i].queue == queue && Some(*i) != self.running;
        let mut waiting: Vec<usize> = (0..self.jobs.len()).filter(waits).collect();
        waiting.sort_by_key(|&i| self.jobs[i].task.vtime_ns as i64);
        waiting
    }

    /// One task runs for its time; what ran before queues up behind the choice, as in the kernel.
    fn step(&mut self) {
        self.turns.end();
        let (a, b) = (self.waiting(own()), self.waiting(shared()));
        let next = if a.is_empty() || b.is_empty() {
            a.first().or(b.first()).copied().or(self.running).expect("there are tasks")
        } else {
            let (queue, tasks) = if self.turns.own_first() { (own(), a) } else { (shared(), b) };
            self.turns.begin(queue, tasks.len() as u32);
            tasks[0]
        };
        if let Some(prev) = self.running.filter(|&prev| prev != next) {
            let clock_ns = self.clocks[&self.jobs[prev].queue];
            let job = &mut self.jobs[prev];
            job.task.place(job.queue, clock_ns, clock_ns, SLICE_NS);
            job.since_ns = self.now_ns;
        }
        let nr_tasks =
            self.jobs.iter().filter(|job| job.queue == self.jobs[next].queue).count() as u32;
        let job = &mut self.jobs[next];
        if self.running != Some(next) {
            job.longest_wait_ns = job.longest_wait_ns.max(self.now_ns - job.since_ns);
        }
        *self.clocks.get_mut(&job.queue).expect("both are there") +=
            self.turns.charge_all(&mut job.task, &CFG, job.run_ns, nr_tasks, false);
        job.used_ns += job.run_ns;
        self.now_ns += job.run_ns;
        self.running = Some(next);
    }

    fn run(&mut self, until_ns: u64) {
        while self.now_ns < until_ns {
            self.step();
        }
        for i in 0..self.jobs.len() {
            if self.running != Some(i) {
                let waited_ns = self.now_ns - self.jobs[i].since_ns;
                let job = &mut self.jobs[i];
                job.longest_wait_ns = job.longest_wait_ns.max(waited_ns);
            }
        }
    }
}

/// Fuzz finding 102400: a task that has used up its slice waits behind two that run for a moment at a
/// time, in a queue beside eight tasks with full slices.
#[test]
fn short_runs_do_not_starve_who_is_behind_them() {
    let mut jobs = vec![(own(), 100, SLICE_NS / 50); 2];
    jobs.push((own(), 100, SLICE_NS));
    jobs.extend([(shared(), 100, SLICE_NS); 8]);
    let mut cpu = Cpu::new(&jobs);
    cpu.run(1000 * SLICE_NS);
    let waited_ns = cpu.jobs[2].longest_wait_ns;
    assert!(waited_ns <= 2 * 11 * SLICE_NS, "{waited_ns} ns");
    // nor do they get more than everybody
    for job in &cpu.jobs {
        assert!(job.used_ns <= 1000 * SLICE_NS / 8, "{} ns", job.used_ns);
    }
}

/// Without a turn of its queue's, what a task uses is not counted.
#[test]
fn only_turns_count() {
    let task = Task { weight: 100, clock: own(), ..Task::default() };
    let mut turns = Turns::default();
    turns.charge(&task, SLICE_NS, SLICE_NS);
    assert_eq!(turns, Turns::default());
    turns.begin(shared(), 1);
    turns.charge(&task, SLICE_NS, SLICE_NS);
    assert_eq!(turns.lead_ns, 0, "another queue's task");
    turns.begin(own(), 4);
    turns.charge(&task, SLICE_NS, SLICE_NS);
    assert_eq!(turns.lead_ns, SLICE_NS as i64 / 4);
    turns.end();
    turns.charge(&task, SLICE_NS, SLICE_NS);
    assert_eq!(turns.lead_ns, SLICE_NS as i64 / 4);
}

/// Tasks that always go first when they may get half of a CPU that others want too, and a slice or two
/// to begin with; on a CPU that nobody else wants they owe nothing afterwards.
#[test]
fn who_goes_first_gets_half() {
    let mut turns = Turns::default();
    let (mut first_ns, mut rest_ns) = (0, 0);
    for _ in 0..10_000 {
        let first = turns.may_go_first(SLICE_NS);
        let used_ns = if first { SLICE_NS / 100 } else { SLICE_NS };
        turns.charge_first(first, used_ns, SLICE_NS);
        *(if first { &mut first_ns } else { &mut rest_ns }) += used_ns;
    }
    assert!(first_ns <= rest_ns + 2 * SLICE_NS, "{first_ns} {rest_ns}");
    assert!(first_ns * 10 >= rest_ns * 9, "{first_ns} {rest_ns}");
    turns.charge_first(true, 1000 * SLICE_NS, SLICE_NS);
    assert!(!turns.may_go_first(SLICE_NS));
    turns.charge_first(false, SLICE_NS, SLICE_NS);
    assert!(turns.may_go_first(SLICE_NS));
}

/// (queue, weight, run) of so many tasks in each queue.
fn jobs(least: usize) -> impl Strategy<Value = Vec<(u32, u32, u64)>> {
    let job = |queue: u32| (Just(queue), 50u32..200, SLICE_NS / 100..SLICE_NS);
    let some = move |queue| prop::collection::vec(job(queue), least..least + 5);
    (some(own()), some(shared())).prop_map(|(a, b)| [a, b].concat())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(100) })]

    /// Nobody waits longer than all others, by their weights, need for two slices.
    #[test]
    fn waits_are_bounded(jobs in jobs(1)) {
        let mut cpu = Cpu::new(&jobs);
        cpu.run(500 * SLICE_NS);
        let weights: u64 = jobs.iter().map(|job| u64::from(job.1)).sum();
        for job in &cpu.jobs {
            let bound_ns = 2 * SLICE_NS * weights / u64::from(job.task.weight) + 2 * SLICE_NS;
            prop_assert!(job.longest_wait_ns <= bound_ns,
                         "{} > {bound_ns} ns: {jobs:?}", job.longest_wait_ns);
        }
    }

    /// Each queue gets the CPU by the weights of its tasks, up to the task that runs and so does not
    /// count as waiting: of three tasks two, and a task that gives up the CPU early has to wait.
    #[test]
    fn shares_follow_weights(jobs in jobs(3)) {
        let mut cpu = Cpu::new(&jobs);
        cpu.run(1000 * SLICE_NS);
        let share = |queue: u32, of: &dyn Fn(&Job) -> u64| {
            let sum = |all: bool| -> u64 {
                cpu.jobs.iter().filter(|job| all || job.queue == queue).map(of).sum()
            };
            sum(false) as f64 / sum(true) as f64
        };
        for queue in [own(), shared()] {
            let fair = share(queue, &|job| u64::from(job.task.weight));
            let got = share(queue, &|job| job.used_ns);
            prop_assert!(got > fair / 2.0, "{got} of {fair}: {jobs:?}");
        }
    }

    /// A balance is bounded by two slices of the task charged, and a charge never turns it back.
    #[test]
    fn balance_is_bounded(charges in prop::collection::vec(
        (any::<bool>(), 1u32..10, 1u32..10_000, 0u64..100 * SLICE_NS), 0..100)) {
        let mut turns = Turns::default();
        for (is_own, nr_tasks, weight, used_ns) in charges {
            let clock = if is_own { own() } else { shared() };
            let task = Task { weight, clock, ..Task::default() };
            let before = turns.lead_ns;
            turns.begin(clock, nr_tasks);
            turns.charge(&task, used_ns, SLICE_NS);
            let limit = (2 * SLICE_NS * 100 / u64::from(weight)) as i64;
            if is_own {
                prop_assert!(turns.lead_ns >= before && turns.lead_ns <= before.max(limit));
            } else {
                prop_assert!(turns.lead_ns <= before && turns.lead_ns >= before.min(-limit));
            }
        }
    }
}
