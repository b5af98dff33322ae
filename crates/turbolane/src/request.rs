// SPDX-License-Identifier: MIT OR Apache-2.0
//! What can be requested for a thread's core.

/// A request for a thread's core.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// The fastest P-state.
    Boost,
    /// The slowest.
    Slow,
    /// This frequency.
    Khz(u32),
    /// None any more.
    Restore,
}
