// SPDX-License-Identifier: MIT OR Apache-2.0
//! The dim-silicon machine: what an emulated processor does about time.
//!
//! Problem: an emulator executes instructions and has no clock; the simulator (`crates/sim`) has
//! clocks and licences and no kernel. A stock kernel can lose performance to wide code, and win it
//! back, only on a machine that has both.
//!
//! Idea: each CPU of the emulator has a local time. The emulator runs one trace (a few
//! instructions without a branch) on the CPU whose time is the least, and reports it here.
//! [`Machine::ran`] says what time it is there now: the number of cycles at the clock that the
//! core has at this moment. Nothing else in the emulator knows of clocks, levels or counters.
//!
//! ```text
//!   emulator (testbed/silicon, C++)           this crate
//!   CPU with the least time runs a trace ---> ran(): classes -> demand -> licence -> clock
//!                                        <--- its new local time; a counter overflowed?
//!   HLT, interrupt                       ---> sleep(), wake(): who is busy, for turbo clocks
//!   RDMSR, WRMSR, RDPMC                  ---> APERF, MPERF, P-states, energy, performance counters
//! ```
//!
//! | file | mechanism |
//! |---|---|
//! | `settings.rs` | which CPU, how many of its cores: read before anything boots |
//! | `clocks.rs` | units of time, clock by level, active cores and P-state |
//! | `classes.rs` | class of an instruction, by `data/isa` |
//! | `demand.rs` | the level that a trace asks for |
//! | `machine/mod.rs` | cores, CPUs and the passage of time |
//! | `machine/clocking.rs` | which clock a CPU has: licences, active cores, P-states |
//! | `machine/account.rs` | what it writes to the log |
//! | `machine/access.rs` | which register is whose |
//! | `power.rs` | energy of the package, and its registers |
//! | `pstates.rs` | a machine whose P-states software sets core by core: AMD's Family 15h |
//! | `dim.rs` | registers that DIM 7.1 proposes: a delay, a forced change |
//! | `notice.rs` | notices that SYSTOR 5 proposes: before code asks for a level, and when it has not for a while |
//! | `pmu.rs`, `registers.rs` | what software sees |
//! | `truth.rs`, `log.rs` | the log of what the machine did, and how it is read again |
//! | `abi.rs` | the C interface |
//!
//! The licence is `cpumodel::CoreLicense`, the clocks and times are those of a CPU file. This crate
//! has no second copy of either.
//!
//! Limits: every instruction takes one cycle, except what the emulator reports as a stall (PAUSE,
//! ports, REP). There are no caches and no memory. A change of the voltage without one of the
//! clock is not modelled, as in `cpumodel::license`.

mod abi;
mod classes;
mod clocks;
mod demand;
mod dim;
mod log;
mod machine;
mod notice;
mod pmu;
mod power;
mod pstates;
mod registers;
mod settings;
mod truth;

pub use abi::*;
pub use classes::class_of;
pub use clocks::{Clocks, NEVER, Time};
pub use demand::{Density, WideCounts};
pub use log::{CpuTotals, License, Log, LogError, Mark, Turbo};
pub use machine::{Machine, Work, Written};
pub use settings::{MAX_CPUS, Settings, SettingsError};
