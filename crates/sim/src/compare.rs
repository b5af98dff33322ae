// SPDX-License-Identifier: MIT OR Apache-2.0
//! Questions that take several runs of one scenario: how far automatic sizing is from the best
//! fixed size, how quickly it follows, how much of the licence loss is removed. Asked by tests and
//! by `./x bench sim`.
//!
//! Which scenarios are asked is theirs to say: `judges` in their files, [`Scenario::that_judge`].
//!
//! **Throughput of a load** is the geometric mean of its groups' completions per second: with
//! several groups, a sum would mix units, and a size that starves one group to feed another would
//! pass for a good one. A group that others fork counts by their work.
//!
//! **Loss** is against the variant `none` under the kernel's fair scheduling, in throughput where
//! one group has the machine, in CPU time per completion of the group without wide code where there
//! are two: there, throughput depends on the shares too. That is how the papers measure (SFMA 4.1,
//! SYSTOR 4.1 and 4.2). It cannot all be removed: at least one complete core is wide. Where wide
//! sections come more often than a level is held, that core is slow all the time, for the scalar
//! work that it does in between too. Of ten cores at 3.0 instead of 3.7 GHz that is 1.9 % of the
//! machine: 81 % of the 10 % that `thesis-nginx` loses are the most that can be removed. [`Parts`]
//! separates it from the cost of moving.

use std::ops::RangeInclusive;

use cpumodel::{CpuModel, DataError, Platform};

use crate::engine::{Engine, Options, Outcome, RunError};
use crate::events::{Happened, Sink};
use crate::policy_spec::simulate;
use crate::program::{Step, Workload};
use crate::rng::Dist;
use crate::scenario::Scenario;
use crate::sched::lane::{Lane, LaneConfig};
use crate::sys::{Layout, Sys};

/// Why a question has no answer.
#[derive(Debug, thiserror::Error)]
pub enum CompareError {
    /// No such scenario or machine.
    #[error("there is no built-in \"{0}\"; see data/scenarios and crates/cpumodel/data/cpus")]
    Unknown(String),
    /// A built-in file is broken.
    #[error("a built-in file: {0}")]
    Data(#[from] DataError),
    /// A run failed.
    #[error(transparent)]
    Run(#[from] RunError),
    /// A text names no scheduler.
    #[error(transparent)]
    Policy(#[from] crate::policy_spec::PolicyError),
    /// A group of the load completed nothing.
    #[error("{scenario} under \"{policy}\": no work was finished; simulate longer")]
    Nothing {
        /// Which load.
        scenario: String,
        /// Under which scheduler.
        policy: String,
    },
}

/// A built-in scenario on the machine that it was made for.
pub struct Stage {
    scenario: Scenario,
    platform: Platform,
}

/// The variant with the code that the licence is about.
const WIDE: &str = "avx512";
/// The variant without.
const NONE: &str = "none";

impl Stage {
    /// By the scenario's name.
    pub fn new(name: &str) -> Result<Self, CompareError> {
        let unknown = |name: &str| CompareError::Unknown(name.into());
        let scenario = Scenario::built_in(name).ok_or_else(|| unknown(name))??;
        let machine = &scenario.machine;
        let model = CpuModel::built_in(machine).ok_or_else(|| unknown(machine))??;
        Ok(Stage { platform: Platform::new(&model), scenario })
    }

    /// Its cores.
    pub fn nr_cores(&self) -> usize {
        self.platform.nr_cores * self.scenario.packages
    }

    fn workload(&self, variant: &str) -> Result<&Workload, CompareError> {
        let workload = self.scenario.workload(Some(variant));
        workload.ok_or_else(|| CompareError::Unknown(format!("{} {variant}", self.scenario.name)))
    }

    fn run(&self, variant: &str, policy: &str, options: Options) -> Result<Outcome, CompareError> {
        let workload = self.workload(variant)?.clone();
        let (spec, packages) = (policy.parse()?, self.scenario.packages);
        Ok(simulate(&self.platform, packages, workload, &spec, options, None)?.outcome)
    }

    fn nothing(&self, policy: &str) -> CompareError {
        CompareError::Nothing { scenario: self.scenario.name.clone(), policy: policy.into() }
    }
}

/// Completions per second, the geometric mean over groups; `None` if nothing was completed.
fn throughput(workload: &Workload, out: &Outcome) -> Option<f64> {
    let groups = workload.groups.iter().zip(&out.groups);
    let logs: Vec<f64> = groups
        .filter(|(group, done)| group.tasks > 0 && done.completed > 0)
        .map(|(_, done)| out.per_second(done.completed).ln())
        .collect();
    (!logs.is_empty()).then(|| (logs.iter().sum::<f64>() / logs.len() as f64).exp())
}

/// Automatic sizing compared with all fixed sizes.
#[derive(Clone, Debug)]
pub struct SizingGap {
    /// How far below the best fixed size it is, percent of the mean over seeds; and by seed.
    pub gap_pct: f64,
    /// See `gap_pct`.
    pub by_seed_pct: Vec<f64>,
    /// The best fixed number of cores.
    pub best_cores: usize,
    /// Changes of the set per second.
    pub changes_per_s: f64,
}

/// Time before sizing is judged: it begins with one core.
const SETTLE_NS: u64 = 1_000_000_000;

/// Compare `lane:wide=auto,standby=no` with every fixed size of a range. `settings` are more of
/// lane's, such as `,detect=trap`.
pub fn sizing_gap(
    name: &str,
    settings: &str,
    sizes: RangeInclusive<usize>,
    seeds: u64,
    measured_ns: u64,
) -> Result<SizingGap, CompareError> {
    let stage = Stage::new(name)?;
    let workload = stage.workload(WIDE)?;
    let run = |wide: &str, seed: u64| {
        let policy = format!("lane:wide={wide}{settings}");
        let duration_ns = SETTLE_NS + measured_ns;
        let options = Options { seed, duration_ns, warmup_ns: SETTLE_NS, ..Default::default() };
        let out = stage.run(WIDE, &policy, options)?;
        let done = throughput(workload, &out).ok_or_else(|| stage.nothing(&policy))?;
        Ok::<_, CompareError>((done, out.sched.resizes))
    };
    let all = |wide: &str| (1..=seeds).map(|seed| run(wide, seed)).collect::<Result<Vec<_>, _>>();
    let mean = |runs: &[(f64, u64)]| runs.iter().map(|run| run.0).sum::<f64>() / seeds as f64;
    // how many cores is the question, not whether
    let auto = all("auto,standby=no")?;
    let mut best = (0, Vec::new(), 0.0);
    for cores in sizes {
        let fixed = all(&cores.to_string())?;
        let done = mean(&fixed);
        if done > best.2 {
            best = (cores, fixed, done);
        }
    }
    let gap_pct = |auto: f64, best: f64| 100.0 * (1.0 - auto / best);
    let changes: u64 = auto.iter().map(|run| run.1).sum();
    Ok(SizingGap {
        gap_pct: gap_pct(mean(&auto), best.2),
        by_seed_pct: auto.iter().zip(&best.1).map(|(a, b)| gap_pct(a.0, b.0)).collect(),
        best_cores: best.0,
        changes_per_s: changes as f64 / seeds as f64 * 1e9 / measured_ns as f64,
    })
}

/// How long automatic sizing takes, ns.
#[derive(Clone, Copy, Debug)]
pub struct Reaction {
    /// From the begin of wide work to the first size that it keeps.
    pub grows_ns: u64,
    /// From its end to a set of one core.
    pub shrinks_ns: u64,
    /// The size in between.
    pub cores: usize,
}

/// Size of the wide set over time.
#[derive(Default)]
struct Sizes {
    /// CPUs by class now.
    wide: Vec<bool>,
    /// (since when, wide CPUs).
    points: Vec<(u64, usize)>,
}

impl Sink for Sizes {
    const WANTED: bool = true;
    fn happened(&mut self, at_ns: u64, what: &Happened<'_>) {
        let &Happened::Class { cpu, class } = what else { return };
        let cpu = cpu as usize;
        self.wide.resize(self.wide.len().max(cpu + 1), false);
        self.wide[cpu] = class > 0 && class <= policy::LEVEL_MAX as u8;
        let nr_wide = self.wide.iter().filter(|wide| **wide).count();
        self.points.retain(|point| point.0 != at_ns);
        self.points.push((at_ns, nr_wide));
    }
}

/// A video encoder begins beside a web server after two seconds, encodes for about two, and ends.
pub fn sizing_reaction(seed: u64) -> Result<Reaction, CompareError> {
    const BEGIN_NS: u64 = 2_000_000_000;
    /// Rows per task; it does some 120 per second.
    const ROWS: u64 = 250;
    const LAST_SLOT: u8 = crate::program::REPEAT_SLOTS as u8 - 1;
    let stage = Stage::new("nginx-x265")?;
    let mut w = stage.workload(WIDE)?.clone();
    let encoder = w.groups.iter().position(|group| group.name == "x265");
    let encoder = encoder.ok_or_else(|| CompareError::Unknown("x265".into()))?;
    w.groups[encoder].start_ns = BEGIN_NS;
    let steps = &mut w.programs[usize::from(w.groups[encoder].programs[0])];
    if let Some(Step::Jump { to }) = steps.pop() {
        steps.push(Step::Repeat { slot: LAST_SLOT, times: Dist::Fixed(ROWS), to });
        steps.push(Step::End);
    }
    let sys = Sys::new(Layout::new(&stage.platform.topology(stage.scenario.packages)));
    let nr_threads = sys.layout.nr_cpus / stage.nr_cores();
    let config = LaneConfig { stands_by: false, ..Default::default() };
    let sched = Lane::new(&sys, config);
    let options = Options { seed, duration_ns: 20_000_000_000, ..Default::default() };
    let platform = stage.platform.clone();
    let mut engine = Engine::new(platform, sys, sched, Sizes::default(), w, options);
    let out = engine.run()?;
    let end_ns = out.groups[encoder].ended_ns.ok_or_else(|| stage.nothing("lane"))?;
    let points = engine.into_sink().points;
    let before_end = points.iter().rev().find(|point| point.0 <= end_ns);
    let &(grown_ns, nr_wide) = before_end.ok_or_else(|| stage.nothing("lane"))?;
    let last_ns = points.last().map_or(end_ns, |point| point.0);
    Ok(Reaction {
        grows_ns: grown_ns.saturating_sub(BEGIN_NS),
        shrinks_ns: last_ns.saturating_sub(end_ns),
        cores: nr_wide / nr_threads,
    })
}

/// What wide code costs a scenario, percent, and what is left of it.
#[derive(Clone, Copy, Debug)]
pub struct Loss {
    /// Under the kernel's fair scheduling.
    pub before_pct: f64,
    /// Under the policy asked for.
    pub after_pct: f64,
    /// What that is made of; the parts add up to it.
    pub left: Parts,
}

impl Loss {
    /// Share of the loss that is removed, percent; more than 100 where it is faster than without
    /// wide code.
    pub fn removed_pct(&self) -> f64 {
        100.0 * (1.0 - self.after_pct / self.before_pct)
    }
}

/// Parts of a loss, percent; below 0 where it is a gain.
#[derive(Clone, Copy, Debug)]
pub struct Parts {
    /// A lower clock, and halts.
    pub clock_pct: f64,
    /// More cycles for the same: switches, migrations, traps, refills, throttling, busy siblings.
    pub work_pct: f64,
    /// CPU time that the load did not get.
    pub idle_pct: f64,
}

/// How fast a load is, as logarithms of what makes it up:
///
/// ```text
///   completions   CPU time   clock cycles     completions
///   ----------- = -------- * ------------ * ---------------
///      time         time       CPU time      clock cycles
/// ```
///
/// So ratios of speeds are differences here, and say which factor they come from.
#[derive(Clone, Copy, Debug, Default)]
struct Speed {
    cpu: f64,
    clock: f64,
    work: f64,
}

impl Speed {
    /// Of a group; `None` if it completed nothing. As throughput, or per CPU time.
    fn of(out: &Outcome, group: usize, is_throughput: bool) -> Option<Self> {
        let group = &out.groups[group];
        let (done, cpu_ns) = (group.completed as f64, group.cpu_ns as f64);
        let cycles = cpu_ns * group.mean_khz.filter(|_| done > 0.0)?;
        let cpu = if is_throughput { cpu_ns / out.measured_ns as f64 } else { 1.0 };
        Some(Speed { cpu: cpu.ln(), clock: (cycles / cpu_ns).ln(), work: (done / cycles).ln() })
    }

    /// The geometric mean of several; `None` if there is none.
    fn mean(all: &[Speed]) -> Option<Self> {
        let mean = |f: fn(&Speed) -> f64| all.iter().map(f).sum::<f64>() / all.len() as f64;
        let all = Speed { cpu: mean(|s| s.cpu), clock: mean(|s| s.clock), work: mean(|s| s.work) };
        all.cpu.is_finite().then_some(all)
    }

    /// How far it is below another one, percent, and in which parts.
    fn loss_pct(&self, other: &Speed) -> (f64, Parts) {
        let parts = [self.clock - other.clock, self.work - other.work, self.cpu - other.cpu];
        let ln = parts.iter().sum::<f64>();
        let loss_pct = -100.0 * ln.exp_m1();
        // the loss is shared out as the logarithm is; (e^x - 1) / x is 1 at 0
        let scale_pct = if ln == 0.0 { -100.0 } else { loss_pct / ln };
        let [clock_pct, work_pct, idle_pct] = parts.map(|part| part * scale_pct);
        (loss_pct, Parts { clock_pct, work_pct, idle_pct })
    }
}

/// The licence loss of a scenario, before and under a policy.
pub fn loss(name: &str, policy: &str, seed: u64) -> Result<Loss, CompareError> {
    let stage = Stage::new(name)?;
    let speed = |variant: &str, policy: &str| {
        let (duration_ns, warmup_ns) = (stage.scenario.duration_ns, stage.scenario.warmup_ns);
        let options = Options { seed, duration_ns, warmup_ns, ..Default::default() };
        let out = stage.run(variant, policy, options)?;
        let workload = stage.workload(variant)?;
        let done = |group: &usize| out.groups[*group].completed > 0;
        let groups = || (0..workload.groups.len()).filter(done);
        let speed = match groups().find(|&group| !stage.scenario.wide[group]) {
            Some(victim) => Speed::of(&out, work_of(workload, victim), false),
            None => Speed::mean(
                &groups()
                    .filter(|&group| workload.groups[group].tasks > 0)
                    .filter_map(|group| Speed::of(&out, group, true))
                    .collect::<Vec<_>>(),
            ),
        };
        speed.ok_or_else(|| stage.nothing(policy))
    };
    let none = speed(NONE, "fair")?;
    let (before_pct, _) = speed(WIDE, "fair")?.loss_pct(&none);
    let (after_pct, left) = speed(WIDE, policy)?.loss_pct(&none);
    Ok(Loss { before_pct, after_pct, left })
}

/// The group whose CPU time is a group's work: the one that it forks, if it does.
fn work_of(workload: &Workload, group: usize) -> usize {
    let mut steps = workload.programs_of(&workload.groups[group]).flatten();
    let forked = steps.find_map(|step| match step {
        Step::Fork { group } => Some(*group as usize),
        _ => None,
    });
    forked.unwrap_or(group)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Half the clock and a quarter more CPU time are five eighths of the speed, and the parts add
    /// up.
    #[test]
    fn parts_add_up() {
        let (slow, fast) =
            (Speed { cpu: 1.25f64.ln(), clock: 0.5f64.ln(), work: 0.0 }, Speed::default());
        let (loss_pct, parts) = slow.loss_pct(&fast);
        assert!((loss_pct - 37.5).abs() < 1e-9, "{loss_pct}");
        assert!((parts.clock_pct + parts.work_pct + parts.idle_pct - loss_pct).abs() < 1e-9);
        assert!(parts.clock_pct > loss_pct && parts.idle_pct < 0.0 && parts.work_pct == 0.0);
        assert_eq!(fast.loss_pct(&fast).0, 0.0);
    }
}
