// SPDX-License-Identifier: MIT OR Apache-2.0
//! What boosted locks ask for (`locks::CpuFrequency`), granted by [`Control`].
//!
//! ```no_run
//! use std::sync::Arc;
//! use locks::{Block, Decorated, Futex, Mutex, Owner};
//!
//! let control = Arc::new(pstate::Control::open(&pstate::Options::default())?);
//! let raw = Decorated::new(Futex::new(Block), Owner::new(control.clone()));
//! let table = Mutex::new(raw, Vec::<u64>::new());
//! table.lock().push(1); // on a CPU at its fastest P-state
//! # Ok::<(), pstate::Error>(())
//! ```
//!
//! A lock cannot report that a request was refused: [`Control::choice`] shows whether this machine
//! grants requests at all, before the lock is made.

use locks::CpuFrequency;

use crate::Control;

impl CpuFrequency for Control {
    fn boost(&self, cpu: u32) {
        _ = Control::boost(self, cpu);
    }
    fn slow(&self, cpu: u32) {
        _ = Control::slow(self, cpu);
    }
    fn restore(&self, cpu: u32) {
        _ = Control::restore(self, cpu);
    }
}
