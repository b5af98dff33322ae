// SPDX-License-Identifier: MIT OR Apache-2.0
//! What boosted locks ask a session for (`locks::CpuFrequency`).
//!
//! ```no_run
//! use std::sync::Arc;
//! use locks::{Block, Decorated, Futex, Mutex, Owner};
//! use turbolane::Session;
//!
//! let session = Arc::new(Session::open(&pstate::Options::default())?);
//! let raw = Decorated::new(Futex::new(Block), Owner::new(session));
//! let table = Mutex::new(raw, Vec::<u64>::new());
//! table.lock().push(1); // on a CPU at its fastest P-state
//! # Ok::<(), pstate::Error>(())
//! ```
//!
//! A lock's owner names the CPU that it runs on. If the scheduler takes requests of threads, they
//! are the calling thread's, and follow it. So `locks::OtherCore`, in which another thread makes
//! the request, needs a method that sets CPUs.

use locks::CpuFrequency;
use pstate::Way;

use crate::request::Request;
use crate::session::Session;
use crate::targets;

impl Session {
    fn goes_by_threads(&self) -> bool {
        self.control().choice().way == Way::Scheduler
    }
}

impl CpuFrequency for Session {
    fn boost(&self, cpu: u32) {
        match self.goes_by_threads() {
            true => targets::ask(self.control(), cpu, Request::Boost),
            false => CpuFrequency::boost(self.control(), cpu),
        }
    }

    fn slow(&self, cpu: u32) {
        match self.goes_by_threads() {
            true => targets::ask(self.control(), cpu, Request::Slow),
            false => CpuFrequency::slow(self.control(), cpu),
        }
    }

    fn restore(&self, cpu: u32) {
        match self.goes_by_threads() {
            true => targets::ask(self.control(), cpu, Request::Restore),
            false => CpuFrequency::restore(self.control(), cpu),
        }
    }
}
