// SPDX-License-Identifier: MIT OR Apache-2.0
//! The only crate that looks at the machine: /sys, /proc, CPUID.
//!
//! Everything else works on what is returned from here, and everything here reads through a
//! [`Source`], which is the live machine or a recording of one. So what Turbolane does on a
//! two-socket server or a kernel without BTF is a test on any laptop.
//!
//! Reading changes nothing and needs no rights: what may not be read is reported as unknown. Three
//! modules change something when asked to: `task` (affinity), `trap` (the trap module) and `plr`
//! (clears throttle reasons).

pub mod activity;
pub mod cgroups;
pub mod cpu;
pub mod cpu_time;
pub mod cycles;
pub mod descriptors;
mod energy;
mod facts;
pub mod group_counts;
pub mod kernel;
pub mod levels;
pub mod license;
pub mod limits;
pub mod memory;
pub mod pause;
pub mod perf;
pub mod plr;
pub mod power;
mod recorded;
mod rooted;
pub mod sampling;
pub mod sched_ext;
pub mod services;
mod source;
pub mod task;
mod topology;
pub mod trap;
pub mod xcr0;

pub use energy::{EnergyMeter, EnergyReading};
pub use facts::Facts;
pub use recorded::{Recorded, RecordingError, record};
pub use rooted::Rooted;
pub use source::{Cpuid, Live, Source};
pub use topology::topology;
