// SPDX-License-Identifier: MIT OR Apache-2.0
//! The texts of machines and scenarios: built in by name, or files.

use std::fs;
use std::path::Path;

use cpumodel::DataError;
use pyo3::prelude::*;
use report::problem::Problem;

use crate::problem::refused;

/// The text of that name among the built-in ones, or of that file. `kind` is `machine` or
/// `scenario`.
pub(crate) fn text_of(
    py: Python<'_>,
    kind: &str,
    built_in: &[(&str, &str)],
    name: &Path,
) -> PyResult<String> {
    let id = name.to_string_lossy();
    if let Some((_, text)) = built_in.iter().find(|(known, _)| *known == id) {
        return Ok((*text).to_string());
    }
    fs::read_to_string(name).map_err(|error| {
        let next = format!("turbolane.{kind}s() lists those that are built in");
        let names = built_in.iter().map(|(known, _)| *known);
        refused(py, Problem::not_there(kind, &id, names, &error, &next))
    })
}

/// What the reader made of a text.
pub(crate) fn read<T>(py: Python<'_>, name: &str, read: Result<T, DataError>) -> PyResult<T> {
    read.map_err(|error| refused(py, Problem::bad_data(name, &error)))
}
