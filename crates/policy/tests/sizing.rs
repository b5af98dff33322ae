// SPDX-License-Identifier: MIT OR Apache-2.0
//! Automatic sizing: it reaches what is needed, stays there, and lets go again.

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

/// Steady loads that fit: the smallest set that holds the wide work, within a margin.
#[test]
fn settles_on_what_is_needed() {
    for (wide_milli, cores) in [(100, 1), (900, 1), (1900, 2), (2500, 3), (3900, 4), (6000, 6)] {
        let mut sizing = Sizing { nr_wide: 1, ..Sizing::default() };
        let sizes = run(&mut sizing, &input(16, 1, wide_milli, 4000), 200);
        assert_eq!(sizes[199], cores, "{wide_milli} thousandths of a CPU");
        assert_eq!(
            sizes[60..].iter().filter(|&&size| size != cores).count(),
            0,
            "it flaps: {sizes:?}"
        );
    }
}

/// SMT: cores of two CPUs hold twice as much.
#[test]
fn counts_whole_cores() {
    let mut sizing = Sizing { nr_wide: 1, ..Sizing::default() };
    assert_eq!(run(&mut sizing, &input(8, 2, 3900, 4000), 200)[199], 2);
}

/// More work than CPUs: shared in proportion, even if all wide work waits.
#[test]
fn overload_is_shared_in_proportion() {
    let mut sizing = Sizing { nr_wide: 1, ..Sizing::default() };
    let mut load = input(8, 1, 1000, 7000);
    load.wide_wait_ns = PERIOD_NS * 15; // 1 runs, 15 wait: demand 16
    load.rest_wait_ns = PERIOD_NS * 9; // 7 run, 9 wait: demand 16
    assert_eq!(run(&mut sizing, &load, 200)[199], 4);
}

/// A burst of load is answered within half a second, its end within a few seconds; between, the
/// set changes one step at a time and never flaps.
#[test]
fn follows_a_step_up_and_down() {
    let mut sizing = Sizing { nr_wide: 1, ..Sizing::default() };
    run(&mut sizing, &input(16, 1, 200, 1000), 40);
    assert_eq!(sizing.nr_wide, 1);
    let up = run(&mut sizing, &input(16, 1, 6000, 1000), 40);
    assert!(up[..10].iter().any(|&size| size >= 5), "slow: {up:?}");
    assert!(up.is_sorted(), "flaps on the way up: {up:?}");
    let down = run(&mut sizing, &input(16, 1, 200, 1000), 200);
    assert_eq!(down[199], 1, "{down:?}");
    assert!(down.is_sorted_by(|a, b| a >= b && a - b <= 1), "flaps on the way down: {down:?}");
}

proptest! {
    /// Whatever comes in, the size is at least one core and leaves one for the rest.
    #[test]
    fn stays_within_bounds(nr_cores in 1u32..600, threads in 1u32..3, start in 0u32..700,
                           loads in prop::collection::vec((0u64..u64::MAX / 4096, 0u64..u64::MAX / 4096, 0u64..u64::MAX / 4096, 1u64..1 << 40), 1..40)) {
        let mut sizing = Sizing { nr_wide: start, ..Sizing::default() };
        for (wide, wait, rest, elapsed_ns) in loads {
            let input = SizingInput {
                elapsed_ns, wide_run_ns: wide, wide_wait_ns: wait / 2, rest_run_ns: rest, rest_wait_ns: wait / 2,
                nr_cores, nr_cpus_per_core: threads,
            };
            let size = sizing.update(&input);
            prop_assert!(size >= 1 && size < nr_cores.max(2));
        }
    }

    /// A noisy load around a mean does not move the set more than once a second.
    #[test]
    fn noise_does_not_make_it_flap(mean in 300u64..6000, noise in prop::collection::vec(0u64..400, 400)) {
        let mut sizing = Sizing { nr_wide: 1, ..Sizing::default() };
        run(&mut sizing, &input(16, 1, mean, 4000), 100);
        let before = sizing.nr_changes;
        for n in &noise {
            sizing.update(&input(16, 1, (mean + n).saturating_sub(200), 4000));
        }
        let seconds = noise.len() as u64 * PERIOD_NS / 1_000_000_000;
        prop_assert!(u64::from(sizing.nr_changes - before) <= seconds, "{} changes in {seconds} s", sizing.nr_changes - before);
    }
}
