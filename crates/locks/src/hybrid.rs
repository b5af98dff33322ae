// SPDX-License-Identifier: MIT OR Apache-2.0
//! A lock that measures its sections and does what pays for their length; how it decides is in
//! `estimate`.
//!
//! A queue lock whose waiters ask the current strategy at every step ([`Learned`]), in a decoration
//! that measures, decides, and boosts or moves the holder if that is the strategy. Measuring reads
//! a clock twice; so it does after each wait and at every 16th acquisition without one. All of it
//! runs under the lock, where the estimate needs no atomics of its own.

use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicU8, Ordering};

use crate::decorate::{Decorated, Decoration};
use crate::estimate::{Costs, Estimate, Strategy};
use crate::frequency::CpuFrequency;
use crate::mcs::Mcs;
use crate::migrate::MoveHolder;
use crate::owner::Owner;
use crate::sys::{Affinity, ticks};
use crate::wait::{Block, Spin, Wait};

/// Of acquisitions without a wait, one in so many is measured.
const EVERY: u32 = 16;

/// A lock that chooses by itself.
pub type HybridLock<'a, F> = Decorated<Mcs<Learned<'a>>, Hybrid<'a, F>>;

/// The strategy that is shared between a lock's waiters and its decoration.
#[derive(Debug)]
pub struct Mode(AtomicU8);

impl Mode {
    /// Spin.
    pub const fn new() -> Mode {
        Mode(AtomicU8::new(Strategy::Spin as u8))
    }

    /// What the lock does now.
    pub fn strategy(&self) -> Strategy {
        Strategy::ALL[usize::from(self.0.load(Ordering::Relaxed)) % Strategy::ALL.len()]
    }
}

impl Default for Mode {
    fn default() -> Self {
        Mode::new()
    }
}

/// Waits as the mode says.
#[derive(Clone, Copy, Debug)]
pub struct Learned<'a>(pub &'a Mode);

impl Wait for Learned<'_> {
    const SLEEPS: bool = true;

    fn step(&self, round: u32) -> bool {
        match self.0.strategy() {
            Strategy::Block => Block.step(round),
            Strategy::Spin | Strategy::Boost | Strategy::Move => Spin.step(round),
        }
    }
}

/// What is known under the lock.
struct State {
    estimate: Estimate,
    unmeasured: u32,
    begun: Option<u64>,
    /// What was done for this section.
    acting: Strategy,
}

/// The decoration.
pub struct Hybrid<'a, F> {
    mode: &'a Mode,
    costs: Costs,
    owner: Owner<F>,
    mover: Option<MoveHolder>,
    state: UnsafeCell<State>,
}

// SAFETY: `state` is touched by the holder of the lock only.
unsafe impl<F: Sync> Sync for Hybrid<'_, F> {}

impl<'a, F: CpuFrequency> Hybrid<'a, F> {
    /// A lock that boosts through `frequency` and moves to `boosted_cpu`, if its costs say that it
    /// can.
    pub fn lock(
        mode: &'a Mode,
        costs: Costs,
        frequency: F,
        boosted_cpu: Option<u32>,
    ) -> HybridLock<'a, F> {
        let state =
            State { estimate: Estimate::new(), unmeasured: 0, begun: None, acting: Strategy::Spin };
        let hybrid = Hybrid {
            mode,
            costs,
            owner: Owner::new(frequency),
            mover: boosted_cpu.and_then(MoveHolder::new),
            state: UnsafeCell::new(state),
        };
        Decorated::new(Mcs::new(Learned(mode)), hybrid)
    }
}

/// What the holder undoes after its release.
pub enum Undo {
    /// Nothing.
    Nothing,
    /// A boost of this CPU.
    Boost(u32),
    /// A move, from there.
    Move(Option<Affinity>),
}

impl<F: CpuFrequency> Decoration for Hybrid<'_, F> {
    /// The slowed CPU, if one was.
    type Waited = Option<u32>;
    type Held = Undo;

    fn waiting(&self) -> Option<u32> {
        (self.mode.strategy() == Strategy::Boost).then(|| self.owner.waiting())
    }

    fn acquired(&self, waited: Option<Option<u32>>) {
        // SAFETY: this thread holds the lock.
        let state = unsafe { &mut *self.state.get() };
        state.acting = self.mode.strategy();
        match (state.acting, &self.mover) {
            (Strategy::Boost, _) => self.owner.acquired(waited.flatten()),
            (acting, mover) => {
                if let Some(slowed) = waited.flatten() {
                    self.owner.waited(slowed);
                }
                if let (Strategy::Move, Some(mover)) = (acting, mover) {
                    mover.acquired(None);
                }
            }
        }
        state.unmeasured += 1;
        let measures = waited.is_some() || state.unmeasured >= EVERY;
        state.begun = measures.then(ticks);
    }

    fn waited(&self, waited: Option<u32>) {
        if let Some(slowed) = waited {
            self.owner.waited(slowed);
        }
    }

    fn releasing(&self) -> Undo {
        // SAFETY: this thread holds the lock.
        let state = unsafe { &mut *self.state.get() };
        if let Some(begun) = state.begun.take() {
            state.unmeasured = 0;
            // the TSC of another core may be a little late
            state.estimate.sample(ticks().saturating_sub(begun), &self.costs);
            let mode = state.estimate.strategy() as u8;
            if self.mode.0.load(Ordering::Relaxed) != mode {
                self.mode.0.store(mode, Ordering::Relaxed);
            }
        }
        match (state.acting, &self.mover) {
            (Strategy::Boost, _) => Undo::Boost(self.owner.releasing()),
            (Strategy::Move, Some(mover)) => Undo::Move(mover.releasing()),
            _ => Undo::Nothing,
        }
    }

    fn released(&self, undo: Undo) {
        match (undo, &self.mover) {
            (Undo::Boost(cpu), _) => self.owner.released(cpu),
            (Undo::Move(home), Some(mover)) => mover.released(home),
            (Undo::Move(_) | Undo::Nothing, _) => {}
        }
    }
}
