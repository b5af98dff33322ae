// SPDX-License-Identifier: MIT OR Apache-2.0
//! The holder of the lock runs fast, threads that wait for it run slow (TURBO 8, "owner").
//!
//! ```text
//!   waiting     slow(cpu)        the spinner's power budget goes to the owner
//!   acquired    boost(cpu)
//!   released    restore(cpu)
//! ```
//!
//! A thread may be moved to another CPU in between: the CPU that it slowed while it waited is
//! restored when it finds itself on another one, and the one that it boosted is the one that is
//! restored.
//!
//! Costs: a system call and a register write at each of the three (1 k and 2 to 28 k cycles on an
//! AMD FX-8120, TURBO 8), and after them the clock needs up to 225 k cycles to come up. With
//! [`OtherCore`](crate::OtherCore) as `F` another core writes the register. Only sections
//! longer than the break-even gain: see `hybrid`.

use core::sync::atomic::{AtomicU32, Ordering};

use crate::decorate::Decoration;
use crate::frequency::CpuFrequency;
use crate::sys::current_cpu;

/// The decoration.
#[derive(Debug, Default)]
pub struct Owner<F> {
    frequency: F,
    /// The boosted CPU, while the lock is held; under the lock.
    boosted: AtomicU32,
}

impl<F> Owner<F> {
    /// Boosts through `frequency`.
    pub const fn new(frequency: F) -> Self {
        Owner { frequency, boosted: AtomicU32::new(0) }
    }

    /// Through what it boosts.
    pub fn frequency(&self) -> &F {
        &self.frequency
    }
}

impl<F: CpuFrequency> Decoration for Owner<F> {
    /// The slowed CPU.
    type Waited = u32;
    /// The boosted CPU.
    type Held = u32;

    fn waiting(&self) -> u32 {
        let cpu = current_cpu();
        self.frequency.slow(cpu);
        cpu
    }

    fn acquired(&self, waited: Option<u32>) {
        let cpu = current_cpu();
        if let Some(slowed) = waited
            && slowed != cpu
        {
            self.frequency.restore(slowed);
        }
        self.boosted.store(cpu, Ordering::Relaxed);
        self.frequency.boost(cpu);
    }

    fn waited(&self, slowed: u32) {
        self.frequency.restore(slowed);
    }

    fn releasing(&self) -> u32 {
        self.boosted.load(Ordering::Relaxed)
    }

    fn released(&self, boosted: u32) {
        self.frequency.restore(boosted);
    }
}
