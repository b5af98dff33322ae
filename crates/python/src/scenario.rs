// SPDX-License-Identifier: MIT OR Apache-2.0
//! Scenarios: what runs, and for how long.

use std::path::PathBuf;

use pyo3::prelude::*;
use sim::scenario::SCENARIO_FILES;

use crate::data_file::{self, text_of};
use crate::machine::Machine;

/// Names of the built-in scenarios.
#[pyfunction]
pub(crate) fn scenarios() -> Vec<&'static str> {
    SCENARIO_FILES.iter().map(|(name, _)| *name).collect()
}

/// A load: groups of tasks and what they do.
///
/// `Scenario(name)` takes the name of a built-in scenario or the path of a scenario file.
#[pyclass(frozen, module = "turbolane._native")]
pub(crate) struct Scenario {
    text: String,
    pub(crate) scenario: sim::scenario::Scenario,
}

impl Scenario {
    fn read(py: Python<'_>, name: &str, text: String) -> PyResult<Self> {
        let scenario = data_file::read(py, name, sim::scenario::Scenario::from_toml(&text))?;
        Ok(Scenario { scenario, text })
    }
}

#[pymethods]
impl Scenario {
    #[new]
    fn new(py: Python<'_>, name: PathBuf) -> PyResult<Self> {
        let text = text_of(py, "scenario", &SCENARIO_FILES, &name)?;
        Scenario::read(py, &name.to_string_lossy(), text)
    }

    /// The scenario that the text of a scenario file describes.
    #[staticmethod]
    pub(crate) fn from_toml(py: Python<'_>, text: String) -> PyResult<Self> {
        Scenario::read(py, "the text", text)
    }

    /// Its name.
    #[getter]
    fn name(&self) -> &str {
        &self.scenario.name
    }

    /// What it shows, in a sentence.
    #[getter]
    fn about(&self) -> &str {
        &self.scenario.about
    }

    /// Id of the CPU model that it was made for.
    #[getter]
    fn machine(&self) -> &str {
        &self.scenario.machine
    }

    /// Packages of that machine.
    #[getter]
    fn packages(&self) -> usize {
        self.scenario.packages
    }

    /// Names of the variants of its code, e.g. `none` and `avx512`.
    #[getter]
    fn variants(&self) -> Vec<String> {
        self.scenario.variants().map(str::to_string).collect()
    }

    /// Names of its groups of tasks.
    #[getter]
    fn groups(&self) -> Vec<String> {
        let workload = self.scenario.workload(None);
        let groups = workload.into_iter().flat_map(|workload| &workload.groups);
        groups.map(|group| group.name.clone()).collect()
    }

    /// Simulated time, ns; the first `warmup_ns` of it do not count.
    #[getter]
    fn duration_ns(&self) -> u64 {
        self.scenario.duration_ns
    }

    /// See `duration_ns`.
    #[getter]
    fn warmup_ns(&self) -> u64 {
        self.scenario.warmup_ns
    }

    /// Why it does not fit on so many packages of a machine (its own number without); `None` if it
    /// does.
    #[pyo3(signature = (machine, packages=None))]
    pub(crate) fn misfit(&self, machine: &Machine, packages: Option<usize>) -> Option<String> {
        let packages = packages.unwrap_or(self.scenario.packages);
        if packages == 0 {
            return Some("0 packages have no CPU".into());
        }
        let fits = self.scenario.check_fits(&machine.platform, packages);
        fits.err().map(|misfit| misfit.to_string())
    }

    /// Text of its scenario file.
    fn to_toml(&self) -> &str {
        &self.text
    }

    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<(Bound<'py, PyAny>, (String,))> {
        let from_toml = py.get_type::<Scenario>().getattr("from_toml")?;
        Ok((from_toml, (self.text.clone(),)))
    }

    fn __repr__(&self) -> String {
        format!("<turbolane.Scenario {}>", self.scenario.name)
    }
}
