// SPDX-License-Identifier: MIT OR Apache-2.0
//! policy/bound.h: which cores are wide where tasks may not run everywhere.

use policy::bound::{Order, Used, order, shares};
use proptest::prelude::*;

/// The last core first, as on a machine of one node.
fn last_first(nr_cores: usize) -> Vec<usize> {
    (0..nr_cores).rev().collect()
}

fn used(wide_q10: u64, rest_q10: u64) -> Used {
    Used { wide_q10, rest_q10 }
}

/// Whole cores.
fn cores(nr_cores: usize, among: impl Fn(usize) -> bool) -> Vec<u16> {
    shares((0..nr_cores).map(std::iter::once), among)
}

fn first(order: &Order, nr: usize) -> Vec<usize> {
    order.cores[..nr].to_vec()
}

const NONE: [bool; 16] = [false; 16];

/// Nobody is bound, or who is bound has no more claim than others: the default order.
#[test]
fn without_masks_it_is_the_default_order() {
    let default = last_first(16);
    let free = order(&default, Vec::new(), used(2048, 8192), &NONE);
    assert_eq!(free, Order::of(default.clone()));
    let everywhere = vec![(cores(16, |_| true), used(2048, 8192))];
    assert_eq!(order(&default, everywhere, used(0, 0), &NONE).cores, default);
    let no_wide = vec![(cores(16, |core| core < 4), used(0, 2048))];
    assert_eq!(order(&default, no_wide, used(0, 1024), &NONE), Order::of(default));
}

/// A server that is bound to cores 4..=11 has its wide cores there, and keeps one for its other
/// code.
#[test]
fn a_bound_server_has_its_wide_cores_within_reach() {
    let server = vec![(cores(16, |core| (4..12).contains(&core)), used(1024, 4096))];
    let order = order(&last_first(16), server, used(0, 6000), &NONE);
    assert_eq!(order.nr_useful, 7);
    assert_eq!(first(&order, 7), [11, 10, 9, 8, 7, 6, 5]);
}

/// As THESIS 5.2 on a CPU of 16 cores, siblings 16 apart: of cores 2, 3, 12 and 13 it may use one
/// of two CPUs.
#[test]
fn whole_cores_go_before_halves() {
    let of_core = |core: usize| [core, core + 16].into_iter();
    let may_use = |cpu: usize| (4..14).contains(&cpu) || (18..28).contains(&cpu);
    let server = shares((0..16).map(of_core), may_use);
    assert_eq!((server[1], server[3], server[5], server[13]), (0, 512, 1024, 512));
    let order = order(&last_first(16), vec![(server, used(2048, 8192))], used(0, 4096), &NONE);
    assert_eq!(first(&order, 3), [11, 10, 9]);
}

/// Two servers have seats in proportion to their wide code, free ones a share of both.
#[test]
fn seats_are_in_proportion() {
    let low = cores(16, |core| core < 8);
    let high = cores(16, |core| core >= 8);
    let order = order(
        &last_first(16),
        vec![(low, used(3072, 4096)), (high, used(1024, 4096))],
        used(0, 0),
        &NONE,
    );
    let seats = first(&order, 4);
    assert_eq!(seats.iter().filter(|&&core| core < 8).count(), 3, "{seats:?}");
}

/// Of cores that are equal to wide code, a bound scalar program keeps its own.
#[test]
fn bound_scalar_work_keeps_its_cores() {
    let database = vec![(cores(16, |core| core >= 12), used(0, 4096))];
    let order = order(&last_first(16), database, used(2048, 4096), &NONE);
    assert_eq!(first(&order, 3), [11, 10, 9]);
}

/// A little more demand elsewhere moves nothing; much more does.
#[test]
fn a_wide_core_stays_wide() {
    let wide = |now: usize| -> Vec<bool> { (0..16).map(|core| core == now).collect() };
    for (low_q10, seat) in [(1000, 15), (1100, 15), (1400, 7)] {
        let groups = vec![
            (cores(16, |core| core < 8), used(low_q10, 2048)),
            (cores(16, |core| core >= 8), used(1000, 2048)),
        ];
        let order = order(&last_first(16), groups, used(0, 0), &wide(15));
        assert_eq!(first(&order, 1), [seat], "{low_q10}");
    }
}

proptest! {
    /// Whatever is asked, each core is there once; those of use come first, and among those no
    /// group with other work has lost its last core.
    #[test]
    fn every_core_has_one_place(
        masks in prop::collection::vec((0u32..1 << 12, 0u64..1 << 24, 0u64..1 << 24), 0..40),
        others in (0u64..1 << 24, 0u64..1 << 24),
        wide in prop::collection::vec(any::<bool>(), 12),
    ) {
        let default = last_first(12);
        let of = |mask: u32| cores(12, move |core| mask >> core & 1 == 1);
        let groups: Vec<_> = masks.iter().map(|&(mask, w, r)| (of(mask), used(w, r))).collect();
        let got = order(&default, groups.clone(), used(others.0, others.1), &wide);
        let mut sorted = got.cores.clone();
        sorted.sort_unstable();
        prop_assert_eq!(sorted, (0..12).collect::<Vec<_>>());
        prop_assert!((1..=12).contains(&got.nr_useful));
        if groups.len() < 31 && got.nr_useful < 12 {
            for (shares, used) in groups.iter().filter(|(_, used)| used.rest_q10 >= 128) {
                let mine = shares.iter().filter(|&&share| share > 0).count();
                let taken = got.cores[..got.nr_useful].iter().filter(|&&core| shares[core] > 0);
                let left = mine - taken.count();
                prop_assert!(mine < 2 || left >= 1, "{used:?} of {shares:?}: {got:?}");
            }
        }
    }
}
