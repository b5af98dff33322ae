// SPDX-License-Identifier: MIT OR Apache-2.0
//! Control groups: effective weights are the shares of a tree, budgets hold in the long run.

use policy::groups::{self, ONE, PASS_NS, QUOTA_NONE};
use policy::{Budget, WEIGHT_UNIT};
use proptest::prelude::*;

/// A tree as the adapter keeps it: parents before children, the root first.
#[derive(Clone, Debug)]
struct Group {
    parent: usize,
    weight: u32,
    tasks: Vec<u32>,
    load: u32,
    factor: u64,
    competing: i64,
}

impl Group {
    fn new(parent: usize, weight: u32, tasks: &[u32]) -> Self {
        Group { parent, weight, tasks: tasks.to_vec(), load: 0, factor: ONE, competing: 0 }
    }

    fn own_load(&self) -> i64 {
        self.tasks.iter().map(|&weight| i64::from(weight)).sum()
    }

    /// The sum of its own tasks' effective weights, in weights.
    fn effective(&self) -> f64 {
        let weights = self.tasks.iter().map(|&own| groups::task_weight(self.factor, own));
        weights.map(f64::from).sum::<f64>() / f64::from(WEIGHT_UNIT)
    }
}

/// One pass, as bpf/held.bpf.h makes it.
fn pass(tree: &mut [Group]) {
    let mut competing = vec![0; tree.len()];
    for at in 1..tree.len() {
        let parent = &tree[tree[at].parent];
        let (parent_factor, group) = (parent.factor, &tree[at]);
        let load = groups::load(group.load, group.own_load() + group.competing);
        competing[group.parent] += if load > 0 { i64::from(group.weight) } else { 0 };
        tree[at].load = load;
        tree[at].factor = groups::factor(parent_factor, tree[at].weight, load);
    }
    for (group, competing) in tree.iter_mut().zip(competing) {
        group.competing = competing;
    }
}

/// Until nothing changes any more. A load that falls is halved some 20 times, and its parent's
/// begins to fall when it is gone: in a chain of groups one after the other.
fn settle(tree: &mut [Group]) {
    for _ in 0..40 * (tree.len() + 1) {
        pass(tree);
    }
}

/// The share due of each group's own tasks, level by level, as a weight at the root.
fn due(tree: &[Group]) -> Vec<f64> {
    let n = tree.len();
    let mut runs: Vec<bool> = tree.iter().map(|group| !group.tasks.is_empty()).collect();
    for at in (1..n).rev() {
        runs[tree[at].parent] |= runs[at];
    }
    let mut due = vec![1.0; n]; // what a unit of weight is worth there
    for at in 1..n {
        let children: f64 = (1..n)
            .filter(|&child| tree[child].parent == at && runs[child])
            .map(|child| f64::from(tree[child].weight))
            .sum();
        let load = tree[at].own_load() as f64 + children;
        due[at] = due[tree[at].parent] * f64::from(tree[at].weight) / load;
    }
    tree.iter()
        .zip(&due)
        .map(
            |(group, due)| if group.tasks.is_empty() { 0.0 } else { due * group.own_load() as f64 },
        )
        .collect()
}

fn assert_shares(tree: &[Group]) {
    for (at, (group, due)) in tree.iter().zip(due(tree)).enumerate().skip(1) {
        let got = group.effective();
        // A task's weight is a whole number of units, and at least one; a factor is a whole number
        // too, on each level.
        let mut coarse = group.tasks.len() as f64 / f64::from(WEIGHT_UNIT);
        let mut level = at;
        while level > 0 {
            coarse += due / tree[level].factor as f64;
            level = tree[level].parent;
        }
        assert!(
            (got - due).abs() <= 0.01 * due + coarse,
            "group {at} of {tree:#?}: {got} where {due} is due"
        );
    }
}

fn trees() -> impl Strategy<Value = Vec<Group>> {
    let tasks = prop::collection::vec(prop_oneof![Just(100u32), 1u32..10_000], 0..12);
    let group = (any::<prop::sample::Index>(), prop_oneof![Just(100u32), 1u32..=10_000], tasks);
    prop::collection::vec(group, 1..14).prop_map(|groups| {
        let mut tree = vec![Group::new(0, 100, &[])];
        for (parent, weight, tasks) in groups {
            tree.push(Group::new(parent.index(tree.len()), weight, &tasks));
        }
        tree
    })
}

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::with_cases(500)
    })]

    /// In any tree the tasks of each group have the weight that is due to it, within 1 %; and again
    /// after some groups have fallen asleep and others have woken up.
    #[test]
    fn effective_weights_are_the_shares(
        mut tree in trees(),
        changes in prop::collection::vec(any::<bool>(), 14),
    ) {
        settle(&mut tree);
        assert_shares(&tree);
        let asleep: Vec<_> = tree.iter().map(|group| group.tasks.clone()).collect();
        for (group, &changes) in tree.iter_mut().zip(&changes).skip(1) {
            if changes {
                group.tasks = if group.tasks.is_empty() { vec![100, 15] } else { vec![] };
            }
        }
        settle(&mut tree);
        assert_shares(&tree);
        for (group, tasks) in tree.iter_mut().zip(asleep) {
            group.tasks = tasks;
        }
        settle(&mut tree);
        assert_shares(&tree);
    }

    /// No weight is 0 or above the greatest, whatever the tree says, so that nobody starves and
    /// nothing overflows.
    #[test]
    fn weights_have_bounds(
        factor in 0u64..=10_000 * ONE,
        own in 0u32..=10_000,
        weight in 0u32..20_000,
        load: u32,
    ) {
        let effective = groups::task_weight(factor, own);
        prop_assert!((1..=10_000 * WEIGHT_UNIT).contains(&effective));
        prop_assert!((1..=10_000).contains(&groups::weight(weight, false)));
        prop_assert_eq!(groups::weight(weight, true), 1);
        prop_assert!(groups::factor(factor, weight.clamp(1, 10_000), load) > 0);
    }

    /// A load that rises counts at once, one that falls is gone soon, and none falls below what is
    /// there.
    #[test]
    fn loads_rise_at_once_and_fall_soon(before: u32, now in -5i64..1 << 33) {
        let mut load = groups::load(before, now);
        let least = now.clamp(0, i64::from(u32::MAX)) as u32;
        prop_assert!(load >= least && load <= before.max(least));
        for _ in 0..33 {
            load = groups::load(load, now);
        }
        prop_assert!(load <= least.saturating_add(1), "{} is left of {}", load, before);
    }
}

/// Two tasks of nice 0 in one group, one in another: the group's number of tasks changes nothing. A
/// task of the root competes with the groups.
#[test]
fn the_root_competes_with_its_children() {
    let mut tree =
        vec![Group::new(0, 100, &[]), Group::new(0, 100, &[100, 100]), Group::new(0, 100, &[100])];
    settle(&mut tree);
    assert_eq!(tree[1].effective(), tree[2].effective());
    let root_task = f64::from(groups::task_weight(tree[0].factor, 100)) / f64::from(WEIGHT_UNIT);
    assert_eq!(root_task, tree[2].effective());
}

/// CPUs on which tasks of a group run until a tick finds it out; CPU time is taken at ticks.
struct Machine {
    cpus: usize,
    tick_ns: u64,
    used_ns: Vec<u64>,
}

impl Machine {
    /// Run all CPUs for so long in the innermost of these nested groups, and return what they used.
    fn run(&mut self, budgets: &mut [Budget], time_ns: u64) -> u64 {
        let mut running = vec![false; self.cpus];
        let (mut used_ns, mut now_ns) = (0, 0);
        while now_ns < time_ns {
            if now_ns % PASS_NS == 0 {
                budgets.iter_mut().for_each(|budget| budget.refill(now_ns));
                let least = budgets.iter().map(|b| b.left_ns).min().unwrap_or(0);
                let back = groups::returns(least) as usize;
                for cpu in running.iter_mut().filter(|runs| !**runs).take(back) {
                    *cpu = true;
                }
            }
            now_ns += self.tick_ns;
            for runs in running.iter_mut().filter(|runs| **runs) {
                used_ns += self.tick_ns;
                for budget in budgets.iter_mut() {
                    budget.left_ns -= self.tick_ns as i64;
                }
                *runs = !budgets.iter().any(Budget::is_out);
            }
        }
        self.used_ns.push(used_ns);
        used_ns
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::with_cases(60)
    })]

    /// Busy CPUs in nested limited groups get the least quota in the long run: never more than it,
    /// the burst and a tick for each CPU; and not less, as far as there are CPUs.
    #[test]
    fn quotas_hold(
        cpus in 1usize..8,
        limits in prop::collection::vec((1u64..1000, 1u64..2000, 0u64..100), 1..4),
    ) {
        let time_ns = 20_000_000_000;
        let tick_ns = 2_000_000;
        let mut budgets: Vec<Budget> = limits
            .iter()
            .map(|&(period_ms, quota_ms, burst_ms)| {
                Budget::new(period_ms * 1000, quota_ms * 1000, burst_ms * 1000, 0)
            })
            .collect();
        let mut machine = Machine { cpus, tick_ns, used_ns: Vec::new() };
        let used_ns = machine.run(&mut budgets, time_ns);
        let share =
            |&(period_ms, quota_ms, _): &(u64, u64, u64)| quota_ms as f64 / period_ms as f64;
        for limit in &limits {
            let (_, quota_ms, burst_ms) = *limit;
            let most_ns = share(limit) * time_ns as f64 + ((quota_ms + burst_ms) * 1_000_000) as f64
                + (cpus as u64 * tick_ns) as f64;
            prop_assert!(used_ns as f64 <= most_ns, "{} of {} ns", used_ns, most_ns);
        }
    }

    /// One limit, as much work as CPUs: the group gets its quota, within a percent. As far as it
    /// can: what is left when a period begins is lost, and a pass may see the begin of a period so
    /// late that the next one comes a pass sooner.
    #[test]
    fn quotas_are_given(cpus in 1usize..8, percent in 1u64..800, period_ms in 20u64..500) {
        let pass_and_tick_ms = PASS_NS / 1_000_000 + 1;
        let most = cpus as u64 * 100 * (period_ms - pass_and_tick_ms) / period_ms;
        let percent = percent.min(most).min(cpus as u64 * 80);
        let quota_us = period_ms * 1000 * percent / 100;
        prop_assume!(quota_us >= 1000);
        let mut budgets = [Budget::new(period_ms * 1000, quota_us, 0, 0)];
        let time_ns = 400 * period_ms * 1_000_000;
        let mut machine = Machine { cpus, tick_ns: 1_000_000, used_ns: Vec::new() };
        let used_ns = machine.run(&mut budgets, time_ns) as f64;
        let due_ns = quota_us as f64 * 400.0 * 1000.0;
        prop_assert!((used_ns / due_ns - 1.0).abs() < 0.01, "{} of {} ns", used_ns, due_ns);
    }

    /// Whatever numbers come from the kernel, nothing overflows and no budget passes its quota and
    /// burst.
    #[test]
    fn budgets_have_bounds(
        period_us: u64,
        quota_us: u64,
        burst_us: u64,
        left in any::<i64>(),
        now_ns in 0u64..1 << 62,
    ) {
        let period_us = period_us % 1_000_001;
        let mut budget = Budget::new(period_us, quota_us, burst_us % QUOTA_NONE, 0);
        prop_assert_eq!(budget.quota_ns == 0, quota_us >= QUOTA_NONE || period_us == 0);
        budget.left_ns = left >> 2;
        let before_ns = budget.left_ns;
        budget.refill(now_ns);
        let most_ns = (budget.quota_ns + budget.burst_ns) as i64;
        prop_assert!(budget.left_ns >= before_ns && budget.left_ns <= most_ns.max(before_ns));
        prop_assert!(budget.quota_ns == 0 || budget.next_ns > now_ns);
    }
}

/// A group that is out has no tasks back; one with the least budget has one.
#[test]
fn tasks_come_back_by_what_is_left() {
    assert_eq!([i64::MIN, -1, 0].map(groups::returns), [0; 3]);
    assert_eq!([1, 999_999, 1_000_000, i64::MAX].map(groups::returns), [1, 1, 2, 1024]);
}
