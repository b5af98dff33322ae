// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which cores are wide where tasks may not run everywhere, see policy/bound.h.

use crate::CPUS_MAX;

unsafe extern "C" {
    fn tlp_bound_order(
        groups: *mut Bound,
        nr_groups: u32,
        order: *mut u16,
        nr_cores: u32,
        is_wide: *const u8,
    ) -> u32;
}

/// Groups that are told apart; smaller ones count as bound to none.
const GROUPS_MAX: usize = 32;

/// `tl_bound`.
#[derive(Clone, Debug)]
#[repr(C)]
struct Bound {
    wide_q10: u64,
    rest_q10: u64,
    nr_q10: u64,
    have_q10: u64,
    share_q10: [u16; CPUS_MAX],
}
const _: () = assert!(size_of::<Bound>() == 2080);

impl Bound {
    fn new(shares: &[u16], used: Used) -> Self {
        let mut share_q10 = [0; CPUS_MAX];
        share_q10[..shares.len()].copy_from_slice(shares);
        let nr_q10 = shares.iter().map(|&share| u64::from(share)).sum();
        let Used { wide_q10, rest_q10 } = used;
        Bound { wide_q10, rest_q10, nr_q10, have_q10: 0, share_q10 }
    }
}

/// CPUs that tasks used, 1024 = one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Used {
    /// By their wide code.
    pub wide_q10: u64,
    /// By their other code.
    pub rest_q10: u64,
}

impl Used {
    fn add(&mut self, other: Used) {
        self.wide_q10 += other.wide_q10;
        self.rest_q10 += other.rest_q10;
    }

    fn both(&self) -> u64 {
        self.wide_q10 + self.rest_q10
    }
}

/// Cores in the order in which they are to become wide.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Order {
    /// Those of use first.
    pub cores: Vec<usize>,
    /// How many are of use.
    pub nr_useful: usize,
}

impl Order {
    /// The default, in which all are of use.
    pub fn of(cores: Vec<usize>) -> Self {
        Order { nr_useful: cores.len(), cores }
    }
}

/// How much of each core tasks may use that may use these CPUs, 1024 = all of it.
pub fn shares<C>(cores: impl Iterator<Item = C>, may_use: impl Fn(usize) -> bool) -> Vec<u16>
where
    C: Iterator<Item = usize> + Clone,
{
    let share = |cpus: C| {
        let usable = cpus.clone().filter(|&cpu| may_use(cpu)).count();
        (usable * 1024 / cpus.count().max(1)) as u16
    };
    cores.map(share).collect()
}

/// Orders cores. `default` is the order without bound tasks; `bound` has, for tasks with the same
/// mask, how much of each core they may use (by core, [`shares`]) and what they used; `others` is
/// what all other tasks used, and `is_wide` says by core which are wide now.
pub fn order(
    default: &[usize],
    mut bound: Vec<(Vec<u16>, Used)>,
    others: Used,
    is_wide: &[bool],
) -> Order {
    let nr_cores = is_wide.len();
    if bound.is_empty() || nr_cores > CPUS_MAX {
        return Order::of(default.to_vec());
    }
    let mut others = others;
    bound.sort_by_key(|(_, used)| std::cmp::Reverse(used.both()));
    for (_, used) in bound.drain((GROUPS_MAX - 1).min(bound.len())..) {
        others.add(used);
    }
    let mut groups: Vec<Bound> =
        bound.iter().map(|(shares, used)| Bound::new(shares, *used)).collect();
    let mut everywhere = vec![0; nr_cores];
    for &core in default {
        everywhere[core] = 1024;
    }
    groups.push(Bound::new(&everywhere, others));
    let mut cores: Vec<u16> = default.iter().map(|&core| core as u16).collect();
    let is_wide: Vec<u8> = is_wide.iter().map(|&wide| wide.into()).collect();
    // SAFETY: arrays of these lengths, with cores below that of is_wide; layout asserted.
    let nr_useful = unsafe {
        tlp_bound_order(
            groups.as_mut_ptr(),
            groups.len() as u32,
            cores.as_mut_ptr(),
            cores.len() as u32,
            is_wide.as_ptr(),
        )
    };
    let cores = cores.into_iter().map(usize::from).collect();
    Order { cores, nr_useful: nr_useful as usize }
}
