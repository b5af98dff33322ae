// SPDX-License-Identifier: MIT OR Apache-2.0
//! From the errors of the other crates to `turbolane.InputError`.

use std::path::Path;

use ::machine::DataError;
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

/// A data file that is not right.
pub(crate) fn bad_data(py: Python<'_>, name: &str, error: &DataError) -> PyErr {
    let what = format!("cannot use {name}, line {}", error.line);
    refused(py, Problem::new(what, error.what.clone(), error.next.clone()))
}

/// A name that is neither built in nor a file.
pub(crate) fn unknown(py: Python<'_>, kind: &str, name: &Path, error: &std::io::Error) -> PyErr {
    let what = format!("there is no {kind} \"{}\"", name.display());
    let why = format!("it is not built in, and as a file: {error}");
    refused(
        py,
        Problem::new(what, why, format!("turbolane.{kind}s() lists those that are built in")),
    )
}
