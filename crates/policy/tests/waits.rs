// SPDX-License-Identifier: MIT OR Apache-2.0
//! policy/clock.h and turns.h: no task waits longer than a bound that knows no weights, and CPU
//! time is shared by weight all the same.

use std::collections::BTreeMap;

use policy::{
    Cfg, Clock, QUEUE_DEFAULT, QUEUE_SCALAR, SIDE_DEFAULT, SIDE_NONE, SIDE_OWN, SIDE_PINNED, Sides,
    Task, Turns, WEIGHT_NICE0, WEIGHT_UNIT,
};
use proptest::prelude::*;

const MS: u64 = 1_000_000;
const SLICE_NS: u64 = 5 * MS;
/// The kernel ends slices at ticks.
const TICK_NS: u64 = 4 * MS;
/// TL_WAIT_NS.
const WAIT_NS: u64 = 1_000 * MS;
/// TL_TURN_LATE_NS.
const LATE_NS: u64 = 200 * MS;

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

/// A task that always wants to run.
struct Hog {
    task: Task,
    /// [`SIDE_OWN`] ...
    side: usize,
    /// Gives the CPU up after this long.
    run_ns: u64,
    key_ns: u64,
    since_ns: u64,
    slice_ns: u64,
    used_ns: u64,
    longest_ns: u64,
    cpu: Option<usize>,
}

/// Some CPUs that serve the same two queues, and one more each for its pinned tasks.
struct Machine {
    turns: Vec<Turns>,
    clocks: BTreeMap<u32, Clock>,
    hogs: Vec<Hog>,
    running: Vec<Option<usize>>,
    now_ns: u64,
}

impl Machine {
    fn new(nr_cpus: usize, hogs: &[(u32, u32, u64)]) -> Self {
        let mut m = Machine {
            turns: vec![Turns::default(); nr_cpus],
            clocks: BTreeMap::new(),
            hogs: Vec::new(),
            running: vec![None; nr_cpus],
            now_ns: 1,
        };
        for &(side, weight, run_ns) in hogs {
            m.hogs.push(Hog {
                task: Task { weight: weight * WEIGHT_UNIT, ..Task::default() },
                side: side as usize,
                run_ns,
                key_ns: 0,
                since_ns: 1,
                slice_ns: SLICE_NS,
                used_ns: 0,
                longest_ns: 0,
                cpu: None,
            });
            m.queue_up(m.hogs.len() - 1);
        }
        m
    }

    fn id(&self, hog: usize) -> u32 {
        match self.hogs[hog].side as u32 {
            SIDE_OWN => policy::queue_id(0, QUEUE_SCALAR),
            SIDE_DEFAULT => policy::queue_id(0, QUEUE_DEFAULT),
            // pinned tasks belong to the first CPU
            _ => policy::pinned_id(0),
        }
    }

    /// (waiting and running, CPUs) of a side.
    fn load(&self, side: usize) -> (u32, u32) {
        let nr_tasks = self.hogs.iter().filter(|hog| hog.side == side).count() as u32;
        (nr_tasks, if side == SIDE_PINNED as usize { 1 } else { self.running.len() as u32 })
    }

    fn queue_up(&mut self, hog: usize) {
        let (id, (nr_tasks, nr_cpus)) = (self.id(hog), self.load(self.hogs[hog].side));
        let clock = *self.clocks.entry(id).or_default();
        let h = &mut self.hogs[hog];
        let old_ns = if h.task.clock == 0 { h.task.vtime_ns } else { clock.vtime_ns };
        let most_ns = policy::most_wait_ns(SLICE_NS, nr_tasks, nr_cpus);
        h.task.place(id, old_ns, &clock, SLICE_NS, most_ns);
        h.key_ns = clock.key(&h.task, clock.vtime_ns, SLICE_NS, most_ns, self.now_ns);
        h.slice_ns = clock.slice_from_ns(&h.task, SLICE_NS, nr_tasks, nr_cpus);
        (h.since_ns, h.cpu) = (self.now_ns, None);
    }

    fn head(&self, side: usize) -> Option<usize> {
        let waits = |&hog: &usize| self.hogs[hog].side == side && self.hogs[hog].cpu.is_none();
        (0..self.hogs.len()).filter(waits).min_by_key(|&hog| (self.hogs[hog].key_ns as i64, hog))
    }

    /// As `serve()` in bpf/serve.bpf.h, with what ran until now.
    fn choose(&mut self, cpu: usize) -> Option<usize> {
        let prev = self.running[cpu];
        let mut sides = Sides::default();
        let nr_sides = if cpu == 0 { 3 } else { 2 };
        let heads: Vec<_> = (0..nr_sides).map(|side| self.head(side)).collect();
        for (side, head) in heads.iter().enumerate() {
            let waiting = self.hogs.iter().filter(|hog| hog.side == side && hog.cpu.is_none());
            sides.nr_tasks[side] = waiting.count() as u32;
            sides.key_ns[side] = head.map_or(0, |hog| self.hogs[hog].key_ns);
        }
        let mut keeps = None;
        if let Some(hog) = prev {
            let (side, h) = (self.hogs[hog].side, &self.hogs[hog]);
            let clock = self.clocks[&self.id(hog)];
            let (nr_tasks, nr_cpus) = self.load(side);
            let most_ns = policy::most_wait_ns(SLICE_NS, nr_tasks, nr_cpus);
            let key_ns = clock.key(&h.task, clock.vtime_ns, SLICE_NS, most_ns, self.now_ns);
            let before = |a: u64, b: u64| (a.wrapping_sub(b) as i64) < 0;
            if sides.nr_tasks[side] == 0 || before(key_ns, sides.key_ns[side]) {
                (sides.key_ns[side], keeps) = (key_ns, Some(side));
            }
            sides.nr_tasks[side] += 1;
        }
        let side = self.turns[cpu].choose(&sides, SLICE_NS, self.now_ns);
        if side == SIDE_NONE {
            return None;
        }
        let next = if keeps == Some(side as usize) { prev } else { heads[side as usize] };
        let next = next.expect("the side has a task");
        self.turns[cpu].end();
        if sides.nr_tasks.iter().filter(|&&nr| nr > 0).count() > 1 {
            let id = self.id(next);
            let (nr_tasks, nr_cpus) = self.load(side as usize);
            self.turns[cpu].begin(side, id, nr_tasks, nr_cpus);
        }
        Some(next)
    }

    fn serve(&mut self, cpu: usize) {
        let (prev, next) = (self.running[cpu], self.choose(cpu));
        if prev == next {
            return;
        }
        if let Some(next) = next {
            let h = &mut self.hogs[next];
            h.longest_ns = h.longest_ns.max(self.now_ns - h.since_ns);
            h.cpu = Some(cpu);
        }
        if let Some(prev) = prev {
            self.queue_up(prev);
        }
        self.running[cpu] = next;
    }

    /// One tick passes on all CPUs; who has used its slice, or wants to give up the CPU, does.
    fn tick(&mut self) {
        self.now_ns += TICK_NS;
        for cpu in 0..self.running.len() {
            let Some(hog) = self.running[cpu] else {
                self.serve(cpu);
                continue;
            };
            let id = self.id(hog);
            let used_ns = TICK_NS.min(self.hogs[hog].run_ns);
            let h = &mut self.hogs[hog];
            let charged_ns = self.turns[cpu].charge(&mut h.task, &CFG, used_ns, false);
            (h.used_ns, h.slice_ns) = (h.used_ns + used_ns, h.slice_ns.saturating_sub(used_ns));
            let over = h.slice_ns == 0 || h.run_ns < TICK_NS;
            let (nr_tasks, _) = self.load(self.hogs[hog].side);
            let nr_running = self.hogs.iter().filter(|h| h.cpu.is_some()).count() as u32;
            let nr_waiting = nr_tasks.saturating_sub(nr_running);
            let now_ns = self.now_ns;
            let clock = self.clocks.get_mut(&id).expect("it queued up");
            clock.advance(charged_ns, nr_tasks, nr_waiting, now_ns);
            if over {
                self.serve(cpu);
            }
        }
    }

    fn run(&mut self, until_ns: u64) {
        while self.now_ns < until_ns {
            self.tick();
        }
        for h in self.hogs.iter_mut().filter(|h| h.cpu.is_none()) {
            h.longest_ns = h.longest_ns.max(self.now_ns - h.since_ns);
        }
    }

    /// What nobody may exceed: it knows the number of tasks, no weights.
    fn bound_ns(&self) -> u64 {
        let slice_ns = SLICE_NS.next_multiple_of(TICK_NS);
        let sides = (0..3).map(|side| self.load(side)).filter(|load| load.0 > 0);
        // pinned tasks take turns with a share of all others on one CPU
        let round_ns: u64 = sides
            .map(|(nr_tasks, nr_cpus)| {
                let slice_ns = policy::slice_in_round_ns(slice_ns, nr_tasks, nr_cpus).max(TICK_NS);
                (u64::from(nr_tasks) * slice_ns).div_ceil(u64::from(nr_cpus))
            })
            .sum();
        let w_ns = WAIT_NS.saturating_sub(round_ns).max(WAIT_NS / 4);
        w_ns * 9 / 8 + LATE_NS + 2 * round_ns + 4 * slice_ns
    }

    fn share(&self, hog: usize) -> f64 {
        let all: u64 = self.hogs.iter().map(|hog| hog.used_ns).sum();
        self.hogs[hog].used_ns as f64 / all as f64
    }
}

/// The stall of the first round: 30 busy tasks and one of nice 19, on one CPU. It waited for 12.8
/// s.
#[test]
fn nice_19_runs_beside_thirty() {
    for side in [SIDE_OWN, SIDE_DEFAULT, SIDE_PINNED] {
        let mut hogs = vec![(SIDE_OWN, 100, u64::MAX); 30];
        hogs.push((side, 1, u64::MAX));
        let mut m = Machine::new(1, &hogs);
        m.run(30_000 * MS);
        let longest_ns = m.hogs[30].longest_ns;
        assert!(longest_ns <= m.bound_ns(), "side {side}: {longest_ns} ns");
        assert!(longest_ns <= 2_000 * MS, "side {side}: {longest_ns} ns");
    }
}

/// One task among a thousand, of every weight: the wait is that of a round.
#[test]
fn a_thousand_hogs_run_within_two_seconds() {
    let weights = [1, 10, 100, 1_000, 10_000];
    let hogs: Vec<_> = (0..1000)
        .map(|i| ([SIDE_OWN, SIDE_OWN, SIDE_DEFAULT][i % 3], weights[i % 5], u64::MAX))
        .collect();
    let mut m = Machine::new(4, &hogs);
    m.run(20_000 * MS);
    let longest_ns = m.hogs.iter().map(|hog| hog.longest_ns).max().unwrap();
    assert!(longest_ns <= 2_000 * MS, "{longest_ns} ns");
}

/// Shares of two and three busy tasks are those of their weights, in one queue and in several.
#[test]
fn shares_follow_weights() {
    let cases: [&[(u32, u32)]; 6] = [
        &[(SIDE_OWN, 1000), (SIDE_OWN, 100)],
        &[(SIDE_OWN, 1000), (SIDE_OWN, 10)],
        &[(SIDE_OWN, 10_000), (SIDE_OWN, 300), (SIDE_OWN, 300)],
        &[(SIDE_OWN, 1000), (SIDE_DEFAULT, 100)],
        &[(SIDE_OWN, 300), (SIDE_DEFAULT, 100), (SIDE_PINNED, 50)],
        &[(SIDE_OWN, 100), (SIDE_OWN, 100), (SIDE_OWN, 20)],
    ];
    for case in cases {
        let hogs: Vec<_> = case.iter().map(|&(side, weight)| (side, weight, u64::MAX)).collect();
        let mut m = Machine::new(1, &hogs);
        m.run(60_000 * MS);
        let all: u32 = case.iter().map(|hog| hog.1).sum();
        for (i, &(_, weight)) in case.iter().enumerate() {
            let due = f64::from(weight) / f64::from(all);
            let got = m.share(i);
            assert!(
                (got - due).abs() <= 0.1 * due.max(0.05),
                "{case:?}: {i} got {got:.4} of {due:.4}"
            );
        }
    }
}

/// Sixteen light tasks and four heavy ones on four CPUs, as two control groups of equal weight are:
/// half of the CPUs for either.
#[test]
fn heavy_tasks_among_many_light_ones_get_their_share() {
    let mut hogs = vec![(SIDE_OWN, 6, u64::MAX); 16];
    hogs.extend([(SIDE_OWN, 24, u64::MAX); 4]);
    let mut m = Machine::new(4, &hogs);
    m.run(60_000 * MS);
    let light: f64 = (0..16).map(|hog| m.share(hog)).sum();
    assert!((light - 0.5).abs() < 0.03, "{light}");
}

/// Six tasks of a hundredth of the weight of six others, as two control groups of weights 10 and
/// 1000 are: each is due a two-hundredth of a CPU, which two ticks in each second exceed.
#[test]
fn light_tasks_get_no_more_than_their_share() {
    let mut hogs = vec![(SIDE_OWN, 500, u64::MAX); 6];
    hogs.extend([(SIDE_OWN, 5, u64::MAX); 6]);
    let mut m = Machine::new(4, &hogs);
    m.run(60_000 * MS);
    let light: f64 = (6..12).map(|hog| m.share(hog)).sum();
    assert!((light * 101.0 - 1.0).abs() < 0.05, "{light:.4} instead of {:.4}", 1.0 / 101.0);
}

/// Tasks that all four CPUs may run count on each for a quarter: one that is bound to a CPU shares
/// it with two of the eight others, not with all of them; and the fewer the others, the more it
/// gets.
#[test]
fn one_bound_to_a_cpu_shares_it_with_that_cpus_part_of_the_others() {
    for (others, due) in [(2, 2.0 / 3.0), (8, 1.0 / 3.0), (16, 0.2)] {
        let mut hogs = vec![(SIDE_DEFAULT, 100, u64::MAX); others];
        hogs.extend([(SIDE_OWN, 100, u64::MAX); 4]);
        hogs.push((SIDE_PINNED, 100, u64::MAX));
        let mut m = Machine::new(4, &hogs);
        m.run(60_000 * MS);
        // a CPU has, besides, one of the four own tasks
        let due = due / (1.0 + due);
        let got = 4.0 * m.share(others + 4);
        assert!((got - due).abs() <= 0.1 * due, "{others} others: {got:.3} instead of {due:.3}");
    }
}

/// (side, weight, run)
fn hogs(most: usize) -> impl Strategy<Value = Vec<(u32, u32, u64)>> {
    let weight = prop_oneof![1u32..10, 90u32..110, 1_000u32..10_000, 1u32..10_001];
    let run_ns = prop_oneof![Just(u64::MAX), Just(u64::MAX), MS / 10..TICK_NS];
    prop::collection::vec((0u32..3, weight, run_ns), 1..most)
}

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::with_cases(60)
    })]

    /// Whatever the weights, the queues and how long each runs: nobody waits longer than the bound,
    /// which does not depend on the weights.
    #[test]
    fn waits_are_bounded(nr_cpus in 1usize..5, hogs in hogs(120)) {
        let mut m = Machine::new(nr_cpus, &hogs);
        m.run(8_000 * MS);
        let bound_ns = m.bound_ns();
        for (i, hog) in m.hogs.iter().enumerate() {
            prop_assert!(hog.longest_ns <= bound_ns, "hog {i} {:?} waited {} ns > {bound_ns}",
                         hogs[i], hog.longest_ns);
        }
    }

    /// A key is never further away than the bound, nor longer ago than an eighth of it.
    #[test]
    fn keys_are_near(
        vtime_ns in any::<u64>(),
        clock_ns in any::<u64>(),
        pace_q10 in 0u32..1 << 26,
        weight in 1u32..10_000 * WEIGHT_UNIT,
        nr_tasks in 1u32..100_000,
        nr_cpus in 1u32..1024,
    ) {
        let clock = Clock { vtime_ns: clock_ns, pace_q10, ..Clock::default() };
        let task = Task { vtime_ns, weight, ..Task::default() };
        let most_ns = policy::most_wait_ns(SLICE_NS, nr_tasks, nr_cpus);
        prop_assert!((WAIT_NS / 4..=WAIT_NS).contains(&most_ns));
        let now_ns = 1u64 << 60;
        let key_ns = clock.key(&task, clock_ns, SLICE_NS, most_ns, now_ns);
        prop_assert!((now_ns - most_ns / 8..=now_ns + most_ns).contains(&key_ns));
    }

    /// While a clock's pace is unknown, a slice costs a task the same wait whatever its weight.
    #[test]
    fn an_unknown_pace_favours_no_weight(weight in WEIGHT_UNIT..10_000 * WEIGHT_UNIT) {
        let (clock, now_ns) = (Clock { vtime_ns: 1 << 60, ..Clock::default() }, 1u64 << 60);
        let ahead_ns = SLICE_NS * u64::from(WEIGHT_NICE0) / u64::from(weight);
        let task = Task { vtime_ns: clock.vtime_ns + ahead_ns, weight, ..Task::default() };
        let waits_ns = clock.key(&task, clock.vtime_ns, SLICE_NS, WAIT_NS, now_ns) - now_ns;
        prop_assert!((SLICE_NS * 9 / 10..=SLICE_NS).contains(&waits_ns), "{}", waits_ns);
    }

    /// Slices are shortened where the round is long, never lengthened, and never below a
    /// millisecond but where a round of those would take more than a second; nor below a tenth of
    /// one.
    #[test]
    fn slices_fit_the_round(
        slice_ns in MS..20 * MS,
        nr_tasks in 1u32..100_000,
        nr_cpus in 1u32..64,
    ) {
        let shorter_ns = policy::slice_in_round_ns(slice_ns, nr_tasks, nr_cpus);
        prop_assert!(shorter_ns <= slice_ns && shorter_ns >= MS / 10);
        let round_ns = shorter_ns * u64::from(nr_tasks) / u64::from(nr_cpus);
        prop_assert!(shorter_ns >= MS || round_ns * 10 >= 9 * WAIT_NS);
        let is_short = round_ns <= 250 * MS || round_ns <= WAIT_NS;
        prop_assert!(shorter_ns == slice_ns || is_short || shorter_ns == MS / 10);
    }

    /// A run of two slices is paid for within the longest wait, if that can be: slices are
    /// shortened for it, never below a millisecond, never lengthened.
    #[test]
    fn slices_fit_the_wait(
        slice_ns in MS..20 * MS,
        weight in 1u32..10_000 * WEIGHT_UNIT,
        pace_q10 in 1u32..1 << 26,
    ) {
        let clock = Clock { vtime_ns: 1 << 60, pace_q10, ..Clock::default() };
        let shorter_ns = clock.slice_from_ns(&Task { weight, ..Task::default() }, slice_ns, 1, 1);
        prop_assert!(shorter_ns <= slice_ns && shorter_ns >= MS);
        let vtime_ns = u128::from(2 * shorter_ns * u64::from(WEIGHT_NICE0) / u64::from(weight));
        let cost_ns = (vtime_ns * u128::from(pace_q10)) >> 10;
        let most_ns = u128::from(WAIT_NS - slice_ns) + u128::from(MS);
        prop_assert!(shorter_ns == MS || cost_ns <= most_ns);
    }
}
