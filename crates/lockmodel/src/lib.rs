// SPDX-License-Identifier: MIT OR Apache-2.0
//! A lock that several threads want all the time, on cores with P-states and C-states (TURBO 5 to
//! 9).
//!
//! Problem: which strategy pays for which section cannot be tried without machines whose P-states
//! software may set, and those of TURBO are twelve years old.
//!
//! Idea: the lock is first come, first served, so its life is a row of hand-overs, and each
//! thread's life between two of its sections is known. A run walks from hand-over to hand-over and
//! keeps, for each thread, when it came to wait and when its core is slow, and for the core that
//! writes P-states for others, when it is done with what it was asked before.
//!
//! ```text
//!            came          its turn                       release
//!   thread   |--- entry ---|......|--- exit ---|- section -|--- after ---|   TURBO 5: A, CS, R
//!   spin                                                                     all at base
//!   futex     sleeps               wakes up       turbo                      C-state by length of the sleep
//!   owner     base -> slow         slow -> turbo  ramp       turbo -> base   writes itself
//!   delegate  asks for slow        asks for turbo ramp       asks for base   another core writes, in turn
//!   migrate                        goes there     turbo      comes back
//! ```
//!
//! What counts is what TURBO 5 counts: `f_CS = f_base * t_CS / t_(A + CS + R)`, with t_CS the
//! section's time at the base frequency, A what the thread does to acquire, entry and exit, without
//! its wait, and R what it does to release. A change's transition counts where the section runs
//! during it.
//!
//! [`resize`] and [`stm`] are what TURBO 11 boosts besides: a thread whose memory does not follow
//! its clock, and one that the others depend on.
//!
//! Energy, where the machine's power is known, is what slides 7 and 9 show besides (`energy.rs`).
//!
//! Limits: no noise; no thread leaves the row; what the section touches stays where it
//! is. A package with one clock for all (`change` absent) has no strategies by hand.

#![forbid(unsafe_code)]

mod clock;
mod energy;
pub mod resize;
pub mod stm;

pub use clock::Rise;
use cpumodel::{Change, Changes, PstateModel};

/// What waiters and owners do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Strategy {
    /// Spin at the base frequency.
    Spin,
    /// Sleep; the hardware gives the owner its turbo.
    Futex,
    /// Spin slowly, boost when owning; each core sets its own P-state.
    Owner,
    /// The same, but another core sets all P-states.
    Delegate,
    /// Sections run on a core that is boosted all the time.
    Migrate,
}

impl Strategy {
    /// All with their names: TURBO 7 and 9's.
    pub const ALL: [(Strategy, &'static str); 5] = [
        (Strategy::Spin, "spin"),
        (Strategy::Futex, "futex"),
        (Strategy::Owner, "owner"),
        (Strategy::Delegate, "delegate"),
        (Strategy::Migrate, "migrate"),
    ];

    /// Its name.
    pub fn name(self) -> &'static str {
        Strategy::ALL.iter().find(|(one, _)| *one == self).map_or("", |(_, name)| name)
    }
}

/// What is left open by TURBO, for experiments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reading {
    /// The clock jumps at the end of a ramp, instead of rising all along.
    pub ramp_jumps: bool,
    /// Slowing down while one waits counts as part of acquiring.
    pub entry_counts: bool,
}

impl Default for Reading {
    /// As TURBO draws it, and as its formula reads: A is the acquisition, from entry to exit.
    fn default() -> Self {
        Reading { ramp_jumps: false, entry_counts: true }
    }
}

/// What came out, averaged over the threads once they have found their rhythm.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Outcome {
    /// Acquire, section and release, without the wait.
    pub held_ns: f64,
    /// From one release to the next.
    pub period_ns: f64,
    /// CPU time of all threads per section: whoever spins works.
    pub cpu_ns: f64,
    /// TURBO's effective clock of the section.
    pub effective_khz: f64,
    /// Mean clock while the section itself ran.
    pub section_khz: f64,
    /// Energy of the whole package per section; `None` where the machine's power is not known.
    pub energy_nj: Option<f64>,
}

/// Rounds before the one that is measured: waits depend on the waits before.
const WARM_UP: usize = 8;

/// One thread between its sections.
#[derive(Clone, Copy, Default)]
struct Waiter {
    came_ns: f64,
    /// Its core is slow from then on.
    slow_ns: f64,
}

struct Run<'a> {
    model: &'a PstateModel,
    reading: Reading,
    strategy: Strategy,
    base: f64,
    turbo: f64,
    slow: f64,
    /// The core that writes for others is free from then on.
    writer_ns: f64,
}

/// What one turn took.
#[derive(Clone, Copy, Default)]
struct Turn {
    acquire_ns: f64,
    section_ns: f64,
    after_ns: f64,
    awake_ns: f64,
    /// Of its wait and its changes: at the base clock.
    base_ns: f64,
}

impl Turn {
    fn plus(self, other: Turn) -> Turn {
        Turn {
            acquire_ns: self.acquire_ns + other.acquire_ns,
            section_ns: self.section_ns + other.section_ns,
            after_ns: self.after_ns + other.after_ns,
            awake_ns: self.awake_ns + other.awake_ns,
            base_ns: self.base_ns + other.base_ns,
        }
    }
}

/// Where a thread is when its section can begin.
struct Ready {
    /// The clock of the section.
    clock: Rise,
    at_ns: f64,
    /// Slowing down, while it waited.
    entry_ns: f64,
    /// What it does after its release.
    after_ns: f64,
}

/// Simulates; `None` where the machine cannot do it, or there is no one to wait (fewer than two
/// threads).
pub fn simulate(
    model: &PstateModel,
    strategy: Strategy,
    section_cycles: f64,
    threads: usize,
    reading: Reading,
) -> Option<Outcome> {
    let by_hand = matches!(strategy, Strategy::Owner | Strategy::Delegate | Strategy::Migrate);
    if threads < 2 || (by_hand && model.change.is_none()) {
        return None;
    }
    let (turns, period_ns) = Run::new(model, strategy, reading).play(section_cycles, threads)?;
    let mean = |sum: f64| sum / threads as f64;
    let held_ns = mean(turns.acquire_ns + turns.section_ns + turns.after_ns);
    let (section_ns, base_ns) = (mean(turns.section_ns), mean(turns.base_ns));
    let cpu_ns = match strategy {
        Strategy::Futex => mean(turns.awake_ns),
        _ => period_ns * threads as f64,
    };
    let times = energy::Times { period_ns, section_ns, cpu_ns, base_ns };
    Some(Outcome {
        held_ns,
        period_ns,
        cpu_ns,
        effective_khz: section_cycles / held_ns * 1e6,
        section_khz: section_cycles / section_ns * 1e6,
        energy_nj: energy::per_section_nj(model, strategy, threads, &times),
    })
}

impl<'a> Run<'a> {
    fn new(model: &'a PstateModel, strategy: Strategy, reading: Reading) -> Run<'a> {
        let clock = |khz: u64| khz as f64 / 1e6;
        Run {
            model,
            reading,
            strategy,
            base: clock(model.base_khz.value),
            turbo: clock(model.turbo_khz.value),
            slow: clock(model.slow_khz.value),
            writer_ns: 0.0,
        }
    }

    /// The last round's turns together, and its time from one release to the next.
    fn play(&mut self, section_cycles: f64, threads: usize) -> Option<(Turn, f64)> {
        let mut waiters = vec![Waiter::default(); threads];
        let (mut now_ns, mut begun_ns) = (0.0, 0.0);
        let mut turns = Turn::default();
        for round in 0..=WARM_UP {
            if round == WARM_UP {
                begun_ns = now_ns;
            }
            turns = Turn::default();
            for waiter in &mut waiters {
                let (end_ns, took) = self.turn(waiter, now_ns, section_cycles)?;
                now_ns = end_ns;
                turns = turns.plus(took);
            }
        }
        Some((turns, (now_ns - begun_ns) / threads as f64))
    }

    /// A thread's turn after a release at `free_ns`: when it has released, and what it took.
    fn turn(&mut self, waiter: &mut Waiter, free_ns: f64, cycles: f64) -> Option<(f64, Turn)> {
        let Ready { clock, at_ns, entry_ns, after_ns } = self.ready(waiter, free_ns)?;
        let acquire_ns = at_ns - free_ns.max(waiter.came_ns);
        let base_ns = match self.strategy {
            // until it is slow, or always if it was overtaken
            Strategy::Delegate => waiter.slow_ns.min(at_ns) - waiter.came_ns,
            _ => entry_ns + after_ns,
        };
        let section_ns = clock.time_ns(cycles);
        let released_ns = at_ns + section_ns;
        let counted_ns = if self.reading.entry_counts { entry_ns } else { 0.0 };
        if self.strategy == Strategy::Delegate {
            self.ask_for_base_and_slow(waiter, released_ns)?;
        }
        waiter.came_ns = released_ns + after_ns;
        let took = Turn {
            acquire_ns: acquire_ns + counted_ns,
            section_ns,
            after_ns,
            awake_ns: section_ns + self.model.wake_ns.value as f64,
            base_ns,
        };
        Some((released_ns, took))
    }

    /// When a thread's section can begin after a release at `free_ns`, and at which clock.
    fn ready(&mut self, waiter: &Waiter, free_ns: f64) -> Option<Ready> {
        let seen_ns = free_ns + self.cycles_ns(self.model.handover_cycles.value);
        let plain = |clock, at_ns| Ready { clock, at_ns, entry_ns: 0.0, after_ns: 0.0 };
        Some(match self.strategy {
            Strategy::Spin => plain(Rise::none(self.base), seen_ns),
            Strategy::Futex => {
                let wake_ns = self.wake_ns(free_ns - waiter.came_ns);
                plain(Rise::none(self.turbo), free_ns + wake_ns)
            }
            Strategy::Migrate => {
                let half_ns = self.model.migration_ns.value as f64 / 2.0;
                let there = plain(Rise::none(self.turbo), seen_ns + half_ns);
                Ready { after_ns: half_ns, ..there }
            }
            Strategy::Owner => {
                let changes = self.changes()?;
                let entry_ns = self.write_ns(&changes.base_to_slow);
                // who is still slowing down sees the lock later
                let sees_ns = seen_ns.max(waiter.came_ns + entry_ns);
                Ready {
                    clock: self.rise(0.0, changes),
                    at_ns: sees_ns + self.write_ns(&changes.slow_to_turbo),
                    entry_ns,
                    after_ns: self.write_ns(&changes.turbo_to_base),
                }
            }
            Strategy::Delegate => plain(self.delegated(waiter, seen_ns)?, seen_ns),
        })
    }

    /// So many cycles of the base frequency.
    fn cycles_ns(&self, cycles: u64) -> f64 {
        cycles as f64 / self.base
    }

    /// The system call and the register write of a change.
    fn write_ns(&self, change: &Change) -> f64 {
        self.cycles_ns(change.call_cycles + change.write_cycles)
    }

    fn changes(&self) -> Option<&Changes> {
        self.model.change.as_ref()
    }

    /// The clock of a section that begins slowly, and whose change is written after a delay.
    fn rise(&self, delay_ns: f64, changes: &Changes) -> Rise {
        let ramp_ns = changes.slow_to_turbo.transition_cycles as f64 / self.base;
        let (from, to) = (self.slow, self.turbo);
        Rise { from, to, delay_ns, ramp_ns, jumps: self.reading.ramp_jumps }
    }

    /// The exit from the C-state that the sleep's length leads to, and the wake-up itself.
    fn wake_ns(&self, slept_ns: f64) -> f64 {
        let fits = |idle: &&cpumodel::Idle| idle.residency_ns.value as f64 <= slept_ns;
        let exit_ns = self.model.idle.iter().rfind(fits).map_or(0, |idle| idle.exit_ns.value);
        (exit_ns + self.model.wake_ns.value) as f64
    }

    /// The owner goes on at once at the slow clock; its request is carried out after those before
    /// it.
    fn delegated(&mut self, waiter: &Waiter, at_ns: f64) -> Option<Rise> {
        let changes = self.model.change.as_ref()?;
        let there_ns = self.message_ns();
        let written_ns = self.write(at_ns + there_ns, &changes.slow_to_turbo);
        let mut rise = self.rise(written_ns - at_ns, changes);
        if waiter.slow_ns > at_ns {
            // overtaken: it was never slowed down
            rise.from = self.base;
        }
        Some(rise)
    }

    /// After its release a thread requests base and at once slow: the second overtakes the first.
    fn ask_for_base_and_slow(&mut self, waiter: &mut Waiter, released_ns: f64) -> Option<()> {
        let changes = self.model.change.as_ref()?;
        waiter.slow_ns = self.write(released_ns + self.message_ns(), &changes.base_to_slow);
        Some(())
    }

    /// Half of a round trip between modules.
    fn message_ns(&self) -> f64 {
        self.model.handover_cycles.value as f64 / self.base / 2.0
    }

    /// When the writing core has carried out a request that reaches it then.
    fn write(&mut self, asked_ns: f64, change: &Change) -> f64 {
        self.writer_ns = self.writer_ns.max(asked_ns) + self.write_ns(change);
        self.writer_ns
    }
}

/// Sections that are looked at, cycles: shorter than any break-even, longer than any.
const LEAST: f64 = 1e4;
const MOST: f64 = 1e9;

/// The section size, cycles of the base frequency, from which a strategy's effective clock is above
/// that of spinning; `None` if it is nowhere, or the machine cannot do it.
pub fn break_even_cycles(
    model: &PstateModel,
    strategy: Strategy,
    threads: usize,
    reading: Reading,
) -> Option<f64> {
    let gains = |cycles: f64| {
        let of = |strategy| simulate(model, strategy, cycles, threads, reading);
        Some(of(strategy)?.effective_khz > of(Strategy::Spin)?.effective_khz)
    };
    if !gains(MOST)? || gains(LEAST)? {
        return None;
    }
    let (mut low, mut high) = (LEAST, MOST);
    // to a thousandth
    while high / low > 1.001 {
        let middle = (low * high).sqrt();
        *(if gains(middle)? { &mut high } else { &mut low }) = middle;
    }
    Some(high)
}

#[cfg(test)]
mod tests;
