// SPDX-License-Identifier: MIT OR Apache-2.0
//! Columns for `turbolane.Table`.

use pyo3::prelude::*;
use pyo3::types::PyDict;

/// A table under construction.
pub(crate) struct Columns<'py>(Bound<'py, PyDict>);

impl<'py> Columns<'py> {
    pub(crate) fn new(py: Python<'py>) -> Self {
        Columns(PyDict::new(py))
    }

    /// Adds a column.
    pub(crate) fn with<T: IntoPyObject<'py>>(
        self,
        name: &str,
        values: impl IntoIterator<Item = T>,
    ) -> PyResult<Self> {
        let values: Vec<T> = values.into_iter().collect();
        self.0.set_item(name, pyo3::types::PyList::new(self.0.py(), values)?)?;
        Ok(self)
    }

    /// The table.
    pub(crate) fn table(self) -> PyResult<Bound<'py, PyAny>> {
        self.0.py().import("turbolane.table")?.getattr("Table")?.call1((self.0,))
    }
}
