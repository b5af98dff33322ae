// SPDX-License-Identifier: MIT OR Apache-2.0
//! The places that judge a policy: every built-in load on every built-in machine (`sim::best`).

use std::collections::BTreeMap;

use pyo3::prelude::*;
use report::problem::Problem;
use sim::best::Place;

use crate::problem::refused;

/// All places: scenario, machine, and whether it was held out of every choice of a constant.
#[pyfunction]
pub(crate) fn places(py: Python<'_>) -> PyResult<Vec<(String, &'static str, bool)>> {
    let all = Place::all().map_err(|error| failed(py, &error))?;
    let part = |place: &Place| (place.scenario.name.clone(), place.cpu, place.is_held_out());
    Ok(all.iter().map(part).collect())
}

/// Speed of each group of tasks at a place under a policy, completions per second, and migrations
/// per second; groups that complete nothing by themselves are left out.
#[pyfunction]
#[pyo3(signature = (scenario, machine, policy, *, variant=None))]
pub(crate) fn place_speeds(
    py: Python<'_>,
    scenario: &str,
    machine: &str,
    policy: &str,
    variant: Option<&str>,
) -> PyResult<(BTreeMap<String, f64>, f64)> {
    let known = cpumodel::CPU_FILES.iter().find(|(id, _)| *id == machine);
    let place = known.and_then(|(id, _)| Place::new(scenario, id).transpose());
    let Some(place) = place else {
        let what = format!("{scenario} on {machine} is no place");
        let why = "one of them is unknown, or the machine is too small";
        return Err(refused(py, Problem::new(what, why, "turbolane.places() lists all")));
    };
    let place = place.map_err(|error| failed(py, &error))?;
    let speeds = py.detach(|| place.speeds(variant, policy)).map_err(|error| failed(py, &error))?;
    let workload = place.scenario.workload(variant);
    let groups = workload.into_iter().flat_map(|workload| &workload.groups);
    let by_group = groups.zip(&speeds.by_group);
    let speed = |(group, speed): (&sim::program::Group, &Option<f64>)| {
        Some((group.name.clone(), (*speed)?))
    };
    Ok((by_group.filter_map(speed).collect(), speeds.migrations_per_s))
}

fn failed(py: Python<'_>, error: &sim::compare::CompareError) -> PyErr {
    let what = "cannot evaluate a policy";
    refused(py, Problem::new(what, error.to_string(), "turbolane sim --help lists policies"))
}
