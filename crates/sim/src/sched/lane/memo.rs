// SPDX-License-Identifier: MIT OR Apache-2.0
//! The policy's pure functions as tables.
//!
//! Problem: several answers of the policy are asked for in every event, by calls that the compiler
//! cannot look into.
//!
//! Idea: what depends on a task's type, level and reachable classes only has 3 * 4 * 16 arguments;
//! all of them are asked once, when the scheduler is made. The answers are still the C code's. A
//! test compares them with calls for tasks that have every other field random, and fails if the
//! policy begins to look at more.

use policy::{
    Cfg, Event, Gap, LEVEL_MAX, NR_CLASSES, NR_QUEUES, QUEUE_DEFAULT, QUEUE_NONE, Stay, Task,
};

const CLASSES: usize = NR_CLASSES as usize;

/// What the policy says of one kind of task.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Kind {
    /// `tl_task_need`.
    pub need: u8,
    /// `tl_task_queue`.
    pub queue: u8,
    /// Bit c: `tl_task_fits` on class c.
    pub fits: u8,
    /// Bit c: `tl_task_is_guest` on class c.
    pub guest: u8,
    /// Class and scope of each look for an idle CPU, `NR_CLASSES` at the end.
    pub looks: [(u8, u8); policy::IDLE_LOOKS],
}

impl Kind {
    fn ask(task: &Task) -> Self {
        let bits = |f: &dyn Fn(u32) -> bool| {
            (0..NR_CLASSES).fold(0u8, |bits, class| bits | u8::from(f(class)) << class)
        };
        Kind {
            need: task.need() as u8,
            queue: task.queue() as u8,
            fits: bits(&|class| task.fits(class)),
            guest: bits(&|class| task.is_guest(class)),
            looks: std::array::from_fn(|i| {
                let (class, scope) = task.look(i as u32).unwrap_or((NR_CLASSES, 0));
                (class as u8, scope as u8)
            }),
        }
    }
}

/// A CPU that may be displaced: it runs a task of this queue and has this class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Victim {
    pub rank: u8,
    pub class: u8,
    pub queue: u8,
}

/// All tables.
#[derive(Clone, Debug)]
pub(super) struct Memo {
    kinds: [Kind; 256],
    /// `[class][step]`: `tl_step_queue`.
    pub step_queue: [[u8; CLASSES]; CLASSES],
    /// `tl_nr_steps`.
    pub nr_steps: [u8; CLASSES],
    /// `[class][queue]`: `tl_queue_step`.
    pub queue_step: [[u8; 8]; CLASSES],
    /// `tl_step_has_default`.
    pub has_default: [bool; CLASSES],
    /// `tl_queue_class`.
    pub queue_class: [u8; 8],
    /// `[arrives][need]`: candidates, best first.
    pub victims: [[Vec<Victim>; CLASSES]; 2],
    /// By type: `tl_task_slice_ns`.
    pub slice_ns: [u64; 4],
    /// By type: whether a tick ([`Event::Tick`]) can change a task of it.
    pub ticks: [bool; 4],
    /// See [`Mutation::KernelFirst`].
    pub kernel_first: bool,
}

const _: () = assert!(NR_QUEUES <= 8 && LEVEL_MAX < 4);

/// Index of a task's kind.
#[inline]
fn index(task: &Task) -> usize {
    (task.task_type & 3) as usize
        | ((task.level & 3) as usize) << 2
        | ((task.caps & 15) as usize) << 4
}

impl Memo {
    pub(super) fn new(cfg: &Cfg) -> Self {
        let task = |i: usize| Task {
            task_type: (i & 3) as u8,
            level: (i >> 2 & 3) as u8,
            caps: (i >> 4) as u8,
            ..Default::default()
        };
        Memo {
            kinds: std::array::from_fn(|i| Kind::ask(&task(i))),
            step_queue: table(policy::step_queue),
            nr_steps: std::array::from_fn(|class| policy::nr_steps(class as u32) as u8),
            queue_step: table(|class, queue| policy::queue_step(class, queue.min(NR_QUEUES - 1))),
            has_default: std::array::from_fn(|step| policy::step_has_default(step as u32)),
            queue_class: std::array::from_fn(|queue| {
                policy::queue_class((queue as u32).min(NR_QUEUES - 1)) as u8
            }),
            victims: std::array::from_fn(|arrives| {
                std::array::from_fn(|need| victims(need as u32, arrives as u32))
            }),
            slice_ns: std::array::from_fn(|i| task(i).slice_ns(cfg)),
            ticks: std::array::from_fn(|i| tick_changes(cfg, &task(i))),
            kernel_first: false,
        }
    }

    /// The kind of a task.
    #[inline]
    pub(super) fn of(&self, task: &Task) -> &Kind {
        &self.kinds[index(task)]
    }
}

fn table<const N: usize>(f: impl Fn(u32, u32) -> u32) -> [[u8; N]; CLASSES] {
    std::array::from_fn(|a| std::array::from_fn(|b| f(a as u32, b as u32) as u8))
}

/// Whether a tick says anything to a task of this type, however long ago its last evidence was.
/// Only a wide task stays after a section.
fn tick_changes(cfg: &Cfg, task: &Task) -> bool {
    let stay = Stay { ran_ns: u32::MAX, ..Stay::default() };
    let stays = task.task_type == policy::TYPE_WIDE as u8;
    let gap = if stays { Gap { ran_ns: u32::MAX, ..Gap::staying(1) } } else { Gap::default() };
    let mut after = Task { level: 1, loose_level: 1, stay, gap, ..*task };
    let before = after;
    after.event(cfg, Event::Tick, 0, u64::MAX) || after != before
}

/// Every kind of CPU that the policy lets displace, best first. Only those that run something of
/// the default and scalar queues are kept track of; the policy must not want others.
fn victims(need: u32, arrives: u32) -> Vec<Victim> {
    let mut all = Vec::new();
    for class in 0..NR_CLASSES {
        for queue in 0..NR_QUEUES {
            let rank = policy::victim_rank(need, class, queue, arrives);
            assert!(rank == 0 || usize::from(queue as u8) < TRACKED, "only known victims");
            if rank > 0 {
                all.push(Victim { rank: rank as u8, class: class as u8, queue: queue as u8 });
            }
        }
        assert_eq!(policy::victim_rank(need, class, QUEUE_NONE, arrives), 0);
    }
    all.sort_by_key(|victim| std::cmp::Reverse(victim.rank));
    all
}

/// A planted bug: what the adapter does if the policy answers wrongly. For tests that the
/// checkers see it; nothing else uses them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutation {
    /// Wide tasks fit on every CPU.
    WideFitsEverywhere,
    /// Wide tasks queue up as default ones.
    WideQueuesAsDefault,
    /// Scalar tasks on wide CPUs are no guests.
    GuestsStay,
    /// The default queue belongs to no step.
    DefaultForgotten,
    /// Slices never end.
    EndlessSlices,
    /// Idle CPUs are not searched.
    IdleIgnored,
    /// Wide CPUs take scalar work first.
    ScalarFirst,
    /// Kernel threads that wake always go first.
    KernelFirst,
}

impl Mutation {
    /// All.
    pub const ALL: [Mutation; 8] = [
        Mutation::WideFitsEverywhere,
        Mutation::WideQueuesAsDefault,
        Mutation::GuestsStay,
        Mutation::DefaultForgotten,
        Mutation::EndlessSlices,
        Mutation::IdleIgnored,
        Mutation::ScalarFirst,
        Mutation::KernelFirst,
    ];
}

impl Memo {
    pub(super) fn mutate(&mut self, mutation: Mutation) {
        let wide = (0..256).filter(|i| i & 3 == policy::TYPE_WIDE as usize);
        match mutation {
            Mutation::WideFitsEverywhere => wide.for_each(|i| self.kinds[i].fits = 15),
            Mutation::WideQueuesAsDefault => {
                wide.for_each(|i| self.kinds[i].queue = QUEUE_DEFAULT as u8);
            }
            Mutation::GuestsStay => self.kinds.iter_mut().for_each(|kind| kind.guest = 0),
            Mutation::DefaultForgotten => self.has_default = [false; CLASSES],
            Mutation::EndlessSlices => self.slice_ns = [u64::MAX / 4; 4],
            Mutation::IdleIgnored => {
                self.kinds.iter_mut().for_each(|kind| kind.looks.fill((NR_CLASSES as u8, 0)));
            }
            Mutation::KernelFirst => self.kernel_first = true,
            Mutation::ScalarFirst => {
                for class in 1..CLASSES {
                    self.step_queue[class][..=class].reverse();
                    self.queue_step[class][policy::QUEUE_SCALAR as usize] = 0;
                }
            }
        }
    }
}

/// Queues whose running tasks are tracked for displacement: default and scalar.
pub(super) const TRACKED: usize = 2;
const _: () = assert!(QUEUE_DEFAULT == 0 && policy::QUEUE_SCALAR == 1);

#[cfg(test)]
mod tests {
    use super::*;
    use policy::{Last, Mix, Score, TYPE_WIDE};
    use proptest::prelude::*;

    proptest! {
        /// The tables say what the policy says, whatever else is known of the task.
        #[test]
        fn tables_are_the_policy(
            (task_type, level, caps) in (0u8..3, 0u8..4, 0u8..16),
            (hint_level, mark_level, loose_level, flags) in (0u8..4, 0u8..4, 0u8..4, 0u8..8),
            (score_q10, score_level) in (0u16..=3072, 0u8..4),
            (vtime_ns, evidence_ns, enqueued_ns, started_ns) in any::<(u64, u64, u64, u64)>(),
            (weight, clock, mark_depth, now_ns) in any::<(u32, u32, u8, u64)>(),
            (run_ns, wide_ns, past) in any::<(u32, u32, u8)>(),
            (remigrate, timeout_ns) in (0u32..64, any::<u64>()),
            other_ns in prop::sample::select(&[0, 1, u64::MAX]),
        ) {
            let cfg = Cfg {
                slice_ns: 5,
                slice_wide_ns: 7,
                remigrate,
                remigrate_timeout_ns: timeout_ns,
                wide_timeout_ns: other_ns,
                rest_below_ns: other_ns,
                unclassified: 0,
                ..Cfg::default()
            };
            let memo = Memo::new(&cfg);
            // a task that stays is wide (tests/gap.rs of crates/policy)
            let may_stay = task_type == TYPE_WIDE as u8 && level > 0;
            let gap = if may_stay && past & 1 == 1 { Gap::staying(level) } else { Gap::default() };
            let task = Task {
                vtime_ns, evidence_ns, enqueued_ns, started_ns, weight, clock, task_type, level,
                hint_level, mark_level, loose_level, mark_depth, caps, flags,
                score: Score { score_q10, level: score_level, ..Score::default() },
                mix: Mix { run_ns, wide_ns, ..Mix::default() },
                stay: Stay { ran_ns: run_ns, ..Stay::default() },
                gap: Gap { ran_ns: run_ns, past, ..gap },
                last: Last { ran_ns: run_ns, past, ..Last::default() },
                // scenarios have no rules
                rule: 0, zero: [0; 7],
            };
            prop_assert_eq!(*memo.of(&task), Kind::ask(&task));
            prop_assert_eq!(memo.slice_ns[task_type as usize], task.slice_ns(&cfg));
            let (mut ticked, was) = (task, task.task_type as usize);
            let changed = ticked.event(&cfg, Event::Tick, 0, now_ns);
            prop_assert!(memo.ticks[was] || (!changed && ticked == task), "a tick changes nothing");
        }
    }
}
