// SPDX-License-Identifier: MIT OR Apache-2.0
//! What locks need to know about P-states: three requests for a CPU.
//!
//! The library's backends (MSR, cpufreq, a scheduler's hint) are one implementation each;
//! [`NoFrequency`] is a machine whose clock cannot be asked for; [`Recorder`] writes down what was
//! asked for.

use std::sync::{Arc, Mutex, PoisonError};

/// Sets the P-state of a CPU. A request that cannot be granted is dropped: a lock has no one to
/// report it to.
pub trait CpuFrequency: Send + Sync {
    /// The highest P-state, turbo included: the CPU runs a critical section.
    fn boost(&self, cpu: u32);
    /// The lowest P-state: the CPU spins.
    fn slow(&self, cpu: u32);
    /// What it was before the first request.
    fn restore(&self, cpu: u32);
}

/// Nothing can be asked for.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoFrequency;

impl CpuFrequency for NoFrequency {
    #[inline]
    fn boost(&self, _cpu: u32) {}
    #[inline]
    fn slow(&self, _cpu: u32) {}
    #[inline]
    fn restore(&self, _cpu: u32) {}
}

impl<F: CpuFrequency + ?Sized> CpuFrequency for Arc<F> {
    fn boost(&self, cpu: u32) {
        (**self).boost(cpu);
    }
    fn slow(&self, cpu: u32) {
        (**self).slow(cpu);
    }
    fn restore(&self, cpu: u32) {
        (**self).restore(cpu);
    }
}

/// A request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// [`CpuFrequency::boost`]
    Boost,
    /// [`CpuFrequency::slow`]
    Slow,
    /// [`CpuFrequency::restore`]
    Restore,
}

/// Records every request, for tests.
#[derive(Debug, Default)]
pub struct Recorder(Mutex<Vec<(u32, Request)>>);

impl Recorder {
    /// What was asked for since the last call, in order.
    pub fn take(&self) -> Vec<(u32, Request)> {
        core::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn note(&self, cpu: u32, request: Request) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push((cpu, request));
    }
}

impl CpuFrequency for Recorder {
    fn boost(&self, cpu: u32) {
        self.note(cpu, Request::Boost);
    }
    fn slow(&self, cpu: u32) {
        self.note(cpu, Request::Slow);
    }
    fn restore(&self, cpu: u32) {
        self.note(cpu, Request::Restore);
    }
}
