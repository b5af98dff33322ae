// SPDX-License-Identifier: MIT OR Apache-2.0
//! Automatic sizing: feeds policy/tiers.h with what the CPUs counted, and says which cores are wide
//! and how they are split; and policy/standby.h, which says whether any should be. The decisions
//! are the policy's; this only keeps the books.
//!
//! A number of wide CPUs that the user has chosen is not questioned.

use std::time::Duration;

use cpumodel::{LevelClocks, Topology};
use policy::{
    Losses, NR_KINDS, NR_PARTIES, Split, Standby, StandbyInput, StandbyState, StandbyWhy, Tiers,
    TiersInput, WIDE_AUTO,
};

use crate::bound::{Bound, BoundTask, Ran};
use crate::config::{Components, Config, WideCpus};
use crate::goal::GoalLoop;
use crate::scx::{CpuCounters, WhileAway};

/// How often the size is decided. Well below the averages' time constant (200 ms), so that they
/// are smooth; well above a scheduling slice.
pub const PERIOD: Duration = Duration::from_millis(50);

/// What is counted, for the decisions.
#[derive(Clone, Debug, Default)]
pub struct Counted {
    /// By CPU.
    pub cpus: Vec<CpuCounters>,
    /// Threads that were given a slot of the hint page; wraps.
    pub slots_given: u32,
    /// While it looks: what happened under the kernel's own scheduler.
    pub away: WhileAway,
}

/// Sums over all CPUs that the decision needs, ns by kind.
#[derive(Clone, Copy, Default)]
struct Totals {
    run_ns: [u64; NR_KINDS],
    wait_ns: [u64; NR_KINDS],
    mix_wait_ns: u64,
    losses: [Losses; NR_PARTIES],
    /// Calls of marked functions, and returns.
    nr_calls: u64,
    /// Threads that give hints.
    slots_given: u32,
    /// A thread has a target for its CPU.
    asks: bool,
}

impl Totals {
    fn of(counted: &Counted) -> Self {
        let mut totals = Totals { slots_given: counted.slots_given, ..Totals::default() };
        for cpu in &counted.cpus {
            totals.mix_wait_ns += cpu.mix_wait_ns;
            totals.nr_calls += cpu.mark_events;
            totals.asks |= cpu.target.told_q10 != 0;
            for (sum, new) in totals.losses.iter_mut().zip(cpu.losses) {
                sum.add(&losses(new));
            }
            for kind in 0..NR_KINDS {
                totals.run_ns[kind] += cpu.run_ns[kind];
                totals.wait_ns[kind] += cpu.wait_ns[kind];
            }
        }
        totals
    }
}

fn losses(of_bpf: crate::bpf::types::tl_losses) -> Losses {
    Losses {
        run_ns: of_bpf.run_ns,
        exposed_ns: of_bpf.exposed_ns,
        shared_ns: of_bpf.shared_ns,
        wait_ns: of_bpf.wait_ns,
        moves: of_bpf.moves,
        raises: of_bpf.raises,
        sections: of_bpf.sections,
    }
}

/// State of the automatic sizing.
pub struct AutoSize {
    tiers: Tiers,
    before: Totals,
    /// Whether wide code is kept apart; `None` if the user has said how.
    standby: Option<Standby>,
    /// The application's figure, which decides in its place.
    goal: Option<GoalLoop>,
    clocks: LevelClocks,
    /// What was decided last.
    split: Split,
    bound: Bound,
    /// What bound tasks did is to be taken in.
    asks_for_bound: bool,
}

impl AutoSize {
    /// Whether there is anything to choose under these settings.
    pub fn is_asked(config: &Config) -> bool {
        config.wide_cpus == WideCpus::Auto || config.tiers
    }

    /// Whether the size is the policy's to choose: then there is none at the start, see
    /// policy/standby.h.
    pub fn may_stand_by(config: &Config) -> bool {
        config.wide_cpus == WideCpus::Auto
    }

    /// Start with these counters. `nr_wide` cores are wide, in one class; where their number is to
    /// be chosen, none is. The CPU has these clocks by level.
    pub fn new(
        config: &Config,
        topology: &Topology,
        clocks: LevelClocks,
        nr_wide: usize,
        counted: &Counted,
    ) -> Self {
        let standby = Self::may_stand_by(config).then(Standby::default);
        AutoSize {
            tiers: Tiers::start(if standby.is_some() { 1 } else { nr_wide }),
            before: Totals::of(counted),
            split: Split::one_class(nr_wide as u32),
            standby,
            goal: None,
            clocks,
            bound: Bound::new(topology),
            asks_for_bound: false,
        }
    }

    /// An application's figure decides from now on whether the CPUs are divided, if it may.
    pub(crate) fn decide_by(&mut self, goal: Option<GoalLoop>) {
        self.goal = goal.filter(|_| self.standby.is_some());
    }

    /// Whether wide and scalar CPUs are divided.
    fn is_apart(&self) -> bool {
        self.standby.as_ref().is_none_or(|standby| standby.state() == StandbyState::Apart)
    }

    /// Whether it looks what could be won: traps are armed although no CPU is wide.
    pub fn is_looking(&self) -> bool {
        self.standby.as_ref().is_some_and(|standby| standby.state() == StandbyState::Looking)
    }

    /// Whether the kernel's own scheduler is to be at work.
    pub fn is_away(&self) -> bool {
        self.standby.as_ref().is_some_and(Standby::is_away)
    }

    /// What the time of the parties counts (policy/shares.h).
    pub fn counts(&self) -> [u16; NR_PARTIES] {
        self.standby.as_ref().map_or_else(Default::default, |standby| standby.shares.counts())
    }

    /// Whether the probes of marks are to be in place.
    pub fn keeps_marks(&self) -> bool {
        self.standby.as_ref().is_none_or(Standby::keeps_marks)
    }

    /// What the scheduler does about wide code, in words; `None` if the user has said how.
    pub fn in_words(&self) -> Option<String> {
        let standby = self.standby.as_ref()?;
        Some(match (&self.goal, standby.state()) {
            (None, _) => in_words(standby),
            (Some(goal), StandbyState::Apart) => {
                format!("separates wide code: {}", goal.in_words())
            }
            (Some(goal), _) => format!("stands by: {}", goal.in_words()),
        })
    }

    /// The decision whether to divide the CPUs; `None` if the user has made it.
    pub fn standby(&self) -> Option<&Standby> {
        self.standby.as_ref()
    }

    /// Whether to divide the CPUs, after this was seen and so much was counted; true if the answer
    /// has changed.
    fn decide(
        &mut self,
        config: &Config,
        topology: &Topology,
        seen: StandbyInput,
        input: &TiersInput,
    ) -> bool {
        let Some(standby) = &mut self.standby else { return false };
        let busy_cpus = seen.losses.iter().map(|losses| losses.run_ns as f64).sum::<f64>()
            / input.elapsed_ns.max(1) as f64;
        let nr_packages = topology.packages().len().max(1);
        let seen = match &mut self.goal {
            Some(goal) => seen.follow(goal.decide(input.elapsed_ns)),
            None => seen,
        };
        standby.update(&StandbyInput {
            elapsed_ns: input.elapsed_ns,
            wide_wait_ns: input.wait_ns[policy::TYPE_WIDE as usize..].iter().sum(),
            lacks_q10: self.clocks.lacks_q10(busy_cpus / nr_packages as f64),
            nr_cpus: topology.cpus().len() as u32,
            sees: u32::from(config.trap == Components::None),
            ..seen
        })
    }

    /// Whether [`Self::take_in`] is to be called after an update.
    pub fn asks_for_bound(&self) -> bool {
        self.asks_for_bound
    }

    /// Takes in what tasks did that may not run everywhere; true if other cores are to be wide than
    /// these.
    pub fn take_in(&mut self, tasks: &[BoundTask], topology: &Topology, wide: &[usize]) -> bool {
        let run_ns = &self.before.run_ns;
        let all = Ran {
            wide_ns: run_ns[policy::TYPE_WIDE as usize..].iter().sum(),
            all_ns: run_ns.iter().sum(),
        };
        self.asks_for_bound = false;
        if !self.is_apart() {
            self.bound.count_anew(tasks, all);
            return false;
        }
        self.bound.decide(topology, tasks, all, wide);
        self.bound.cores(wide.len()) != wide
    }

    /// The cores to be wide if there are to be so many.
    pub fn cores(&self, nr_wide: usize) -> Vec<usize> {
        self.bound.cores(nr_wide)
    }

    /// The wide cores and their classes as they should be after `elapsed` more time, or whether
    /// traps are armed; `None` if neither has changed. `nr_wide` are wide now.
    pub fn update(
        &mut self,
        config: &Config,
        topology: &Topology,
        nr_wide: usize,
        counted: &Counted,
        elapsed: Duration,
    ) -> Option<Split> {
        let now = Totals::of(counted);
        let before = std::mem::replace(&mut self.before, now);
        let since = |now: &[u64; NR_KINDS], before: &[u64; NR_KINDS]| {
            std::array::from_fn(|kind| now[kind].saturating_sub(before[kind]))
        };
        let nr_cores = topology.cores().len().max(1);
        let is_auto = config.wide_cpus == WideCpus::Auto;
        let input = TiersInput {
            elapsed_ns: elapsed.as_nanos() as u64,
            run_ns: since(&now.run_ns, &before.run_ns),
            wait_ns: since(&now.wait_ns, &before.wait_ns),
            mix_wait_ns: now.mix_wait_ns.saturating_sub(before.mix_wait_ns),
            nr_cores: nr_cores as u32,
            nr_cpus_per_core: (topology.cpus().len() / nr_cores).max(1) as u32,
            nr_wide: if is_auto { WIDE_AUTO } else { nr_wide as u32 },
            tiers: u32::from(config.tiers),
            nr_useful: if is_auto { self.bound.nr_useful() as u32 } else { 0 },
        };
        let news = now.nr_calls > before.nr_calls || now.slots_given != before.slots_given;
        let seen = StandbyInput {
            losses: std::array::from_fn(|party| now.losses[party].since(&before.losses[party])),
            kernel: counted.away.parties,
            kernel_ns: counted.away.ns,
            kernel_run_ns: counted.away.run_ns,
            news: u8::from(news),
            asks: u8::from(now.asks),
            ..StandbyInput::default()
        };
        let (was_apart, was_looking) = (self.is_apart(), self.is_looking());
        let changed = self.decide(config, topology, seen, &input);
        let split = match (was_apart, self.is_apart()) {
            (_, false) => Split::default(),
            (true, true) => {
                self.tiers.update(&input);
                self.tiers.split
            }
            (false, true) => {
                self.tiers.resume();
                self.tiers.split
            }
        };
        self.bound.pass(elapsed);
        self.asks_for_bound = is_auto
            && match self.is_apart() {
                true => !was_apart || self.bound.is_due(),
                false => self.is_looking() && !was_looking,
            };
        let old = std::mem::replace(&mut self.split, split);
        (changed || split != old).then_some(split)
    }
}

/// What the scheduler does about wide code by its own estimate, in words.
fn in_words(standby: &Standby) -> String {
    let why = match standby.why() {
        Some(StandbyWhy::NoLevels) => "no licence level of this CPU lowers its clock",
        Some(StandbyWhy::NothingWide) => "no wide code was seen",
        Some(StandbyWhy::NothingLost) => "wide code slows other code by less than 1 %",
        Some(StandbyWhy::CostsMore) => "separating wide code cost more than it saved",
        Some(StandbyWhy::Goal) | None => "it has not looked yet",
    };
    match standby.state() {
        StandbyState::Apart => "separates wide code".into(),
        StandbyState::Looking => "estimates what separating wide code could save".into(),
        StandbyState::StandingBy => format!("stands by: {why}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_cpu(cpu: CpuCounters) -> Counted {
        Counted { cpus: vec![cpu], ..Counted::default() }
    }

    /// Counters of so much time, of default tasks and of wide ones by level.
    fn counters(rest_ns: u64, wide_ns: [u64; 3]) -> Counted {
        let [one, two, three] = wide_ns;
        let run_ns = [rest_ns, 0, 0, one, two, three, 0, 0];
        of_cpu(CpuCounters { run_ns, ..Default::default() })
    }

    /// Sizing that keeps wide code apart whatever it costs.
    fn apart(nr_wide: usize, counters: &Counted) -> AutoSize {
        let fixed = Config { wide_cpus: WideCpus::Cores(nr_wide), ..Config::default() };
        AutoSize::new(&fixed, &Topology::uniform(8, 1), LevelClocks::default(), nr_wide, counters)
    }

    const PERIOD_NS: u64 = PERIOD.as_nanos() as u64;

    /// Wide work that fills three of eight CPUs gets them, and the one that no one else needs.
    #[test]
    fn follows_the_demand() {
        let (topology, config) = (Topology::uniform(8, 1), Config::default());
        let mut auto = apart(1, &counters(0, [0; 3]));
        let (mut wide_ns, mut rest_ns, mut split) = (0, 0, Split::one_class(1));
        for _ in 0..100 {
            wide_ns += 3 * PERIOD_NS;
            rest_ns += 4 * PERIOD_NS;
            let counted = counters(rest_ns, [wide_ns, 0, 0]);
            let new = auto.update(&config, &topology, split.nr_wide(), &counted, PERIOD);
            split = new.unwrap_or(split);
        }
        assert_eq!(split, Split::one_class(4));
    }

    /// A number of cores that was asked for stays, and is split where two levels need cores; when
    /// one of them ends, so does the split.
    #[test]
    fn splits_what_was_asked_for() {
        let topology = Topology::uniform(8, 1);
        let config = Config { wide_cpus: WideCpus::Cores(6), tiers: true, ..Config::default() };
        assert!(AutoSize::is_asked(&config));
        let mut auto = apart(6, &counters(0, [0; 3]));
        let (mut wide_ns, mut splits) = ([0; 3], vec![Split::one_class(6)]);
        for period in 0..200 {
            wide_ns[0] += if period < 100 { 2 * PERIOD_NS } else { 0 };
            wide_ns[1] += 2 * PERIOD_NS;
            let counted = counters(0, wide_ns);
            splits.extend(auto.update(&config, &topology, 6, &counted, PERIOD));
        }
        assert_eq!(splits[1], Split { above: [6, 3, 6] });
        assert_eq!(splits.last(), Some(&Split::one_class(6)));
        assert!(splits.len() <= 4, "{splits:?}");
    }

    /// More is wanted than there is, and everybody waits for the same: how much of that is for wide
    /// code decides, not the queues.
    #[test]
    fn shares_by_what_the_waits_are_for() {
        let (topology, config) = (Topology::uniform(8, 1), Config::default());
        for (wide_percent, cores) in [(5, 1), (50, 4), (75, 6)] {
            let mut auto = apart(2, &counters(0, [0; 3]));
            let (mut sums, mut split) = (CpuCounters::default(), Split::one_class(2));
            for _ in 0..200 {
                let cores = split.nr_wide() as u64;
                sums.run_ns[3] += cores * PERIOD_NS;
                sums.run_ns[0] += (8 - cores) * PERIOD_NS;
                sums.wait_ns[3] += 4 * PERIOD_NS;
                sums.wait_ns[0] += 28 * PERIOD_NS;
                sums.mix_wait_ns += 32 * PERIOD_NS * wide_percent / 100;
                let new = auto.update(&config, &topology, split.nr_wide(), &of_cpu(sums), PERIOD);
                split = new.unwrap_or(split);
            }
            assert_eq!(split, Split::one_class(cores), "{wide_percent} % for wide code");
        }
    }

    /// A restarted scheduler counts from zero again; that is not negative time.
    #[test]
    fn survives_a_restart_of_the_counters() {
        let (topology, config) = (Topology::uniform(4, 1), Config::default());
        let mut auto = apart(1, &counters(1 << 40, [1 << 40, 0, 0]));
        assert_eq!(auto.update(&config, &topology, 1, &counters(0, [0; 3]), PERIOD), None);
    }

    /// Counters of scalar code that a level slows all along, with sections as rare as that.
    fn exposed(ms: u64) -> Counted {
        let mut cpu = CpuCounters::default();
        cpu.losses[1].run_ns = 4 * ms * 1_000_000;
        cpu.losses[1].exposed_ns = [0, 4 * ms * 1_000_000, 0];
        cpu.losses[1].sections = ms / 10;
        of_cpu(cpu)
    }

    /// Without clocks to win it stands by, with them it divides the CPUs; where traps detect, it
    /// looks first.
    #[test]
    fn stands_by_where_nothing_is_to_be_won() {
        let topology = Topology::uniform(8, 1);
        let config = Config { trap: Components::Avx512, ..Config::default() };
        for (clocks, apart) in [(LevelClocks::none(), false), (LevelClocks::default(), true)] {
            let mut auto = AutoSize::new(&config, &topology, clocks, 0, &exposed(0));
            assert!(auto.is_away());
            let mut changes = Vec::new();
            for period in 1..35 {
                let counters = exposed(50 * period);
                changes.extend(auto.update(&config, &topology, 0, &counters, PERIOD));
                assert_eq!(auto.is_looking(), (20..25).contains(&period), "{period}");
            }
            let split = if apart { Split::one_class(1) } else { Split::default() };
            // it begins to look, and what comes of that
            assert_eq!(changes, [Split::default(), split]);
            let words = in_words(auto.standby().unwrap());
            assert_eq!(words.starts_with("stands by: no licence level"), !apart, "{words}");
        }
    }

    /// A number of cores that was asked for is not questioned.
    #[test]
    fn the_users_word_stands() {
        let topology = Topology::uniform(8, 1);
        let config = Config { wide_cpus: WideCpus::Cores(2), tiers: true, ..Config::default() };
        let mut auto = AutoSize::new(&config, &topology, LevelClocks::none(), 2, &exposed(0));
        assert!(auto.standby().is_none() && !auto.is_looking());
        for period in 1..40 {
            let counters = exposed(50 * period);
            assert_eq!(auto.update(&config, &topology, 2, &counters, PERIOD), None);
        }
    }
}
