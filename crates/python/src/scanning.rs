// SPDX-License-Identifier: MIT OR Apache-2.0
//! Scans: which functions of a program or library can raise the licence level.

use std::fs;
use std::path::{Path, PathBuf};

use ::scan::{Limits, Options, ScanError, Sort, is_archive, read_file, scan_archive, scan_file};
use pyo3::prelude::*;
use report::problem::Problem;
use report::scan::{File, Function, Skipped};

use crate::problem::refused;
use crate::table::Columns;

/// What was found in one program, library, object or member of an archive.
#[pyclass(frozen, module = "turbolane._native")]
pub(crate) struct Scan(File);

/// Scans a program, library, object or archive (one result per member): functions that reach at
/// least this licence level.
#[pyfunction]
#[pyo3(signature = (path, *, level=1))]
pub(crate) fn scan(py: Python<'_>, path: PathBuf, level: u8) -> PyResult<Vec<Scan>> {
    let files = py.detach(|| scanned(&path, level)).map_err(|error| {
        let what = format!("cannot scan {}", path.display());
        let next = "name a program, library, object or archive for x86";
        refused(py, Problem::new(what, error.to_string(), next))
    })?;
    Ok(files.into_iter().map(Scan).collect())
}

fn scanned(path: &Path, level: u8) -> Result<Vec<File>, ScanError> {
    let file = fs::File::open(path).map_err(|error| ScanError::Unreadable(error.to_string()))?;
    let bytes = read_file(&file, &Limits::default())?;
    let (name, options) = (path.to_string_lossy(), Options { level, top: None, sort: Sort::Level });
    if is_archive(&bytes) {
        return scan_archive(&name, &bytes, &options, &mut Skipped::default());
    }
    Ok(vec![scan_file(&name, &bytes, &options)?])
}

#[pymethods]
impl Scan {
    /// Its path, with the member of an archive in parentheses.
    #[getter]
    fn path(&self) -> &str {
        &self.0.path
    }

    /// For people: `shared object`, `executable`, `object`.
    #[getter]
    fn kind(&self) -> &str {
        &self.0.kind
    }

    /// `x86-64` or `x86`.
    #[getter]
    fn architecture(&self) -> &str {
        &self.0.architecture
    }

    /// Build id, in hexadecimal.
    #[getter]
    fn build_id(&self) -> Option<&str> {
        self.0.build_id.as_deref()
    }

    /// Licence level that it can reach.
    #[getter]
    fn license_level(&self) -> u8 {
        self.0.license_level
    }

    /// The same, if heavy instructions count only where they can be dense enough.
    #[getter]
    fn sustained_level(&self) -> u8 {
        self.0.sustained_level
    }

    /// Bytes of code.
    #[getter]
    fn code_bytes(&self) -> u64 {
        self.0.code_bytes
    }

    /// Share of wide instructions that are in a known function, percent.
    #[getter]
    fn coverage_pct(&self) -> Option<f64> {
        self.0.coverage_pct
    }

    /// What could not be looked at.
    #[getter]
    fn partial(&self) -> Vec<String> {
        self.0.partial.clone()
    }

    /// Its functions of the level and above, the most demanding first.
    #[getter]
    fn functions<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let all = || self.0.listed.iter();
        let wide = |of: fn(&Function) -> u64| all().map(of);
        Columns::new(py)
            .with("name", all().map(|f| f.name.clone()))?
            .with("symbol", all().map(|f| f.symbol.clone()))?
            .with("address", all().map(|f| f.address))?
            .with("size_bytes", all().map(|f| f.size_bytes))?
            .with("license_level", all().map(|f| u64::from(f.license_level)))?
            .with("sustained_level", all().map(|f| u64::from(f.sustained_level)))?
            .with("widest", all().map(|f| f.widest.word()))?
            .with("instructions", all().map(|f| f.instructions))?
            .with("heavy_ymm", wide(|f| f.counts.heavy.ymm))?
            .with("heavy_zmm", wide(|f| f.counts.heavy.zmm))?
            .with("light_ymm", wide(|f| f.counts.light.ymm))?
            .with("light_zmm", wide(|f| f.counts.light.zmm))?
            .with("tile", wide(|f| f.counts.tile))?
            .with("heavy_frac", all().map(|f| f.heavy_frac))?
            .with("confidence", all().map(|f| f.confidence.word()))?
            .with("source", all().map(|f| f.source.name()))?
            .table()
    }

    fn __repr__(&self) -> String {
        let (file, found) = (&self.0, self.0.listed.len());
        format!("<turbolane.Scan {}: level {}, {found} functions>", file.path, file.license_level)
    }
}
