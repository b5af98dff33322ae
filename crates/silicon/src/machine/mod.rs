// SPDX-License-Identifier: MIT OR Apache-2.0
//! Cores, CPUs and the passage of time.
//!
//! What a trace of n instructions takes, in time of its CPU:
//!
//! ```text
//!   (n + stall) cycles  x  cycle(level, active cores, P-state)
//!                       x  1 / throttle_frac   if the core waits for a level that it asks for
//!                       x  2 / smt_frac        if its sibling is awake
//! ```
//!
//! The demand of a trace counts from its beginning. Which clock a CPU has is in `clocking.rs`.

mod access;
mod account;
mod clocking;

use std::collections::BTreeSet;

use cpumodel::{CoreLicense, Times};

use crate::classes::{class_of, is_known};
use crate::clocks::{Clocks, NEVER, Time};
use crate::demand::{Density, Rules, WIDE, WideCounts};
use crate::notice::Notice;
use crate::pmu::{Counted, Pmu};
use crate::power::{Meter, Package};
use crate::pstates::{Pstates, Request};
use crate::settings::{Settings, SettingsError};
use crate::truth::Truth;

/// 1.0 as a factor.
const ONE: u64 = 1 << 16;

/// What a CPU executed: one trace.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub struct Work {
    /// Instructions that ended; 0 if an exception kept the first from it.
    pub insns: u32,
    /// Cycles that the CPU waited on top of one per instruction.
    pub stall_cycles: u32,
    /// Wide instructions by class: sums of `silicon_class`.
    pub wide: u32,
    /// 1 in user mode, else 0.
    pub is_user: u32,
}

/// What became of a write to a register.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Written {
    /// The machine has no such register, or it cannot be written.
    Unknown = 0,
    /// It has the new value.
    Done = 1,
    /// The value is refused: the write raises #GP.
    Refused = 2,
}

struct Core {
    license: CoreLicense,
    /// When its licence or the P-state of a CPU changes next.
    deadline: Time,
    /// Its CPUs that are awake.
    awake: u32,
}

struct Cpu {
    core: usize,
    is_awake: bool,
    demand: u8,
    /// The ceiling of its clock that software asks for; 0 for none.
    ratio: u8,
    /// Instead of that the P-state that it asks for, where those are by number.
    request: Option<Request>,
    /// The level whose clock is in force.
    level: u8,
    /// Time of a cycle at this level, the active cores and the ratio.
    cycle: Time,
    density: Density,
    notice: Notice,
    pmu: Pmu,
    /// Core cycles times `ONE`.
    cycles_q16: u64,
    insns: u64,
    busy: Vec<Time>,
    /// Part of `busy` whose power an awake sibling accounts for.
    shared: Time,
    meter: Meter,
    halted: Time,
    throttled: Time,
    needed: Time,
    wide: [u64; WIDE.len()],
}

impl Cpu {
    /// Time for which it has used its core's power.
    fn powered(&self) -> Time {
        self.busy.iter().sum::<Time>() - self.shared
    }
}

/// The machine. All times are on one clock, see [`Time`].
pub struct Machine {
    clocks: Clocks,
    /// Of a machine whose P-states software sets.
    pstates: Option<Pstates>,
    rules: Rules,
    times: Times,
    /// Time of a throttled trace over that of another.
    throttle_q16: u64,
    /// Time of a trace next to a busy sibling over that of a trace alone.
    share_q16: u64,
    is_package_wide: bool,
    pcu_period_ns: u64,
    threads: usize,
    others: usize,
    /// Awake cores of the guest.
    awake: usize,
    /// Active cores that the clocks follow.
    applied: usize,
    /// The power control unit's next look.
    look: Time,
    package: Package,
    cores: Vec<Core>,
    cpus: Vec<Cpu>,
    at: Vec<Time>,
    unclassified: BTreeSet<String>,
    truth: Truth,
}

impl Machine {
    /// A machine whose CPUs are all awake at time 0.
    ///
    /// # Errors
    /// When the settings do not allow so many CPUs.
    pub fn new(settings: &Settings, cpus: u32, threads: u32) -> Result<Self, SettingsError> {
        let (platform, others) = settings.platform(cpus, threads)?;
        let clocks = Clocks::new(&platform, settings.base_khz());
        let pstates = settings.pstates();
        let pstates =
            pstates.map(|model| Pstates::new(model, settings.is_boosted_by_hardware, &clocks));
        let request = pstates.as_ref().map(Pstates::at_reset);
        let nr_cores = (cpus / threads) as usize;
        let active = nr_cores + others as usize;
        let levels = platform.nr_levels();
        let quotient = |over: f64, under: f64| (over / under * ONE as f64) as u64;
        let core = || Core { license: CoreLicense::default(), deadline: NEVER, awake: threads };
        let cpu = |index: u32| Cpu {
            core: (index / threads) as usize,
            is_awake: true,
            demand: 0,
            ratio: 0,
            request: request.clone(),
            level: 0,
            cycle: clocks.cycle(0, active, 0),
            density: Density::default(),
            notice: Notice::default(),
            pmu: Pmu::default(),
            cycles_q16: 0,
            insns: 0,
            busy: vec![0; levels],
            shared: 0,
            meter: Meter::default(),
            halted: 0,
            throttled: 0,
            needed: 0,
            wide: [0; WIDE.len()],
        };
        let mut machine = Machine {
            package: Package::new(&platform, settings.pstates(), others, active),
            pstates,
            rules: Rules::new(&platform),
            times: platform.times,
            throttle_q16: quotient(1.0, platform.throttle_frac.clamp(1.0 / 1024.0, 1.0)),
            share_q16: quotient(f64::from(threads), platform.smt_frac.max(0.1)).max(ONE),
            is_package_wide: platform.level_is_package_wide,
            pcu_period_ns: platform.pcu_period_ns,
            threads: threads as usize,
            others: others as usize,
            awake: nr_cores,
            applied: active,
            look: clocks.at_ns(platform.pcu_period_ns),
            cores: (0..nr_cores).map(|_| core()).collect(),
            cpus: (0..cpus).map(cpu).collect(),
            at: vec![0; cpus as usize],
            unclassified: BTreeSet::new(),
            truth: Truth::none(),
            clocks,
        };
        machine.retime();
        Ok(machine)
    }

    /// What an instruction adds to [`Work::wide`]. A vector mnemonic that `data/isa` does not know
    /// is noted in the log.
    pub fn classify(&mut self, mnemonic: &str, width_bits: u16) -> WideCounts {
        let is_vector = mnemonic.starts_with('v') && width_bits > 128;
        if is_vector && !is_known(mnemonic) && self.unclassified.insert(mnemonic.to_owned()) {
            self.truth.unclassified(mnemonic);
        }
        WideCounts::one(class_of(mnemonic, width_bits))
    }

    /// The clocks.
    #[must_use]
    pub fn clocks(&self) -> &Clocks {
        &self.clocks
    }

    /// The licence of a core.
    #[must_use]
    pub fn license(&self, core: usize) -> &CoreLicense {
        &self.cores[core].license
    }

    /// Local times, one for each CPU. They stay where they are in memory.
    #[must_use]
    pub fn local_times(&self) -> &[Time] {
        &self.at
    }

    /// A CPU executed a trace; its local time moves. True if a performance counter wants an
    /// interrupt, or a notice does.
    #[inline]
    pub fn ran(&mut self, index: usize, work: &Work) -> bool {
        let (cpu, at) = (&mut self.cpus[index], &mut self.at[index]);
        let core = &self.cores[cpu.core];
        let is_due = *at >= core.deadline.min(self.look).min(cpu.notice.due);
        let is_quiet = !is_due && core.awake == 1;
        let is_scalar = work.wide == 0 && cpu.demand == 0 && cpu.density.is_zero();
        if !(is_quiet && is_scalar) {
            return self.ran_with_licence(index, work);
        }
        // Most traces: nothing is due and nothing is asked for.
        let cycles = u64::from(work.insns.max(1) + work.stall_cycles);
        let spent = cycles * cpu.cycle;
        let before = *at;
        *at += spent;
        cpu.cycles_q16 += cycles * ONE;
        cpu.insns += u64::from(work.insns);
        cpu.busy[cpu.level as usize] += spent;
        let is_user = work.is_user != 0;
        cpu.pmu.counts(is_user)
            && cpu.pmu.add(&Counted {
                is_user,
                insns: u64::from(work.insns),
                cycles,
                ref_cycles: (*at >> 16) - (before >> 16),
                level: cpu.level,
                throttled_cycles: 0,
            })
    }

    #[inline(never)]
    fn ran_with_licence(&mut self, index: usize, work: &Work) -> bool {
        self.catch_up(index);
        let start = self.at[index];
        let counts = WideCounts(work.wide);
        let cpu = &mut self.cpus[index];
        let demand = cpu.density.trace(&self.rules, counts, work.insns);
        if demand != cpu.demand {
            self.set_demand(index, demand, start);
        }
        let ended = self.cpus[index].notice.ends(start);
        if ended {
            self.truth.notice(self.clocks.ns_of(start), index, "ended");
        }
        self.spend(index, work, demand) | ended
    }

    /// Whether a CPU is to get notice before it executes a trace with wide code, instead of
    /// executing it.
    pub fn warns(&mut self, index: usize, wide: u32, insns: u32) -> bool {
        let Cpu { density, notice, .. } = &mut self.cpus[index];
        // As `ran` would count the trace afterwards.
        let mut density = *density;
        let warns = notice.warns(|| density.trace(&self.rules, WideCounts(wide), insns));
        if warns {
            self.truth.notice(self.clocks.ns_of(self.at[index]), index, "warned");
        }
        warns
    }

    /// A CPU went to sleep.
    pub fn sleep(&mut self, index: usize) {
        if !self.cpus[index].is_awake {
            return;
        }
        self.catch_up(index);
        let now = self.at[index];
        if self.cpus[index].demand != 0 {
            self.set_demand(index, 0, now);
        }
        let cpu = &mut self.cpus[index];
        cpu.is_awake = false;
        cpu.density = Density::default();
        let core = &mut self.cores[cpu.core];
        core.awake -= 1;
        if core.awake == 0 {
            self.awake -= 1;
        }
    }

    /// A CPU woke up at this time, or later if its core halts or if it leaves a C-state. A CPU that
    /// is reset leaves none: the interrupt that starts it comes within microseconds.
    pub fn wake(&mut self, index: usize, now: Time, is_reset: bool) {
        if self.cpus[index].is_awake {
            return;
        }
        let slept = now.saturating_sub(self.at[index]);
        let leaves = self.pstates.as_ref().filter(|_| !is_reset);
        let exit = leaves.map_or(0, |pstates| pstates.exit(slept));
        self.at[index] = self.at[index].max(now) + exit;
        self.look_at_activity(now);
        let cpu = &mut self.cpus[index];
        cpu.is_awake = true;
        let core = &mut self.cores[cpu.core];
        core.awake += 1;
        if core.awake == 1 {
            self.awake += 1;
        }
        self.catch_up(index);
    }

    /// Moves the local time by what a trace takes, and counts it.
    fn spend(&mut self, index: usize, work: &Work, demand: u8) -> bool {
        let core = self.cpus[index].core;
        let level = self.cpus[index].level;
        let entry = &self.cores[core];
        let is_throttled = entry.license.is_throttled(demand);
        let is_shared = entry.awake > 1;
        let cpu = &mut self.cpus[index];
        let mut cycles_q16 = u64::from(work.insns.max(1) + work.stall_cycles) * ONE;
        let mut slowed_q16 = 0;
        if is_throttled {
            slowed_q16 = times_q16(cycles_q16, self.throttle_q16) - cycles_q16;
            cycles_q16 += slowed_q16;
        }
        if is_shared {
            cycles_q16 = times_q16(cycles_q16, self.share_q16);
        }
        let cycle = cpu.cycle;
        let spent = times_q16(cycles_q16, cycle);
        if is_throttled {
            cpu.throttled += times_q16(slowed_q16, cycle);
        }
        self.at[index] += spent;
        cpu.cycles_q16 += cycles_q16;
        cpu.insns += u64::from(work.insns);
        cpu.busy[level as usize] += spent;
        if is_shared {
            cpu.shared += spent - spent / u64::from(entry.awake);
        }
        if level > 0 && demand >= level {
            cpu.needed += spent;
        }
        if work.wide != 0 {
            for (k, total) in cpu.wide.iter_mut().enumerate() {
                *total += u64::from(WideCounts(work.wide).of(k));
            }
        }
        if !cpu.pmu.counts(work.is_user != 0) {
            return false;
        }
        let cycles = (cpu.cycles_q16 >> 16) - ((cpu.cycles_q16 - cycles_q16) >> 16);
        let ref_cycles = (self.at[index] >> 16) - ((self.at[index] - spent) >> 16);
        let throttled_cycles = if is_throttled { cycles } else { 0 };
        cpu.pmu.add(&Counted {
            is_user: work.is_user != 0,
            insns: u64::from(work.insns),
            cycles,
            ref_cycles,
            level,
            throttled_cycles,
        })
    }
}

/// A product with a factor of 16 binary places.
#[inline]
fn times_q16(value: u64, factor_q16: u64) -> u64 {
    ((u128::from(value) * u128::from(factor_q16)) >> 16) as u64
}

#[cfg(test)]
mod tests;
