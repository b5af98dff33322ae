// SPDX-License-Identifier: MIT OR Apache-2.0
//! How fast how many cores may be at a time.

/// A step of the turbo table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TurboStep {
    /// So many active cores at most.
    pub cores: u32,
    /// Reach this.
    pub khz: u32,
}
