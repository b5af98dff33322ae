// SPDX-License-Identifier: MIT OR Apache-2.0
//! The policy on small machines with random loads: what it promises holds at every step.
//!
//! The model is the least that can run the policy as bpf/ does: queues, idle CPUs, preemption,
//! time in slices. It has no costs and no licences; the simulator will.

use std::collections::BTreeMap;

use policy::{
    Cfg, Clock, Event, QUEUE_NONE, QUEUE_SCALAR, SIDE_DEFAULT, SIDE_NONE, SIDE_OWN, Sides,
    TYPE_SCALAR, Task, Turns,
};
use proptest::prelude::*;

const SLICE_NS: u64 = 1000;
const CFG: Cfg = Cfg {
    slice_ns: SLICE_NS,
    slice_wide_ns: SLICE_NS,
    wide_timeout_ns: 0,
    rest_below_ns: 0,
    remigrate_timeout_ns: 0,
    remigrate: 0,
    unclassified: 0,
    counts_q10: [0; 4],
};

#[derive(Clone, Copy, PartialEq, Debug)]
enum State {
    Asleep,
    Queued(u32),
    Running(usize),
}

struct Job {
    task: Task,
    allowed: Vec<bool>,
    state: State,
    waiting_since_ns: u64,
    key_ns: u64,
}

struct Machine {
    classes: Vec<u32>,
    llcs: Vec<u32>,
    running: Vec<Option<usize>>,
    turns: Vec<Turns>,
    clocks: BTreeMap<u32, Clock>,
    jobs: Vec<Job>,
    now_ns: u64,
}

impl Machine {
    fn clock(&self, id: u32) -> Clock {
        self.clocks.get(&id).copied().unwrap_or_default()
    }

    fn nr_llcs(&self) -> u32 {
        self.llcs.iter().max().map_or(1, |llc| llc + 1)
    }

    fn fits(&self, job: usize, cpu: usize) -> bool {
        self.jobs[job].allowed[cpu] && self.jobs[job].task.fits(self.classes[cpu])
    }

    fn start(&mut self, job: usize, cpu: usize) {
        let j = &mut self.jobs[job];
        j.state = State::Running(cpu);
        self.running[cpu] = Some(job);
    }

    fn idle_cpu(&self, job: usize, llc: u32) -> Option<usize> {
        let task = &self.jobs[job].task;
        let looks = (0..).map_while(|i| task.look(i));
        let here = move |cpu: &usize| self.llcs[*cpu] == llc;
        let on = |(class, scope): (u32, u32)| {
            (0..self.classes.len())
                .filter(move |&cpu| self.classes[cpu] == class)
                .filter(move |cpu| scope > 0 || here(cpu))
        };
        looks.flat_map(on).find(|&cpu| self.running[cpu].is_none() && self.jobs[job].allowed[cpu])
    }

    /// The LLC if it holds a CPU for the job, else one that does: as `home_shard()` in bpf/.
    fn home_llc(&self, job: usize, here: usize) -> u32 {
        let j = &self.jobs[job];
        let (llc, everywhere) = (self.llcs[here], j.allowed.iter().all(|&allowed| allowed));
        let in_llc = (0..self.classes.len()).filter(|&cpu| self.llcs[cpu] == llc);
        let present = in_llc.fold(0, |bits, cpu| bits | 1 << self.classes[cpu]);
        let class = policy::queue_class(j.task.queue());
        let caps = u32::from(j.task.caps);
        let allowed = j.allowed[here];
        if policy::waits_here(class, caps, self.classes[here], allowed, everywhere, present) {
            return llc;
        }
        let class = policy::waits_at_class(class, caps);
        let mut cpus = 0..self.classes.len();
        let there = cpus.find(|&cpu| j.allowed[cpu] && self.classes[cpu] == class);
        there.map_or(llc, |cpu| self.llcs[cpu])
    }

    /// As `place()` in bpf/place.bpf.h.
    fn place(&mut self, job: usize, here: usize, arrives: bool) {
        self.jobs[job].waiting_since_ns = self.now_ns;
        if let Some(cpu) = self.idle_cpu(job, self.llcs[here]) {
            return self.start(job, cpu);
        }
        let id = policy::queue_id(self.home_llc(job, here), self.jobs[job].task.queue());
        let (old, new) = (self.clock(self.jobs[job].task.clock), self.clock(id));
        let most_ns = policy::most_wait_ns(SLICE_NS, 1 + self.nr_queued(id), 1);
        let j = &mut self.jobs[job];
        j.task.place(id, old.vtime_ns, &new, SLICE_NS, most_ns);
        j.key_ns = new.key(&j.task, new.vtime_ns, SLICE_NS, most_ns, self.now_ns);
        j.task.enqueued_ns = self.now_ns;
        j.state = State::Queued(id);
        if j.task.need() > 0 {
            self.preempt_for(job, arrives);
        }
    }

    fn preempt_for(&mut self, job: usize, arrives: bool) {
        let need = self.jobs[job].task.need();
        let rank = |cpu: usize| {
            let queue = self.running[cpu].map_or(QUEUE_NONE, |job| self.jobs[job].task.queue());
            policy::victim_rank(need, self.classes[cpu], queue, u32::from(arrives))
        };
        let candidates = (0..self.classes.len()).filter(|&cpu| self.jobs[job].allowed[cpu]);
        if let Some(cpu) = candidates.filter(|&cpu| rank(cpu) > 0).max_by_key(|&cpu| rank(cpu)) {
            self.switch(cpu, true);
        }
    }

    fn head(&self, id: u32, cpu: usize) -> Option<usize> {
        let queued = (0..self.jobs.len()).filter(|&job| self.jobs[job].state == State::Queued(id));
        let mine = queued.filter(|&job| self.jobs[job].allowed[cpu]);
        mine.min_by_key(|&job| (self.jobs[job].key_ns as i64, job))
    }

    fn nr_queued(&self, id: u32) -> u32 {
        self.jobs.iter().filter(|job| job.state == State::Queued(id)).count() as u32
    }

    /// As `take_from()` in bpf/serve.bpf.h.
    fn take_from(&mut self, cpu: usize, step: u32, llc: u32) -> Option<usize> {
        let own = policy::queue_id(llc, policy::step_queue(self.classes[cpu], step));
        let shared = policy::queue_id(llc, policy::QUEUE_DEFAULT);
        let ids = [own, shared];
        let mut sides = Sides::default();
        for side in [SIDE_OWN, SIDE_DEFAULT] {
            let id = ids[side as usize];
            if side == SIDE_DEFAULT && !policy::step_has_default(step) {
                continue;
            }
            let head = self.jobs.iter().filter(|job| job.state == State::Queued(id));
            sides.key_ns[side as usize] = head.map(|job| job.key_ns).min().unwrap_or(0);
            sides.nr_tasks[side as usize] = self.nr_queued(id);
        }
        let side = self.turns[cpu].choose(&sides, SLICE_NS, self.now_ns);
        if side == SIDE_NONE {
            return None;
        }
        let first = ids[side as usize];
        let second = ids[1 - side as usize];
        if let Some(job) = self.head(first, cpu) {
            if sides.nr_tasks.iter().filter(|&&nr| nr > 0).count() > 1 {
                let class = self.classes[cpu];
                let serves = |other: &&u32| side == SIDE_DEFAULT || **other == class;
                let nr_cpus = self.classes.iter().filter(serves).count() as u32;
                self.turns[cpu].begin(side, first, sides.nr_tasks[side as usize], nr_cpus);
            }
            return Some(job);
        }
        (sides.nr_tasks[1 - side as usize] > 0).then(|| self.head(second, cpu)).flatten()
    }

    fn next(&mut self, cpu: usize, nr_steps: u32) -> Option<usize> {
        let (home, nr_llcs) = (self.llcs[cpu], self.nr_llcs());
        self.turns[cpu].end();
        (0..nr_steps)
            .flat_map(|step| (0..nr_llcs).map(move |i| (step, (home + i) % nr_llcs)))
            .find_map(|(step, llc)| self.take_from(cpu, step, llc))
    }

    /// The CPU's task gives way, if another goes before it or it must: as `serve()`.
    fn switch(&mut self, cpu: usize, preempted: bool) {
        let class = self.classes[cpu];
        let prev = self.running[cpu];
        let stays = prev.filter(|&job| self.fits(job, cpu));
        let better_idle = |job: usize| {
            self.jobs[job].task.is_guest(class)
                && (0..self.classes.len()).any(|c| {
                    self.classes[c] == 0 && self.running[c].is_none() && self.jobs[job].allowed[c]
                })
        };
        let stays = stays.filter(|&job| !better_idle(job));
        let nr_steps = stays.map_or(policy::nr_steps(class), |job| {
            (policy::queue_step(class, self.jobs[job].task.queue()) + 1)
                .min(policy::nr_steps(class))
        });
        let next = self.next(cpu, nr_steps);
        if next.is_none() && stays.is_some() && !preempted {
            return;
        }
        if let Some(next) = next {
            self.jobs[next].state = State::Asleep; // out of its queue
        }
        if let Some(prev) = prev {
            self.running[cpu] = next.map(|_| usize::MAX); // not idle for prev's placement
            self.jobs[prev].state = State::Asleep;
            if next.is_none() {
                self.running[cpu] = None;
            }
            self.place_after(prev, next, cpu);
        } else if let Some(next) = next {
            self.start(next, cpu);
        }
    }

    fn place_after(&mut self, prev: usize, next: Option<usize>, cpu: usize) {
        if let Some(next) = next {
            self.start(next, cpu);
        }
        self.place(prev, cpu, !self.fits(prev, cpu));
        if self.running[cpu].is_none()
            && let Some(next) = self.next(cpu, policy::nr_steps(self.classes[cpu]))
        {
            self.start(next, cpu);
        }
    }

    fn sleep(&mut self, job: usize) {
        if let State::Running(cpu) = self.jobs[job].state {
            self.jobs[job].state = State::Asleep;
            self.running[cpu] = None;
            self.switch(cpu, false);
        }
    }

    fn advance_clock(&mut self, job: usize, charged_ns: u64) {
        let task = &self.jobs[job].task;
        let runs = self.running.iter().flatten();
        let nr_running = runs.filter(|&&job| self.jobs[job].task.clock == task.clock).count();
        let nr_waiting = self.nr_queued(task.clock);
        let clock = self.clocks.entry(task.clock).or_default();
        clock.advance(charged_ns, nr_running as u32 + nr_waiting, nr_waiting, self.now_ns);
    }

    /// One slice passes on every CPU.
    fn slice(&mut self) {
        self.now_ns += SLICE_NS;
        for cpu in 0..self.classes.len() {
            if let Some(job) = self.running[cpu] {
                let task = &mut self.jobs[job].task;
                let charged_ns = self.turns[cpu].charge(task, &CFG, SLICE_NS, false);
                self.advance_clock(job, charged_ns);
            }
            self.switch(cpu, false);
        }
    }

    /// What must hold; `settled`: every CPU has looked for work since the last event. A guest is
    /// in the way of wide work until then at most: a victim may have taken other work.
    fn check(&self, settled: bool) -> Result<(), TestCaseError> {
        let bound_ns = (self.jobs.len() as u64 + 2) * 12 * SLICE_NS;
        for (i, job) in self.jobs.iter().enumerate() {
            match job.state {
                State::Running(cpu) => {
                    prop_assert!(self.fits(i, cpu), "job {i} on CPU {cpu}: {:?}", job.task);
                    let level = u32::from(job.task.level);
                    let reachable =
                        (0..self.classes.len()).any(|c| job.allowed[c] && self.classes[c] >= level);
                    prop_assert!(
                        !reachable || self.classes[cpu] >= level,
                        "level {level} on class {}",
                        self.classes[cpu]
                    );
                }
                State::Queued(id) => {
                    let waited_ns = self.now_ns - job.waiting_since_ns;
                    prop_assert!(
                        waited_ns <= bound_ns,
                        "job {i} waits since {waited_ns} ns: {:?}",
                        job.task
                    );
                    for cpu in 0..self.classes.len() {
                        prop_assert!(
                            self.running[cpu].is_some() || !self.fits(i, cpu),
                            "CPU {cpu} idles, job {i} waits"
                        );
                        let guest = self.running[cpu].is_some_and(|job| {
                            self.classes[cpu] > 0 && self.jobs[job].task.queue() == QUEUE_SCALAR
                        });
                        let wide = id & 255 >= policy::QUEUE_WIDE;
                        prop_assert!(
                            !(settled && guest && wide && self.fits(i, cpu)),
                            "CPU {cpu} runs a guest, wide job {i} waits"
                        );
                    }
                }
                State::Asleep => {}
            }
        }
        Ok(())
    }
}

fn caps(allowed: &[bool], classes: &[u32]) -> u8 {
    allowed
        .iter()
        .zip(classes)
        .filter(|(allowed, _)| **allowed)
        .fold(0, |caps, (_, class)| caps | 1 << class)
}

/// (classes, number of LLCs, affinities, what happens: job and what)
type Story = (Vec<u32>, u32, Vec<u32>, Vec<(usize, u8)>);

fn story() -> impl Strategy<Value = Story> {
    (
        prop::collection::vec(prop_oneof![Just(0u32), Just(0), Just(3), 0u32..4], 1..7),
        1u32..3,
        prop::collection::vec(any::<u32>(), 1..14),
        prop::collection::vec((any::<usize>(), 0u8..8), 0..250),
    )
}

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::with_cases(400)
    })]

    /// Wide work on fit CPUs only; no fit CPU idle while work waits; no guest in the way of wide
    /// work; nobody waits longer than a bound; whatever the classes, affinities and events.
    #[test]
    fn promises_hold((classes, nr_llcs, masks, events) in story()) {
        let n = classes.len();
        let jobs = masks.iter().map(|bits| {
            let mut allowed: Vec<bool> = (0..n).map(|cpu| bits >> cpu & 1 == 1).collect();
            if !allowed.contains(&true) || bits >> 30 == 3 {
                allowed = vec![true; n];
            }
            let mut task = Task::new(&CFG, bits >> 8 & TYPE_SCALAR, 0, 0);
            task.caps = caps(&allowed, &classes);
            Job { task, allowed, state: State::Asleep, waiting_since_ns: 0, key_ns: 0 }
        });
        let mut m = Machine {
            llcs: (0..n as u32).map(|cpu| cpu * nr_llcs / n as u32).collect(),
            running: vec![None; n],
            turns: vec![Turns::default(); n],
            clocks: BTreeMap::new(),
            jobs: jobs.collect(),
            classes,
            now_ns: 1 << 40,
        };
        for job in 0..m.jobs.len() {
            m.place(job, job % n, true);
            m.check(false)?;
        }
        for (who, what) in events {
            let job = who % m.jobs.len();
            match (m.jobs[job].state, what) {
                (State::Running(cpu), 0..4) => {
                    let event = if what == 0 { Event::HintEnd } else { Event::HintBegin };
                    if m.jobs[job].task.event(&CFG, event, u32::from(what), m.now_ns) {
                        m.switch(cpu, !m.fits(job, cpu));
                    }
                }
                (State::Running(_), 4) => m.sleep(job),
                (State::Asleep, _) => m.place(job, who % n, true),
                _ => m.slice(),
            }
            m.check(false)?;
        }
        for _ in 0..30 * m.jobs.len() {
            m.slice();
            m.check(true)?;
        }
    }
}
