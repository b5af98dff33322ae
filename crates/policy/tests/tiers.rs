// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tiers: classes come where levels fill cores of their own, follow the demand, and go again.

use policy::{LEVEL_MAX, NR_KINDS, Tiers, TiersInput, WIDE_AUTO, kind};
use proptest::prelude::*;

const PERIOD_NS: u64 = 50_000_000;

/// Work of a level: what runs and what waits, in 1/1000 of a CPU.
type Load = [(u64, u64); 3];

/// Input of a period in which that ran and waited on `nr_wide` cores of one CPU.
fn input(nr_wide: u32, load: Load) -> TiersInput {
    let mut input = TiersInput {
        elapsed_ns: PERIOD_NS,
        nr_cores: 32,
        nr_cpus_per_core: 1,
        nr_wide,
        tiers: 1,
        ..Default::default()
    };
    for (level, (run, wait)) in (1..).zip(load) {
        input.run_ns[kind(policy::TYPE_WIDE as u8, level)] = PERIOD_NS * run / 1000;
        input.wait_ns[kind(policy::TYPE_WIDE as u8, level)] = PERIOD_NS * wait / 1000;
    }
    input
}

/// What tasks that never sleep show, so many of each level, on so many wide cores in these classes:
/// a level runs on its class, and above where that is free.
fn seen(tiers: &Tiers, tasks: [u64; 3]) -> TiersInput {
    let nr_wide = tiers.split.above[0];
    let mut free = [0; 4];
    (0..nr_wide).for_each(|rank| free[tiers.split.core_class(rank) as usize] += 1000);
    let mut load = tasks.map(|tasks| (0, 1000 * tasks));
    // one class: all tasks share it alike
    if free[LEVEL_MAX as usize] == 1000 * u64::from(nr_wide) {
        let all = tasks.iter().sum::<u64>().max(1);
        let cpus = u64::from(nr_wide).min(all);
        return input(
            nr_wide,
            tasks.map(|n| (1000 * n * cpus / all, 1000 * n * (all - cpus) / all)),
        );
    }
    for level in (1..=3).rev() {
        for free in &mut free[level..] {
            let (run, wait) = &mut load[level - 1];
            let gets = *wait.min(free);
            *free -= gets;
            *run += gets;
            *wait -= gets;
        }
    }
    input(nr_wide, load)
}

/// Run with these tasks for so many periods; the changes of the split, with the period of each.
fn run(tiers: &mut Tiers, tasks: [u64; 3], periods: usize) -> Vec<(usize, [u32; 3])> {
    let step = |period| {
        let input = seen(tiers, tasks);
        tiers.update(&input).then_some((period, tiers.split.above))
    };
    (0..periods).filter_map(step).collect()
}

/// Tasks that want more than there is: each level gets its share of the cores, if that is a number
/// of whole cores or nearly so, once and for good.
#[test]
fn shares_follow_the_demand() {
    for (nr_wide, tasks, above) in [
        (6, [4, 8, 0], [6, 4, 6]),
        (6, [8, 4, 0], [6, 2, 6]),
        (6, [0, 4, 8], [6, 6, 4]),
        (3, [2, 2, 2], [3, 2, 1]),
        (12, [8, 8, 8], [12, 8, 4]),
        (24, [10, 26, 0], [24, 18, 24]),
    ] {
        let mut tiers = Tiers::start(nr_wide);
        let changes = run(&mut tiers, tasks, 400);
        assert_eq!(tiers.split.above, above, "{nr_wide} cores, {tasks:?}: {changes:?}");
        assert!(changes.len() <= 3, "{nr_wide} cores, {tasks:?}: {changes:?}");
    }
}

/// Where a level has no work, or too little for a core, or its share would lose too much by whole
/// cores, there is one class: nobody loses CPUs to a class that has nothing to do.
#[test]
fn no_split_where_it_would_cost() {
    for (nr_wide, tasks) in [
        (8, [0, 20, 0]),
        (8, [20, 0, 0]),
        (8, [0, 0, 20]),
        (1, [5, 5, 0]),
        (4, [1, 20, 0]),
        (3, [2, 2, 0]),
    ] {
        let mut tiers = Tiers::start(nr_wide);
        let changes = run(&mut tiers, tasks, 400);
        assert_eq!(tiers.split.above, [nr_wide as u32; 3], "{tasks:?}: {changes:?}");
        assert!(changes.is_empty(), "{tasks:?}: {changes:?}");
    }
}

/// With CPUs to spare the higher level gets its share, but CPUs that it fills to 85 % at most; what
/// the lower level lacks by that, it finds above.
#[test]
fn room_is_left_to_the_higher_level() {
    for (below_milli, above_milli, cores) in
        [(2000, 2000, 4), (4000, 3300, 4), (3000, 4000, 5), (2600, 5000, 6), (1000, 300, 2)]
    {
        let mut tiers = Tiers::start(8);
        let load = input(8, [(below_milli, 0), (above_milli, 0), (0, 0)]);
        (0..400).for_each(|_| _ = tiers.update(&load));
        assert_eq!(tiers.split.above, [8, cores, 8], "{below_milli} below, {above_milli} above");
    }
}

/// A load that changes: the higher level gets what it needs within half a second, the lower one
/// after the hold time of a second, and a level that ends gives everything back at once.
#[test]
fn follows_the_load() {
    let mut tiers = Tiers::start(12);
    assert_eq!(run(&mut tiers, [16, 8, 0], 100), [(19, [12, 4, 12])]);
    let grows = run(&mut tiers, [16, 16, 0], 40);
    assert_eq!(tiers.split.above, [12, 6, 12]);
    assert!(grows.iter().all(|change| change.0 < 10), "{grows:?}");
    let ends = run(&mut tiers, [16, 0, 0], 40);
    assert_eq!(tiers.split.above, [12, 12, 12]);
    assert!(ends.len() == 1 && ends[0].0 < 20, "{ends:?}");
}

/// A level that ends whenever there is a split, and else is there: each regret doubles the time
/// until the next try, so that two minutes see a few.
#[test]
fn regret_makes_tries_rare() {
    let mut tiers = Tiers::start(6);
    let mut changes_after = |seconds: usize| -> usize {
        let mut step = || {
            let is_split = tiers.split.above[1] < 6;
            run(&mut tiers, if is_split { [12, 0, 0] } else { [8, 4, 0] }, 1).len()
        };
        (0..seconds * 20).map(|_| step()).sum()
    };
    let (first, all) = (changes_after(4), changes_after(116));
    assert!(first >= 2, "{first} changes in 4 s: it does not even try");
    assert!(all <= 14, "{all} changes in two minutes");
}

/// Automatic sizing and tiers together: the set grows first, and is split when it is steady.
#[test]
fn the_wide_set_comes_first() {
    let mut tiers = Tiers::start(1);
    let mut sizes = vec![];
    for _ in 0..200 {
        let load = TiersInput { nr_wide: WIDE_AUTO, nr_cores: 16, ..seen(&tiers, [2, 4, 0]) };
        if tiers.update(&load) {
            sizes.push(tiers.split.above);
        }
    }
    let split = sizes.iter().position(|above| above[1] < above[0]).expect("no split");
    assert!(sizes[..split].is_sorted_by(|a, b| a[0] < b[0]), "{sizes:?}");
    assert!(sizes[split..].iter().all(|above| above[0] == sizes[split][0]), "{sizes:?}");
    assert!(sizes.len() - split <= 2, "{sizes:?}");
}

/// Time of tasks in a period.
fn times() -> impl Strategy<Value = [u64; 8]> {
    prop::array::uniform8(0u64..1 << 50)
}

proptest! {
    /// Whatever comes in, every level finds a core of its class or above while there are wide
    /// cores, and without tiers all of them are in one class.
    #[test]
    fn every_level_is_served(
        nr_cores in 1u32..600,
        threads in 1u32..3,
        start in 0usize..700,
        asked in 0u32..600,
        auto: bool,
        periods in prop::collection::vec(
            (times(), times(), 1u64..1 << 40, 0u32..2, 0u32..20),
            1..40,
        ),
    ) {
        let mut tiers = Tiers::start(start);
        for (run_ns, wait_ns, elapsed_ns, tiers_on, gone) in periods {
            let nr_wide = if auto { WIDE_AUTO } else { asked.min(nr_cores).saturating_sub(gone) };
            let before = tiers.split;
            let changed = tiers.update(&TiersInput {
                elapsed_ns,
                run_ns,
                wait_ns,
                mix_wait_ns: wait_ns[1],
                nr_cores,
                nr_cpus_per_core: threads,
                nr_wide,
                tiers: tiers_on,
                nr_useful: gone,
            });
            let split = tiers.split;
            prop_assert_eq!(changed, split != before);
            let nr_wide = split.above[0];
            if auto {
                prop_assert!(nr_wide >= 1 && nr_wide < nr_cores.max(2));
            }
            let classes: Vec<u32> = (0..nr_cores).map(|rank| split.core_class(rank)).collect();
            prop_assert!(classes.is_sorted_by(|a, b| a >= b));
            prop_assert_eq!(classes.iter().filter(|&&class| class > 0).count() as u32, nr_wide);
            prop_assert!(nr_wide == 0 || classes[0] == LEVEL_MAX);
            if tiers_on == 0 {
                prop_assert_eq!(split.above, [nr_wide; 3]);
            }
        }
    }

    /// A noisy load around a mean changes the split no more than once a second.
    #[test]
    fn noise_does_not_make_it_flap(
        one in 300u64..6000, two in 300u64..6000, three in 0u64..3000,
        noise in prop::collection::vec((0u64..300, 0u64..300), 400),
    ) {
        let mut tiers = Tiers::start(12);
        let mut step = |noise: (u64, u64)| {
            let part = |mean: u64, noise: u64| (mean + noise).saturating_sub(150);
            let load = [(part(one, noise.0), 0), (part(two, noise.1), 0), (three, 0)];
            let all: u64 = load.iter().map(|(run, _)| run).sum();
            // what there is no CPU for waits
            let cpus = all.min(12_000);
            let load = load.map(|(run, _)| (run * cpus / all, run * (all - cpus) / all));
            u64::from(tiers.update(&input(12, load)))
        };
        (0..100).for_each(|_| _ = step((150, 150)));
        let changes: u64 = noise.iter().map(|&noise| step(noise)).sum();
        let seconds = noise.len() as u64 * PERIOD_NS / 1_000_000_000;
        prop_assert!(changes <= seconds, "{} changes in {} s", changes, seconds);
    }
}

/// Kinds: types by themselves, wide tasks by level.
#[test]
fn kinds_differ() {
    let (default, scalar, wide) =
        (policy::TYPE_DEFAULT as u8, policy::TYPE_SCALAR as u8, policy::TYPE_WIDE as u8);
    let mut kinds = vec![kind(default, 0), kind(scalar, 0)];
    kinds.extend((1..=LEVEL_MAX as u8).map(|level| kind(wide, level)));
    assert!(kinds.is_sorted_by(|a, b| a < b) && kinds[4] < NR_KINDS, "{kinds:?}");
}
