// SPDX-License-Identifier: MIT OR Apache-2.0
//! Fuzzing the policy: random machines, loads, affinities, hotplug and settings, under the
//! checkers.
//!
//! The seed is the only input: it decides the machine (1 to 48 CPUs, siblings, caches, packages),
//! the settings, the programs, when CPUs go and come, and the time simulated. A violation is
//! reproduced by its seed alone.
//!
//! Bounds. A moment: interrupt, idle exit, a halt of the clock, and what kernel threads that wake
//! in the meantime take: they go before a task that was sent to an idle CPU, up to 8 of them for 10
//! us each.
//!
//! In some cases kernel threads hardly ever sleep, a storm. They may take half of a CPU, and what
//! was sent to it as it idled waits there: then conservation is not asked for, and waits may be
//! twice as long.
//!
//! The longest wait: with n tasks, one waits for n slices, times the factor between the weights,
//! twice because two queues may share the CPU.

use cpumodel::{CpuModel, InsnClass, Known, LicenseLevel, Platform, Sourced, Sureness};
use policy::{Cfg, Remigrate};

use crate::check::{Bounds, Checker, Violation};
use crate::engine::{Action, Engine, Options, RunError};
use crate::events::{Quiet, Sink};
use crate::program::{Arrivals, Builder, Group, LockKind, OWN_INBOX, Source, Step, Workload};
use crate::rng::{Dist, Rng};
use crate::sched::lane::{Detect, Lane, LaneConfig, Mutation, Wide};
use crate::sys::{Layout, Sys};

/// Why a case failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// A rule is broken.
    #[error("seed {seed}: {violation}")]
    Broken {
        /// Reproduces it.
        seed: u64,
        /// Which.
        violation: Violation,
    },
    /// The case could not be run.
    #[error("seed {seed}: {error}")]
    Run {
        /// Reproduces it.
        seed: u64,
        /// Why.
        error: RunError,
    },
}

/// Stream that decides whether tasks are distinguished by their power scores: not the case's own,
/// so that seeds which once found something have kept their machines and loads.
const SCORES: u64 = u64::MAX - 1;

/// Stream that decides classes in the policy's place.
const TIERS: u64 = u64::MAX - 2;
/// Stream that decides whether tasks may stay after sections (policy/gap.h).
const GAPS: u64 = u64::MAX - 3;
/// Stream that decides whether tasks leave in their sections' last system calls (policy/last.h).
const LASTS: u64 = u64::MAX - 4;
/// In cases with tiers that are shorter than this: the policy takes a second to split wide CPUs.
const SHORT_NS: u64 = 1_100_000_000;

/// What a case checked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Checked {
    /// Decisions of the policy.
    pub decisions: u64,
    /// Events of the trace.
    pub events: u64,
}

/// Run the case of a seed, with a bug planted or not.
pub fn run_case(seed: u64, mutation: Option<Mutation>) -> Result<Checked, Failure> {
    run_case_seen(seed, mutation, &mut Quiet)
}

/// The same; `also` sees the trace too.
pub fn run_case_seen(
    seed: u64,
    mutation: Option<Mutation>,
    also: &mut impl Sink,
) -> Result<Checked, Failure> {
    let mut rng = Rng::new(seed, u64::MAX);
    let platform = platform(&mut rng);
    let packages = 1 + rng.below(2) as usize;
    let sys = Sys::new(Layout::new(&platform.topology(packages)));
    let nr_cpus = sys.layout.nr_cpus;
    let mut config = config(&mut rng, &sys);
    if Rng::new(seed, SCORES).below(5) == 0 {
        config.detect = Detect::Score;
    }
    let learned = Remigrate {
        gap: Rng::new(seed, GAPS).below(2) == 0,
        last_syscall: Rng::new(seed, LASTS).below(2) == 0,
        ..Default::default()
    };
    config.cfg.remigrate |= learned.bits();
    let (workload, storm) = workload(&mut rng, nr_cpus);
    let options = options(&mut rng, &sys, &workload, seed);
    let nr_tasks: u64 = workload.groups.iter().map(|g| g.tasks as u64).sum();
    let slice_ns = config.cfg.slice_ns.max(config.cfg.slice_wide_ns).max(options.tick_ns);
    let bounds = Bounds {
        moment_ns: 80_000 + platform.times.halts_ns(0, platform.nr_levels() as u8),
        tick_ns: options.tick_ns,
        wait_ns: most_wait_ns(nr_tasks, slice_ns + options.tick_ns, spread(&workload), storm),
        conserves: !storm,
    };
    let by_chance = config.tiers && options.duration_ns < SHORT_NS;
    let mut sched = Lane::new(&sys, config);
    if by_chance {
        sched.leave_tiers_to_chance(Rng::new(seed, TIERS));
    }
    if let Some(mutation) = mutation {
        sched.mutate(mutation);
    }
    let checker = Checker::new(nr_cpus, bounds);
    let mut engine = Engine::new(platform, sys, sched, (checker, also), workload, options);
    let out = engine.run().map_err(|error| Failure::Run { seed, error })?;
    let now_ns = engine.now_ns();
    match engine.into_sink().0.finish(now_ns) {
        Ok(events) => Ok(Checked { decisions: out.sched.decisions, events }),
        Err(violation) => Err(Failure::Broken { seed, violation }),
    }
}

/// The kernel's watchdog ends a scheduler that leaves a task waiting for so long.
pub(crate) const WATCHDOG_NS: u64 = 10_000_000_000;

/// The factor between the greatest and the least weight.
pub(crate) fn spread(workload: &Workload) -> u64 {
    let weights = || workload.groups.iter().map(|group| u64::from(group.weight));
    let least = weights().min().unwrap_or(1).max(1);
    weights().max().unwrap_or(1).div_ceil(least)
}

/// How long a task may wait among so many, each of which keeps a CPU for so long at a time: two
/// rounds by their weights, but no longer than a bound without weights: what a lag and a late side
/// may cost (policy/clock.h, turns.h) and two rounds of all queues that can come first.
pub(crate) fn most_wait_ns(nr_tasks: u64, turn_ns: u64, spread: u64, storm: bool) -> u64 {
    let rounds_ns = 2 * (nr_tasks + 4) * turn_ns;
    let most_ns = (rounds_ns * spread).min(1_400_000_000 + rounds_ns);
    ((1 + u64::from(storm)) * most_ns).min(WATCHDOG_NS)
}

fn known<T>(value: T) -> Known<T> {
    Some(Sourced { value, source: "fuzz".into(), sureness: Sureness::Assumed })
}

pub(crate) fn platform(rng: &mut Rng) -> Platform {
    let nr_cores = 1 + rng.below(12) as u32;
    let mut model = CpuModel {
        nr_cores: known(nr_cores),
        cores_per_llc: known(1 + rng.below(u64::from(nr_cores)) as u32),
        levels: vec![LicenseLevel::default(); 1 + rng.below(4) as usize],
        ..Default::default()
    };
    model.smt.threads_per_core = known(1 + rng.below(2) as u32);
    model.level_is_package_wide = known(rng.below(8) == 0);
    Platform::new(&model)
}

pub(crate) fn config(rng: &mut Rng, sys: &Sys) -> LaneConfig {
    let nr_cores = sys.layout.cores.len() as u64;
    let wide = match rng.below(4) {
        0 => Wide::Auto,
        1 => Wide::Cpus((0..sys.layout.nr_cpus).filter(|_| rng.below(3) == 0).collect()),
        // none and all are settings too
        _ => Wide::Cores(rng.below(nr_cores + 1) as usize),
    };
    let detect = match rng.below(4) {
        0 => Detect::Mark,
        1 => Detect::Trap(InsnClass::Heavy256),
        2 => Detect::Trap(InsnClass::Light512),
        _ => Detect::Hint,
    };
    let mut some = || rng.below(4) == 0;
    let remigrate = Remigrate {
        syscall_entry: some(),
        syscall_return: some(),
        context_switch: some(),
        timeout: some(),
        ..Remigrate::default()
    };
    // outside of the series, so that seeds mean what they meant
    let mut other = rng.clone();
    let rest_below_ns = other.below(1_000_000);
    let counts_q10 = std::array::from_fn(|_| 512 + other.below(1537) as u16);
    let mut ms = |most: u64| 100_000 + rng.below(most * 1_000_000);
    let cfg = Cfg {
        slice_ns: ms(8),
        slice_wide_ns: ms(8),
        wide_timeout_ns: ms(10),
        remigrate_timeout_ns: ms(4),
        rest_below_ns,
        remigrate: remigrate.bits(),
        unclassified: rng.below(2) as u32,
        counts_q10,
    };
    let cfg =
        Cfg { wide_timeout_ns: if rng.below(3) == 0 { 0 } else { cfg.wide_timeout_ns }, ..cfg };
    LaneConfig { cfg, detect, wide, tiers: rng.below(3) == 0, ..Default::default() }
}

/// Up to seven groups with random programs, some of them servers; and whether kernel threads storm.
fn workload(rng: &mut Rng, nr_cpus: usize) -> (Workload, bool) {
    let mut w = Workload::new();
    for (class, _) in InsnClass::ALL {
        w.code(class, 1.0);
    }
    w.nr_queues = 2;
    w.locks = vec![LockKind { fair: false }, LockKind { fair: true }];
    let weighted = rng.below(2) == 0;
    for i in 0..1 + rng.below(6) {
        let serves = rng.below(3) == 0;
        let steps = program(rng, serves);
        let program = w.program(steps);
        let most = [2, nr_cpus as u64, 2 * nr_cpus as u64][rng.below(3) as usize];
        let mut g = Group::new(&format!("g{i}"), 1 + rng.below(most) as usize, program);
        if weighted {
            g.weight = [100, 50, 200, 400][rng.below(4) as usize];
        }
        g.scalar = rng.below(3) == 0;
        g.start_ns = rng.below(30_000_000);
        if rng.below(3) == 0 {
            g.affinity = Some(some_cpus(rng, nr_cpus));
        }
        let group = w.group(g);
        if serves {
            w.sources.push(source(rng, group));
        }
    }
    let storm = match rng.below(4) {
        0 | 1 => return (w, false),
        of_two => of_two == 2,
    };
    let group = kernel_threads(rng, &mut w, nr_cpus, storm);
    w.group(group);
    (w, storm)
}

/// Kernel threads: pinned, with short runs, seldom or all the time (see the head).
fn kernel_threads(rng: &mut Rng, w: &mut Workload, nr_cpus: usize, storm: bool) -> Group {
    let least_ns = if storm { 1_000 } else { 1_000_000 };
    let pause = Dist::Uniform(least_ns, least_ns + rng.below(8 * least_ns));
    let steps = Builder::new().work(0, Dist::Uniform(1_000, 30_000)).sleep(pause);
    let mut g = Group::new("kernel", nr_cpus.min(8), w.program(steps.forever(0)));
    g.kernel = true;
    g.affinity = Some(some_cpus(rng, nr_cpus));
    g
}

pub(crate) fn some_cpus(rng: &mut Rng, nr_cpus: usize) -> Vec<usize> {
    let one_in = 1 + rng.below(4);
    let cpus: Vec<usize> = (0..nr_cpus).filter(|_| rng.below(one_in) == 0).collect();
    if cpus.is_empty() { vec![rng.below(nr_cpus as u64) as usize] } else { cpus }
}

fn dist(rng: &mut Rng, most: u64) -> Dist {
    let mean = 1 + rng.below(most);
    match rng.below(3) {
        0 => Dist::Fixed(mean),
        1 => Dist::Uniform(mean / 2, mean),
        _ => Dist::Exponential(mean),
    }
}

fn source(rng: &mut Rng, to_group: u16) -> Source {
    let arrivals = if rng.below(2) == 0 {
        Arrivals::Open { gap_ns: dist(rng, 2_000_000) }
    } else {
        Arrivals::Closed { clients: 1 + rng.below(40) as usize, think_ns: dist(rng, 3_000_000) }
    };
    Source { name: "load".into(), arrivals, to_group, start_ns: rng.below(20_000_000) }
}

/// A loop of random steps that ends with a little work, so that time passes.
fn program(rng: &mut Rng, serves: bool) -> Vec<Step> {
    let mut b = Builder::new();
    if serves {
        b = b.call(Step::Take { queue: OWN_INBOX });
    }
    // a program of the first kinds only never waits
    let kinds = if rng.below(4) == 0 { 5 } else { 9 };
    for _ in 0..1 + rng.below(6) {
        let cycles = dist(rng, 9_000_000);
        let code = rng.below(InsnClass::ALL.len() as u64) as u16;
        b = match rng.below(kinds) {
            0 | 1 => b.work(0, cycles),
            2 | 3 => wide(b, code, rng),
            // wide code that no one announces
            4 => b.work(code, cycles),
            5 => b.sleep(dist(rng, 4_000_000)),
            6 => b.syscall(dist(rng, 60_000)),
            7 => locked(b, rng),
            _ => b.step(Step::Yield),
        };
    }
    b = b.work(0, dist(rng, 400_000));
    if serves {
        b = b.step(Step::Done);
    }
    b.forever(0)
}

/// A wide section, half of the time with a word on how long what follows stays scalar, true or not.
fn wide(b: Builder, code: u16, rng: &mut Rng) -> Builder {
    let level = 1 + rng.below(3) as u8;
    let b = b.step(Step::WideBegin { level }).work(code, dist(rng, 900_000));
    // outside of the series, so that seeds mean what they meant
    let mut word = rng.clone();
    let rest_ns = if word.below(2) == 0 { 0 } else { word.below(2_000_000) };
    b.step(Step::WideEnd { rest_ns })
}

fn locked(b: Builder, rng: &mut Rng) -> Builder {
    let lock = rng.below(2) as u16;
    b.step(Step::Lock { lock }).work(0, dist(rng, 200_000)).step(Step::Unlock { lock })
}

fn options(rng: &mut Rng, sys: &Sys, workload: &Workload, seed: u64) -> Options {
    let nr_cpus = sys.layout.nr_cpus;
    let ms = if rng.below(8) == 0 { 1_500 } else { 50 + rng.below(250) };
    let duration_ns = ms * 1_000_000;
    let nr_actions = if rng.below(2) == 0 { 0 } else { rng.below(12) };
    let actions = (0..nr_actions)
        .map(|_| {
            let at_ns = rng.below(duration_ns);
            let action = if rng.below(3) == 0 {
                let group = rng.below(workload.groups.len() as u64) as u16;
                Action::Affinity(group, some_cpus(rng, nr_cpus))
            } else {
                Action::Online(rng.below(nr_cpus as u64) as usize, rng.below(2) == 0)
            };
            (at_ns, action)
        })
        .collect();
    let tick_ns = [1_000_000, 4_000_000, 10_000_000][rng.below(3) as usize];
    Options { seed, duration_ns, warmup_ns: 0, tick_ns, actions }
}
