// SPDX-License-Identifier: MIT OR Apache-2.0
//! Automatic sizing: it reaches what is needed, stays there, and lets go again.

use std::ops::Range;

use policy::{Sizing, SizingInput};
use proptest::prelude::*;

const PERIOD_NS: u64 = 50_000_000;

/// Input of a period in which `wide` and `rest` CPUs' worth of work ran or waited, in 1/1000.
fn input(nr_cores: u32, threads: u32, wide_milli: u64, rest_milli: u64) -> SizingInput {
    SizingInput {
        elapsed_ns: PERIOD_NS,
        wide_run_ns: PERIOD_NS * wide_milli / 1000,
        rest_run_ns: PERIOD_NS * rest_milli / 1000,
        nr_cores,
        nr_cpus_per_core: threads,
        ..SizingInput::default()
    }
}

/// Run for this many periods; every size it had.
fn run(sizing: &mut Sizing, input: &SizingInput, periods: usize) -> Vec<u32> {
    (0..periods).map(|_| sizing.update(input)).collect()
}

/// A load as it shows at the size of the moment: of the wide work, in 1/1000 of a CPU, the set runs
/// what it can, the rest waits.
fn seen(sizing: &Sizing, mut load: SizingInput) -> SizingInput {
    let set_ns = u64::from(sizing.nr_wide * load.nr_cpus_per_core) * PERIOD_NS;
    let wanted_ns = load.wide_run_ns;
    load.wide_run_ns = wanted_ns.min(set_ns);
    load.wide_wait_ns += wanted_ns - load.wide_run_ns;
    load.mix_wait_ns = load.wide_wait_ns;
    load
}

fn run_seen(sizing: &mut Sizing, load: &SizingInput, periods: usize) -> Vec<u32> {
    (0..periods).map(|_| sizing.update(&seen(sizing, *load))).collect()
}

/// Steady loads on a machine with room: wide work gets cores that it fills to 55 %, and keeps them.
#[test]
fn settles_on_what_is_needed() {
    for (wide_milli, cores) in [(100, 1), (600, 1), (900, 2), (1900, 4), (2500, 5), (6000, 11)] {
        let mut sizing = Sizing { nr_wide: 1, ..Sizing::default() };
        let sizes = run_seen(&mut sizing, &input(16, 1, wide_milli, 4000), 200);
        assert_eq!(sizes[199], cores, "{wide_milli} thousandths of a CPU");
        assert_eq!(
            sizes[60..].iter().filter(|&&size| size != cores).count(),
            0,
            "it flaps: {sizes:?}"
        );
    }
}

/// What the rest needs is not taken for comfort: the set is fuller then, up to 95 %; and where both
/// want more than there is, it has its share.
#[test]
fn leaves_the_rest_its_room() {
    for (rest_milli, cores) in [(4_000, 8), (10_000, 6), (11_500, 5), (12_500, 4)] {
        let mut sizing = Sizing { nr_wide: 1, ..Sizing::default() };
        let sizes = run_seen(&mut sizing, &input(16, 1, 4300, rest_milli), 200);
        assert_eq!(sizes[199], cores, "beside {rest_milli} thousandths of a CPU: {sizes:?}");
    }
}

/// SMT: cores of two CPUs hold twice as much.
#[test]
fn counts_whole_cores() {
    let mut sizing = Sizing { nr_wide: 1, ..Sizing::default() };
    assert_eq!(run_seen(&mut sizing, &input(8, 2, 3900, 4000), 200)[199], 4);
}

/// More work than CPUs: shared in proportion, even if all wide work waits.
#[test]
fn overload_is_shared_in_proportion() {
    let mut sizing = Sizing { nr_wide: 1, ..Sizing::default() };
    let mut load = input(8, 1, 1000, 7000);
    load.wide_wait_ns = PERIOD_NS * 15; // 1 runs, 15 wait: demand 16
    load.mix_wait_ns = load.wide_wait_ns;
    load.rest_wait_ns = PERIOD_NS * 9; // 7 run, 9 wait: demand 16
    assert_eq!(run(&mut sizing, &load, 200)[199], 4);
}

/// 16 cores of two CPUs for ten seconds, with a load that looks so by the size of the set: wide
/// tasks run (3 % more or less for half a second each) and wait, the others run and wait, of both
/// waits for wide code, in 1/100 CPU.
fn sized(start: u32, seen: fn(u32) -> [u64; 5]) -> Sizing {
    let mut sizing = Sizing { nr_wide: start, ..Sizing::default() };
    for period in 0..200 {
        let cpus = seen(sizing.nr_wide).map(|part| part * PERIOD_NS / 100);
        let percent = if period / 10 % 2 == 0 { 103 } else { 97 };
        let all_ns = u64::from(sizing.nr_wide) * 2 * PERIOD_NS;
        sizing.update(&SizingInput {
            wide_run_ns: (cpus[0] * percent / 100).min(all_ns),
            wide_wait_ns: cpus[1],
            rest_run_ns: cpus[2],
            rest_wait_ns: cpus[3],
            mix_wait_ns: cpus[4],
            ..input(16, 2, 0, 0)
        });
    }
    sizing
}

/// An overloaded machine: a set that is 85 % full is left alone, from whichever side it was
/// reached, though its queue is nearly as long as what it runs.
#[test]
fn a_full_set_is_enough_under_overload() {
    // the video encoder beside Parsec of data/scenarios with hints, as the simulator sees it
    for start in 1..=3 {
        let sizing = sized(start, |nr_wide| match nr_wide {
            1 => [192, 1384, 3008, 1685, 506],
            2 => [343, 277, 2857, 2687, 317],
            _ => [308, 16, 2892, 2947, 260],
        });
        assert_eq!(sizing.nr_wide, 2, "from {start}");
        assert!(sizing.nr_changes <= 1, "{} changes from {start}", sizing.nr_changes);
    }
}

/// Tasks that wait for both: the encoder's turn scalar at each system call, and wait for scalar
/// CPUs to get at wide ones. Counted by the queues, the set seems too large at 6 cores (by its
/// share, 7 of 12 CPUs), and is never tried at 7, which is best; 6 is 2 % below.
#[test]
fn a_task_that_alternates_wants_wide_cpus_in_both_queues() {
    // the same with traps
    for start in 4..=10 {
        let sizing = sized(start, |nr_wide| match nr_wide {
            ..=4 => [800, 1730, 2400, 1343, 2049],
            5 => [999, 1434, 2201, 1607, 1818],
            6 => [1177, 1057, 2023, 1954, 1569],
            7 => [1321, 813, 1879, 2169, 1305],
            8 => [1479, 599, 1721, 2351, 1073],
            9 => [1594, 384, 1606, 2538, 847],
            10.. => [1647, 208, 1553, 2686, 617],
        });
        assert!((7..=8).contains(&sizing.nr_wide), "{} from {start}", sizing.nr_wide);
        assert!(sizing.nr_changes <= 4, "{} changes from {start}", sizing.nr_changes);
    }
}

/// A burst of load is answered within half a second, its end within a few seconds; the set grows by
/// half or halves at most with each change, and never flaps.
#[test]
fn follows_a_step_up_and_down() {
    let mut sizing = Sizing { nr_wide: 1, ..Sizing::default() };
    run_seen(&mut sizing, &input(16, 1, 200, 1000), 40);
    assert_eq!(sizing.nr_wide, 1);
    let up = run_seen(&mut sizing, &input(16, 1, 6000, 1000), 40);
    assert!(up[..10].iter().any(|&size| size >= 6), "slow: {up:?}");
    assert!(
        up.is_sorted_by(|a, b| a <= b && *b <= a + a.div_ceil(2)),
        "flaps on the way up: {up:?}"
    );
    let down = run_seen(&mut sizing, &input(16, 1, 200, 1000), 120);
    assert_eq!(down[119], 1, "{down:?}");
    assert!(down.is_sorted_by(|a, b| a >= b && a.div_ceil(2) <= *b), "flaps down: {down:?}");
}

/// A load that is too small for two cores and too large for one: each regret doubles the time until
/// the next try, so that a minute sees a few tries, not one each second.
#[test]
fn regret_makes_tries_rare() {
    let mut sizing = Sizing { nr_wide: 1, ..Sizing::default() };
    let mut changes_after = |seconds: u32| {
        for _ in 0..seconds * 20 {
            let milli = if sizing.nr_wide == 1 { 1000 } else { 300 };
            sizing.update(&input(16, 1, milli, 4000));
        }
        sizing.nr_changes
    };
    let (first, all) = (changes_after(4), changes_after(116));
    assert!(first >= 3, "{first} changes in 4 s: it does not even try");
    assert!(all <= 16, "{all} changes in two minutes");
}

/// Time of tasks in a period.
fn any_time() -> Range<u64> {
    0..u64::MAX / 4096
}

proptest! {
    /// Whatever comes in, the size is at least one core and leaves one for the rest; no core is
    /// wide that is of no use.
    #[test]
    fn stays_within_bounds(
        nr_cores in 1u32..600,
        threads in 1u32..3,
        start in 0u32..700,
        nr_useful in 0u32..600,
        loads in prop::collection::vec((any_time(), any_time(), any_time(), 1u64..1 << 40), 1..40),
    ) {
        let mut sizing = Sizing { nr_wide: start, ..Sizing::default() };
        for (wide, wait, rest, elapsed_ns) in loads {
            let input = SizingInput {
                elapsed_ns,
                wide_run_ns: wide,
                wide_wait_ns: wait / 2,
                rest_run_ns: rest,
                rest_wait_ns: wait / 2,
                mix_wait_ns: wait / 4,
                nr_cores,
                nr_cpus_per_core: threads,
                nr_useful,
            };
            let size = sizing.update(&input);
            prop_assert!(size >= 1 && size < nr_cores.max(2));
            prop_assert!(nr_useful == 0 || size <= nr_useful);
        }
    }

    /// A noisy load around a mean does not move the set more than once a second.
    #[test]
    fn noise_does_not_make_it_flap(
        mean in 300u64..6000,
        noise in prop::collection::vec(0u64..400, 400),
    ) {
        let mut sizing = Sizing { nr_wide: 1, ..Sizing::default() };
        run_seen(&mut sizing, &input(16, 1, mean, 4000), 100);
        let before = sizing.nr_changes;
        for n in &noise {
            let load = input(16, 1, (mean + n).saturating_sub(200), 4000);
            sizing.update(&seen(&sizing, load));
        }
        let seconds = noise.len() as u64 * PERIOD_NS / 1_000_000_000;
        let changes = sizing.nr_changes - before;
        prop_assert!(u64::from(changes) <= seconds, "{changes} changes in {seconds} s");
    }
}
