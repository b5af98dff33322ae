// SPDX-License-Identifier: MIT OR Apache-2.0
//! From the errors of the other crates to `turbolane.InputError`.

use pyo3::prelude::*;
use report::problem::Problem;

/// The exception for a problem; its class is Python's: it has the three parts as attributes.
pub(crate) fn refused(py: Python<'_>, problem: Problem) -> PyErr {
    let raised = || -> PyResult<PyErr> {
        let class = py.import("turbolane.errors")?.getattr("InputError")?;
        Ok(PyErr::from_value(class.call1((problem.what, problem.why, problem.next))?))
    };
    raised().unwrap_or_else(|error| error)
}
