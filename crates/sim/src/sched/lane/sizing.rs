// SPDX-License-Identifier: MIT OR Apache-2.0
//! Automatic sizing: feeds policy/tiers.h with what was counted, as crates/sched/src/autosize.rs.

use policy::{NR_KINDS, Split, Tiers, TiersInput, WIDE_AUTO};

use super::{Lane, Wide};
use crate::events::Sink;
use crate::rng::Rng;
use crate::sys::Sys;
use crate::timers::NEVER;

/// How often the size is decided, as in crates/sched.
const PERIOD_NS: u64 = 50_000_000;

/// Sums over all CPUs, as `struct tl_cpu` counts them.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sums {
    pub run_ns: [u64; NR_KINDS],
    pub wait_ns: [u64; NR_KINDS],
    /// Of what was waited, for wide code.
    pub mix_wait_ns: u64,
}

/// State between two decisions.
#[derive(Clone, Debug, Default)]
pub(super) struct AutoSize {
    tiers: Tiers,
    before: Sums,
    /// Decides the classes in the policy's place.
    chance: Option<Rng>,
}

impl AutoSize {
    pub(super) fn leave_to_chance(&mut self, rng: Rng) {
        self.chance = Some(rng);
    }

    /// The wide cores and their classes.
    fn split(&mut self) -> Split {
        let mut split = self.tiers.split;
        let nr_wide = split.above[0].into();
        if let Some(rng) = self.chance.as_mut().filter(|_| nr_wide > 0) {
            split.above[1..].fill_with(|| 1 + rng.below(nr_wide) as u32);
        }
        split
    }

    /// What was counted since the last call.
    fn since(&mut self, now: &Sums) -> TiersInput {
        let since = |now: &[u64; NR_KINDS], before: &[u64; NR_KINDS]| {
            std::array::from_fn(|kind| now[kind] - before[kind])
        };
        let run_ns = since(&now.run_ns, &self.before.run_ns);
        let wait_ns = since(&now.wait_ns, &self.before.wait_ns);
        let mix_wait_ns = now.mix_wait_ns - self.before.mix_wait_ns;
        self.before = *now;
        TiersInput { elapsed_ns: PERIOD_NS, run_ns, wait_ns, mix_wait_ns, ..Default::default() }
    }
}

impl Lane {
    /// At 0: put the classes into force. Then, if there is something to size, decide it
    /// periodically.
    pub(super) fn on_control(&mut self, sys: &mut Sys, sink: &mut impl Sink) -> u64 {
        let online = |core: &&Vec<u16>| core.iter().any(|&cpu| sys.online.has(cpu as usize));
        let nr_cores = sys.layout.cores.iter().filter(online).count().max(1);
        let (is_auto, tiers) = (self.config.wide == Wide::Auto, self.config.tiers);
        let (asked, online) = self.nr_asked(sys);
        if sys.now_ns == 0 {
            self.sizing.tiers = Tiers::start(asked);
            let split = if self.watch.is_apart() { self.sizing.split() } else { Split::default() };
            self.apply_split(sys, split, sink);
            return if is_auto || tiers { PERIOD_NS } else { NEVER };
        }
        let input = TiersInput {
            nr_cores: nr_cores as u32,
            nr_cpus_per_core: (sys.online.len() / nr_cores).max(1) as u32,
            nr_wide: if is_auto { WIDE_AUTO } else { online as u32 },
            tiers: u32::from(tiers),
            nr_useful: self.bound.order.nr_useful as u32,
            ..self.sizing.since(&self.sums.clone())
        };
        let was_apart = self.watch.is_apart();
        let wait_ns = input.wait_ns[policy::TYPE_WIDE as usize..].iter().sum();
        let kernel = if self.watch.is_looking() { self.kernel_use() } else { Default::default() };
        self.watch.update(sys, &self.config, input.elapsed_ns, wait_ns, kernel);
        self.config.cfg.counts_q10 = self.watch.counts_q10();
        let ordered = self.order_cores(sys, was_apart);
        let split = match (was_apart, self.watch.is_apart()) {
            (_, false) => Split::default(),
            (true, true) => {
                self.sizing.tiers.update(&input);
                self.sizing.split()
            }
            (false, true) => {
                self.sizing.tiers.resume();
                self.sizing.split()
            }
        };
        if split != self.split || ordered {
            self.apply_split(sys, split, sink);
        }
        sys.now_ns + PERIOD_NS
    }
}
