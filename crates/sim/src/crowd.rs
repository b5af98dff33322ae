// SPDX-License-Identifier: MIT OR Apache-2.0
//! The other half of the fuzzer: crowds. Hundreds of busy tasks of every weight from 1 to 10,000 on
//! a few CPUs, bound and free, wide, scalar and never classified, for longer than the kernel's
//! watchdog waits.
//!
//! Problem: a task that waits too long ends the scheduler, and a local user chooses weights,
//! bindings and numbers. The cases of [`crate::fuzz`] have many kinds of events in a fraction of a
//! second; starvation takes seconds.
//!
//! The rule is that no task waits longer than the policy's bound, which knows no weights, and never
//! for ten seconds.

use cpumodel::InsnClass;

use crate::check::{Bounds, Checker};
use crate::engine::{Engine, Options};
use crate::fuzz::{Checked, Failure, config, most_wait_ns, platform, some_cpus, spread};
use crate::program::{Builder, Group, Step, Workload};
use crate::rng::{Dist, Rng};
use crate::sched::lane::{Lane, Mutation};
use crate::sys::{Layout, Sys};

/// Stream of a crowd's choices.
const CROWD: u64 = u64::MAX - 3;

/// Longer than the watchdog waits.
const DURATION_NS: u64 = 12_000_000_000;

/// Run the crowd of a seed, with a bug planted or not.
pub fn run_crowd(seed: u64, mutation: Option<Mutation>) -> Result<Checked, Failure> {
    let mut rng = Rng::new(seed, CROWD);
    let platform = platform(&mut rng);
    let sys = Sys::new(Layout::new(&platform.topology(1 + rng.below(2) as usize)));
    let nr_cpus = sys.layout.nr_cpus;
    let mut config = config(&mut rng, &sys);
    // what `turbolane run` has: with other slices the watchdog's ten seconds are others too
    (config.cfg.slice_ns, config.cfg.slice_wide_ns) = (5_000_000, 5_000_000);
    let workload = workload(&mut rng, nr_cpus);
    let nr_tasks: u64 = workload.groups.iter().map(|group| group.tasks as u64).sum();
    let tick_ns = [1_000_000, 4_000_000][rng.below(2) as usize];
    let options =
        Options { seed, duration_ns: DURATION_NS, warmup_ns: 0, tick_ns, actions: Vec::new() };
    let bounds = Bounds {
        moment_ns: 80_000 + platform.times.halts_ns(0, platform.nr_levels() as u8),
        tick_ns,
        wait_ns: most_wait_ns(nr_tasks, 5_000_000 + tick_ns, spread(&workload), false),
        conserves: true,
    };
    let mut sched = Lane::new(&sys, config);
    if let Some(mutation) = mutation {
        sched.mutate(mutation);
    }
    let checker = Checker::new(nr_cpus, bounds);
    let mut engine = Engine::new(platform, sys, sched, checker, workload, options);
    let out = engine.run().map_err(|error| Failure::Run { seed, error })?;
    let now_ns = engine.now_ns();
    match engine.into_sink().finish(now_ns) {
        Ok(events) => Ok(Checked { decisions: out.sched.decisions, events }),
        Err(violation) => Err(Failure::Broken { seed, violation }),
    }
}

/// Every weight, from 1 to 10,000, by its order of magnitude.
fn weight(rng: &mut Rng) -> u32 {
    let most = [10, 100, 1_000, 10_000][rng.below(4) as usize];
    1 + rng.below(most) as u32
}

/// Up to 400 busy tasks, and some that wake now and then.
fn workload(rng: &mut Rng, nr_cpus: usize) -> Workload {
    let mut w = Workload::new();
    for (class, _) in InsnClass::ALL {
        w.code(class, 1.0);
    }
    let nr_groups = 2 + rng.below(8);
    for i in 0..nr_groups {
        let work = Dist::Fixed(1_000_000 + rng.below(20_000_000));
        let program = match rng.below(4) {
            0 => Builder::new().step(Step::WideBegin { level: 2 }).work(0, work).forever(1),
            1 => Builder::new().wide(0, 2, Dist::Fixed(200_000)).work(0, work).forever(0),
            2 => Builder::new().work(0, work).sleep(Dist::Exponential(3_000_000)).forever(0),
            _ => Builder::new().work(0, work).forever(0),
        };
        let program = w.program(program);
        let mut group = Group::new(&format!("g{i}"), 1 + rng.below(50) as usize, program);
        group.weight = weight(rng);
        group.scalar = rng.below(2) == 0;
        group.start_ns = rng.below(2_000_000_000);
        group.affinity = match rng.below(3) {
            0 => Some(vec![rng.below(nr_cpus as u64) as usize]),
            1 => Some(some_cpus(rng, nr_cpus)),
            _ => None,
        };
        w.group(group);
    }
    w
}
