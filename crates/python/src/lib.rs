// SPDX-License-Identifier: MIT OR Apache-2.0
//! The native module of the Python package `turbolane`.
//!
//! It hands out what the other crates compute: one file per subject, and no computation of its own.
//! What Python does better is in Python: tables, sweeps, charts (`turbolane/*.py`).
//!
//! Rules of all functions:
//!
//! - names and units are those of the JSON documents (crate `report`): a key that holds a quantity
//!   ends in its unit, `None` means unknown;
//! - bad input raises `turbolane.InputError`, with what happened, why, and what to do next;
//! - whatever takes longer than a millisecond lets other threads of Python run.

mod data_file;
mod evaluation;
mod machine;
mod problem;
mod recording;
mod scanning;
mod scenario;
mod simulation;
mod table;

/// Machines, scenarios, simulations, scans and recordings of Turbolane.
#[pyo3::pymodule]
mod _native {
    #[pymodule_export]
    use crate::evaluation::{place_speeds, places};
    #[pymodule_export]
    use crate::machine::{Machine, machines};
    #[pymodule_export]
    use crate::recording::Recording;
    #[pymodule_export]
    use crate::scanning::{Scan, scan};
    #[pymodule_export]
    use crate::scenario::{Scenario, scenarios};
    #[pymodule_export]
    use crate::simulation::{Load, Run, check_policy, simulate};

    /// Version of the package.
    #[pymodule_export]
    const VERSION: &str = env!("CARGO_PKG_VERSION");
}
