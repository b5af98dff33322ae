// SPDX-License-Identifier: MIT OR Apache-2.0
//! CPU models: the built-in ones, and files such as `turbolane probe --machine-file` writes.

use std::path::PathBuf;

use cpumodel::{CpuModel, InsnClass, Platform, built_in_cpus};
use pyo3::prelude::*;
use report::problem::Problem;

use crate::data_file::{self, text_of};
use crate::problem::refused;

/// Ids of the built-in CPU models.
#[pyfunction]
pub(crate) fn machines() -> Vec<&'static str> {
    built_in_cpus().map(|(id, _)| id).collect()
}

/// A CPU model: clocks by licence level and active cores, times of transitions, costs.
///
/// `Machine(name)` takes the id of a built-in model or the path of a CPU file.
#[pyclass(frozen, module = "turbolane._native")]
pub(crate) struct Machine {
    text: String,
    pub(crate) model: CpuModel,
    pub(crate) platform: Platform,
}

impl Machine {
    fn read(py: Python<'_>, name: &str, text: String) -> PyResult<Self> {
        let model = data_file::read(py, name, CpuModel::from_toml(&text))?;
        Ok(Machine { text, platform: Platform::new(&model), model })
    }

    fn level(&self, py: Python<'_>, level: usize) -> PyResult<u8> {
        let nr_levels = self.platform.nr_levels();
        if level < nr_levels {
            return Ok(level as u8);
        }
        let what = format!("{} has no level {level}", self.model.id);
        let why = format!("its levels are 0 to {}", nr_levels - 1);
        Err(refused(py, Problem::new(what, why, "choose one of them")))
    }
}

#[pymethods]
impl Machine {
    #[new]
    fn new(py: Python<'_>, name: PathBuf) -> PyResult<Self> {
        let built_in: Vec<(&str, &str)> = built_in_cpus().collect();
        let text = text_of(py, "machine", &built_in, &name)?;
        Machine::read(py, &name.to_string_lossy(), text)
    }

    /// The model that the text of a CPU file describes.
    #[staticmethod]
    fn from_toml(py: Python<'_>, text: String) -> PyResult<Self> {
        Machine::read(py, "the text", text)
    }

    /// Id of the model.
    #[getter]
    fn id(&self) -> &str {
        &self.model.id
    }

    /// Name of the CPU.
    #[getter]
    fn name(&self) -> &str {
        &self.model.name
    }

    /// Cores of a package.
    #[getter]
    fn cores(&self) -> usize {
        self.platform.nr_cores
    }

    /// CPUs of a core.
    #[getter]
    fn threads_per_core(&self) -> usize {
        self.platform.threads_per_core
    }

    /// Names of the licence levels, level 0 (full turbo) first.
    #[getter]
    fn levels(&self) -> Vec<String> {
        self.model.levels.iter().map(|level| level.name.clone()).collect()
    }

    /// What no one published and the simulator assumes, in words.
    #[getter]
    fn assumed(&self) -> Vec<String> {
        self.platform.assumed.clone()
    }

    /// Time that a level is held after the last instruction that asks for it, ns.
    #[getter]
    fn relax_ns(&self) -> u64 {
        self.platform.times.relax_ns
    }

    /// Clock of a core at a level while so many cores of its package are active (all of them
    /// without), kHz.
    #[pyo3(signature = (level, active_cores=None))]
    fn clock_khz(
        &self,
        py: Python<'_>,
        level: usize,
        active_cores: Option<usize>,
    ) -> PyResult<u32> {
        let level = self.level(py, level)?;
        let nr_cores = self.platform.nr_cores;
        let active = active_cores.unwrap_or(nr_cores);
        if active == 0 || active > nr_cores {
            let what = format!("{active} cores of {} cannot be active", self.model.id);
            let why = format!("it has {nr_cores}");
            return Err(refused(py, Problem::new(what, why, format!("choose 1 to {nr_cores}"))));
        }
        Ok(self.platform.clock_khz(level, active))
    }

    /// How much lower the clock is at a level than at level 0, all cores active, percent.
    fn drop_pct(&self, py: Python<'_>, level: usize) -> PyResult<f64> {
        let level = self.level(py, level)?;
        let clock = |level| f64::from(self.platform.clock_khz(level, self.platform.nr_cores));
        Ok(100.0 * (1.0 - clock(level) / clock(0)))
    }

    /// Licence level that code asks for: a class of instructions (`scalar`, `light-256`,
    /// `heavy-256`, `light-512`, `heavy-512`, `amx`), and how many of them execute per cycle.
    #[pyo3(signature = (instruction_class, per_cycle=1.0))]
    fn level_of(&self, py: Python<'_>, instruction_class: &str, per_cycle: f64) -> PyResult<u8> {
        let class = InsnClass::ALL.iter().find(|(_, name)| *name == instruction_class);
        let Some((class, _)) = class else {
            let known: Vec<&str> = InsnClass::ALL.iter().map(|(_, name)| *name).collect();
            let what = format!("there is no class of instructions \"{instruction_class}\"");
            let why = format!("there are {}", known.join(", "));
            return Err(refused(py, Problem::new(what, why, "choose one of them")));
        };
        Ok(self.platform.level_of(*class, per_cycle))
    }

    /// Text of its CPU file.
    fn to_toml(&self) -> &str {
        &self.text
    }

    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<(Bound<'py, PyAny>, (String,))> {
        let from_toml = py.get_type::<Machine>().getattr("from_toml")?;
        Ok((from_toml, (self.text.clone(),)))
    }

    fn __repr__(&self) -> String {
        let platform = &self.platform;
        format!(
            "<turbolane.Machine {}: {} cores, {} levels>",
            self.model.id,
            platform.nr_cores,
            platform.nr_levels()
        )
    }
}
