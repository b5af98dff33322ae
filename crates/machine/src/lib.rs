// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a machine is made of: sets of CPUs and their topology.
//!
//! Pure: nothing here reads a file or a clock. [`Topology`] is built from data or from the text
//! of sysfs files that somebody else read (`hw` does), so a test can hold any machine.
//!
//! Words, as everywhere in Turbolane: a **cpu** is a logical CPU, a **core** a physical one, the
//! **siblings** of a CPU are the CPUs of its core (itself included), an **llc** is the set of
//! CPUs that share a last-level cache; **package** and **node** are Linux's.

#![forbid(unsafe_code)]

mod cpu_list;
mod cpu_set;
mod sysfs;
mod topology;

pub use cpu_list::CpuListError;
pub use cpu_set::{CpuSet, MAX_CPUS};
pub use sysfs::Files;
pub use topology::{Core, CpuPlace, Topology, TopologyError};
