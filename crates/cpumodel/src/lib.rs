// SPDX-License-Identifier: MIT OR Apache-2.0
//! Models of CPUs: clocks by licence level, the licence itself ([`CoreLicense`]), P-states and
//! power; and what CPUs a machine has, as sets and topology.
//!
//! Pure: nothing here reads a file or a clock. A [`CpuModel`] is built from the text of a CPU file,
//! a [`Topology`] from data or from the text of sysfs files that the caller has read (`hw`
//! does). So a test can use any machine.
//!
//! Words, as everywhere in Turbolane: a **cpu** is a logical CPU, a **core** a physical one, the
//! **siblings** of a CPU are the CPUs of its core (itself included), an **llc** is the set of
//! CPUs that share a last-level cache; **package** and **node** are Linux's.

#![forbid(unsafe_code)]

mod cpu_file;
mod cpu_library;
mod cpu_list;
mod cpu_model;
mod cpu_set;
mod data_error;
mod level_clocks;
mod license;
mod near;
mod platform;
mod power_limit;
mod pstates;
mod sysfs;
mod topology;
mod units;

pub use cpu_file::CPU_FILE_SCHEMA;
pub use cpu_library::{CONTRIBUTED_CPUS, CPU_FILES, HELD_OUT_CPUS, built_in_cpus};
pub use cpu_list::CpuListError;
pub use cpu_model::{
    ClassRule, Costs, CpuModel, InsnClass, Known, LicenseLevel, Power, Smt, Sourced, Sureness,
    Transition, TurboBin,
};
pub use cpu_set::{CpuSet, MAX_CPUS};
pub use data_error::DataError;
pub use level_clocks::LevelClocks;
pub use license::{CoreLicense, MAX_LEVELS, Phase, Times};
pub use near::{did_you_mean, near_names};
pub use platform::{Platform, PlatformCosts};
pub use power_limit::{POWER_LOOK_NS, PowerLimit};
pub use pstates::{
    Change, Changes, CorePower, Figure, Idle, Memory, PSTATE_FILES, PstateModel, Table,
};
pub use sysfs::Files;
pub use topology::{Core, CpuPlace, Topology, TopologyError};
pub use units::{Cycles, Khz, Ns};
