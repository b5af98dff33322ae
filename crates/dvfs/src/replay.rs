// SPDX-License-Identifier: MIT OR Apache-2.0
//! Replays what one core's CPUs execute, under a policy that decides when the clock is raised.
//!
//! Problem: DIM 6.2.2 applies policies to a recorded list of periods and "dilates the time during
//! periods where the CPU would be executing at a lower frequency", with a fixed cost per change.
//! What a change really takes (throttle before the grant, a halt, both directions, requests that
//! remain although their code has ended) is in `cpumodel::CoreLicense` already, and must not be
//! modelled twice.
//!
//! Idea: the licence is that state machine itself. The replay gives it the demand and its deadlines
//! while a change is in progress, but never its own hold: while it is steady above the demand, the
//! [`Policy`] says when it is to be released, and [`CoreLicense::release`] does it.
//!
//! ```text
//!   period ends -> new demand -> set_demand --above the granted level--> request, halt, grant
//!                     |                                                           |
//!                     +-- below it: Policy::wait -> Raise { at, to } -> release, halt, grant
//! ```
//!
//! Between two events every CPU has one rate, as in `sim::engine`: 0 while the core is halted;
//! throttled if it asks for more than is granted; the granted level's clock otherwise, and with two
//! busy siblings (DIM 7.2) its share of it. Idle time passes at any clock, and a halt hides in it.
//!
//! **Lost time** is what a CPU's code takes beyond what it would take at its own level's clock,
//! granted without a change: the integral of 1 - rate / own rate.
//!
//! Limits: the number of active cores does not change. A period ends on an integer nanosecond,
//! later than it would by less than one. Idle does not lower the licence faster than work does.

use cpumodel::{CoreLicense, MAX_LEVELS, Phase};

use crate::policy::{Gap, Policy, Raise, View};
use crate::{Core, Moment, Timeline, Work};

/// Never.
const NEVER: u64 = u64::MAX;
/// Siblings of a core.
pub(crate) const SIBLINGS_MAX: usize = 2;

/// What came out of a replay.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// Until the last CPU had done everything.
    pub time_ns: u64,
    /// By CPU.
    pub cpus: Vec<CpuOutcome>,
    /// Time by granted level; halts are at none.
    pub level_ns: Vec<u64>,
    /// Time that the core was halted for a change.
    pub halted_ns: u64,
    /// Changes to a lower clock: requests of a level.
    pub lowers: u64,
    /// Changes to a higher clock.
    pub raises: u64,
    /// Energy of the busy core, an estimate; see [`Core::busy_w`].
    pub energy_j: f64,
}

/// What one CPU did.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CpuOutcome {
    /// When it had done everything.
    pub time_ns: u64,
    /// Of that, with code to execute.
    pub busy_ns: u64,
    /// Time lost by the licence; see the module.
    pub lost_ns: f64,
    /// [`Moment::Request`]s.
    pub requests: u64,
}

/// Sees what the licence does. For tests and charts.
pub trait Watch {
    /// The demand of all siblings together is this from now on.
    fn demands(&mut self, _now_ns: u64, _demand: u8) {}
    /// The licence is in this phase at this level from now on.
    fn changed(&mut self, _now_ns: u64, _phase: Phase, _level: u8) {}
}

/// Sees nothing.
#[derive(Debug)]
pub struct Quiet;

impl Watch for Quiet {}

/// One CPU at work.
#[derive(Clone, Copy, Debug, Default)]
struct Cpu {
    /// Index of the period; the number of periods: done.
    at: usize,
    asks: u8,
    busy: bool,
    /// Work that is left of the period: cycles, or ns if it is idle.
    left: f64,
    /// Of `left` per ns, now and at its own level's clock.
    rate: f64,
    own_rate: f64,
    /// `left` is of this time.
    synced_ns: u64,
    /// When the period ends at this rate.
    end_ns: u64,
    sums: CpuOutcome,
}

/// A gap in the demand, see [`Gap`].
#[derive(Clone, Copy, Debug)]
struct OpenGap {
    level: u8,
    demand: u8,
    begin_ns: u64,
    /// When the release began, and when the higher clock was there.
    release_ns: Option<u64>,
    raised_ns: Option<u64>,
}

/// A replay at some moment. Cloning it forks the future.
#[derive(Clone, Debug)]
pub(crate) struct Replay<'a> {
    core: &'a Core,
    timelines: &'a [&'a Timeline],
    now_ns: u64,
    license: CoreLicense,
    cpus: [Cpu; SIBLINGS_MAX],
    nr_busy: u8,
    gap: Option<OpenGap>,
    plan: Option<Raise>,
    /// Something has changed that the policy may want to know.
    ask: bool,
    level_ns: [u64; MAX_LEVELS],
    halted_ns: u64,
    /// The two sums above are of this time.
    counted_ns: u64,
    lowers: u64,
    raises: u64,
    energy_nj: f64,
}

/// Replay the timelines of one core's CPUs under a policy.
///
/// # Panics
/// If there is none or more than two, or one asks for a level that the core does not have.
pub fn replay<P: Policy + ?Sized, W: Watch>(
    core: &Core,
    timelines: &[&Timeline],
    policy: &mut P,
    watch: &mut W,
) -> Outcome {
    let mut replay = Replay::new(core, timelines, policy, watch);
    while replay.advance(policy, watch) {
        let plan = policy.wait(&replay.view());
        replay.decide(plan);
    }
    replay.outcome()
}

impl<'a> Replay<'a> {
    pub(crate) fn new<P: Policy + ?Sized, W: Watch>(
        core: &'a Core,
        timelines: &'a [&'a Timeline],
        policy: &mut P,
        watch: &mut W,
    ) -> Self {
        assert!((1..=SIBLINGS_MAX).contains(&timelines.len()), "a core has one or two CPUs");
        let highest = timelines.iter().map(|timeline| timeline.max_level()).max().unwrap_or(0);
        assert!(usize::from(highest) < core.nr_levels(), "the core has no level {highest}");
        let mut replay = Replay {
            core,
            timelines,
            now_ns: 0,
            license: CoreLicense::default(),
            cpus: [Cpu { end_ns: NEVER, ..Cpu::default() }; SIBLINGS_MAX],
            nr_busy: 0,
            gap: None,
            plan: None,
            ask: false,
            level_ns: [0; MAX_LEVELS],
            halted_ns: 0,
            counted_ns: 0,
            lowers: 0,
            raises: 0,
            energy_nj: 0.0,
        };
        (0..timelines.len()).for_each(|cpu| replay.begin(cpu, policy, watch));
        replay
    }

    /// What a policy may know.
    pub(crate) fn view(&self) -> View<'_> {
        View { now_ns: self.now_ns, core: self.core, license: &self.license }
    }

    /// The policy's answer.
    pub(crate) fn decide(&mut self, plan: Option<Raise>) {
        self.plan = plan;
    }

    pub(crate) fn now_ns(&self) -> u64 {
        self.now_ns
    }

    /// Position of the only CPU: its period, and what is left of it.
    pub(crate) fn position(&self) -> (usize, f64) {
        (self.cpus[0].at, self.left_now(0))
    }

    fn left_now(&self, cpu: usize) -> f64 {
        let c = &self.cpus[cpu];
        (c.left - (self.now_ns - c.synced_ns) as f64 * c.rate).max(0.0)
    }

    /// Goes on until the policy is to be asked (true), or everything is done (false).
    pub(crate) fn advance<P: Policy + ?Sized, W: Watch>(
        &mut self,
        policy: &mut P,
        watch: &mut W,
    ) -> bool {
        let nr_cpus = self.timelines.len();
        loop {
            if self.is_done() {
                return false;
            }
            if std::mem::take(&mut self.ask) {
                self.plan = None;
                if self.is_held() {
                    self.open_gap();
                    return true;
                }
            }
            let change_ns = match self.license.phase() {
                Phase::Steady => self.plan.map_or(NEVER, |plan| plan.at_ns.max(self.now_ns)),
                _ => self.license.deadline_ns(),
            };
            let cpu = if nr_cpus > 1 && self.cpus[1].end_ns < self.cpus[0].end_ns { 1 } else { 0 };
            let end_ns = self.cpus[cpu].end_ns;
            if change_ns <= end_ns {
                self.now_ns = change_ns;
                self.change(watch);
            } else {
                self.now_ns = end_ns;
                self.sync(cpu);
                self.cpus[cpu].at += 1;
                self.begin(cpu, policy, watch);
            }
        }
    }

    /// The licence is steady above what is asked for.
    fn is_held(&self) -> bool {
        self.license.phase() == Phase::Steady && self.license.demand() < self.license.level()
    }

    fn is_done(&self) -> bool {
        let cpus = self.cpus.iter().zip(self.timelines);
        cpus.into_iter().all(|(cpu, timeline)| cpu.at >= timeline.periods().len())
    }

    /// The licence's deadline has come, or that of the plan.
    fn change<W: Watch>(&mut self, watch: &mut W) {
        self.count();
        let times = &self.core.times;
        if self.license.phase() == Phase::Steady {
            let Some(plan) = self.plan.take() else { return };
            if !self.license.release(plan.to, self.now_ns, times) {
                return;
            }
            self.raises += 1;
            if let Some(gap) = &mut self.gap {
                gap.release_ns.get_or_insert(self.now_ns);
            }
        } else {
            self.license.expire(self.now_ns, times);
            match self.license.phase() {
                Phase::Steady => {
                    self.ask = true;
                    if let Some(gap) = self.gap.as_mut().filter(|gap| gap.release_ns.is_some()) {
                        gap.raised_ns.get_or_insert(self.now_ns);
                    }
                }
                // more was asked for in the meantime
                Phase::Throttled => self.lowers += 1,
                Phase::Halted => {}
            }
        }
        watch.changed(self.now_ns, self.license.phase(), self.license.level());
        self.retime_all();
    }

    /// The CPU begins its current period, or has done everything.
    fn begin<P: Policy + ?Sized, W: Watch>(&mut self, cpu: usize, policy: &mut P, watch: &mut W) {
        let timeline = self.timelines[cpu];
        let period = timeline.periods().get(self.cpus[cpu].at);
        let (asks, busy, left) = match period.map(|period| period.work) {
            Some(Work::Code { level, cycles, .. }) => (level, true, cycles as f64),
            Some(Work::Idle { time_ns }) => (0, false, time_ns as f64),
            None => (0, false, 0.0),
        };
        let was_busy = self.cpus[cpu].busy;
        let c = &mut self.cpus[cpu];
        (c.asks, c.busy, c.left) = (asks, busy, left);
        c.synced_ns = self.now_ns;
        if period.is_none() {
            c.sums.time_ns = self.now_ns;
        }
        self.nr_busy = self.nr_busy + u8::from(busy) - u8::from(was_busy);
        // a halt hides in idle time: an occasion to raise the clock
        self.ask |= was_busy != busy;
        let changed = self.demand(policy, watch);
        if let Some(period) = period {
            self.tell(cpu, timeline.moments(period), policy);
        }
        if changed || (was_busy != busy && self.timelines.len() > 1) {
            self.retime_all();
        } else {
            self.retime(cpu);
        }
    }

    fn tell<P: Policy + ?Sized>(&mut self, cpu: usize, moments: &[Moment], policy: &mut P) {
        for moment in moments {
            if *moment == Moment::Request {
                self.cpus[cpu].sums.requests += 1;
            } else {
                policy.told(*moment, &self.view());
                self.ask = true;
            }
        }
    }

    /// Passes the siblings' demand to the licence; true if its phase changed.
    fn demand<P: Policy + ?Sized, W: Watch>(&mut self, policy: &mut P, watch: &mut W) -> bool {
        let demand = self.cpus[0].asks.max(self.cpus[1].asks);
        let old = self.license.demand();
        if demand == old {
            return false;
        }
        self.ask = true;
        watch.demands(self.now_ns, demand);
        self.count();
        let requested = self.license.set_demand(demand, self.now_ns, &self.core.times);
        if requested {
            self.lowers += 1;
            watch.changed(self.now_ns, self.license.phase(), self.license.level());
        }
        if demand > old && demand >= self.license.target() {
            policy.risen();
        }
        let over = |gap: &OpenGap| requested || demand >= gap.level;
        if let Some(gap) = self.gap.take_if(|gap| over(gap)) {
            policy.ended(&gap.closed(self.now_ns));
        }
        requested
    }

    fn open_gap(&mut self) {
        let gap = OpenGap {
            level: self.license.level(),
            demand: self.license.demand(),
            begin_ns: self.now_ns,
            release_ns: None,
            raised_ns: None,
        };
        self.gap.get_or_insert(gap);
    }

    /// Time by level, until now.
    fn count(&mut self) {
        let elapsed_ns = self.now_ns - self.counted_ns;
        self.counted_ns = self.now_ns;
        match self.license.phase() {
            Phase::Halted => self.halted_ns += elapsed_ns,
            _ => self.level_ns[self.license.level() as usize] += elapsed_ns,
        }
    }

    /// What the CPU did since the last time, at the rate that it had.
    fn sync(&mut self, cpu: usize) {
        let c = &mut self.cpus[cpu];
        let elapsed_ns = self.now_ns - c.synced_ns;
        if elapsed_ns == 0 {
            return;
        }
        c.synced_ns = self.now_ns;
        let elapsed = elapsed_ns as f64;
        c.left = (c.left - elapsed * c.rate).max(0.0);
        if c.busy {
            c.sums.busy_ns += elapsed_ns;
            c.sums.lost_ns += elapsed * (1.0 - c.rate / c.own_rate);
            if c.rate > 0.0 {
                let level = self.license.level() as usize;
                self.energy_nj +=
                    elapsed * self.core.busy_w[level] / f64::from(self.nr_busy.max(1));
            }
        }
    }

    fn retime_all(&mut self) {
        (0..self.timelines.len()).for_each(|cpu| self.retime(cpu));
    }

    /// The rate may have changed: count, and say when the period ends now.
    fn retime(&mut self, cpu: usize) {
        self.sync(cpu);
        let Some(period) = self.timelines[cpu].periods().get(self.cpus[cpu].at) else {
            self.cpus[cpu].end_ns = NEVER;
            return;
        };
        let (rate, own_rate) = match period.work {
            Work::Idle { .. } => (1.0, 1.0),
            Work::Code { level, sensitive_frac, .. } => self.rates(level, sensitive_frac),
        };
        let c = &mut self.cpus[cpu];
        (c.rate, c.own_rate) = (rate, own_rate);
        c.end_ns = if c.left <= 0.0 {
            self.now_ns
        } else if rate > 0.0 {
            self.now_ns.saturating_add((c.left / rate).ceil() as u64)
        } else {
            NEVER
        };
    }

    /// Cycles per ns of code that asks for a level: now, and if that level were granted.
    fn rates(&self, asks: u8, sensitive_frac: f32) -> (f64, f64) {
        let share = if self.nr_busy > 1 { self.core.smt_frac / 2.0 } else { 1.0 };
        let at = |level: u8| {
            let clock = self.core.cycles_per_ns(level);
            if sensitive_frac >= 1.0 {
                return share * clock;
            }
            let sensitive = f64::from(sensitive_frac);
            share / (sensitive / clock + (1.0 - sensitive) / self.core.cycles_per_ns(0))
        };
        let now = match self.license.phase() {
            Phase::Halted => 0.0,
            _ if self.license.is_throttled(asks) => {
                at(self.license.level()) * self.core.throttle_frac
            }
            _ => at(self.license.level()),
        };
        (now, at(asks))
    }

    pub(crate) fn outcome(mut self) -> Outcome {
        self.count();
        Outcome {
            time_ns: self.now_ns,
            cpus: self.cpus[..self.timelines.len()].iter().map(|cpu| cpu.sums).collect(),
            level_ns: self.level_ns[..self.core.nr_levels()].to_vec(),
            halted_ns: self.halted_ns,
            lowers: self.lowers,
            raises: self.raises,
            energy_j: self.energy_nj / 1e9,
        }
    }
}

impl OpenGap {
    fn closed(&self, now_ns: u64) -> Gap {
        Gap {
            level: self.level,
            demand: self.demand,
            held_ns: self.release_ns.unwrap_or(now_ns) - self.begin_ns,
            raised_ns: self.raised_ns.map_or(0, |raised_ns| now_ns - raised_ns),
        }
    }
}

impl Outcome {
    /// Time lost by all CPUs.
    pub fn lost_ns(&self) -> f64 {
        self.cpus.iter().map(|cpu| cpu.lost_ns).sum()
    }

    /// Units of work of all CPUs.
    pub fn requests(&self) -> u64 {
        self.cpus.iter().map(|cpu| cpu.requests).sum()
    }
}
