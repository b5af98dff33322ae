// SPDX-License-Identifier: MIT OR Apache-2.0
//! What `turbolane sim` predicts for the rows of experiments, on a model of the very machine that
//! they are measured on.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result};
use serde_json::Value;

use crate::repo;

/// How a row is simulated.
#[derive(Debug, Clone)]
pub(crate) struct Simulated {
    /// A file.
    pub(crate) scenario: &'static str,
    /// A file: the CPUs of the guest.
    pub(crate) machine: &'static str,
    /// Variant of the scenario's code; empty for the scenario as in its file.
    pub(crate) variant: &'static str,
    /// The scheduler, as `turbolane sim --policy` takes it.
    pub(crate) policy: String,
}

/// Throughput of each load, per second.
pub(crate) type Predicted = BTreeMap<String, f64>;

/// The row as simulated by this program.
pub(crate) fn simulate(turbolane: &Path, row: &Simulated) -> Result<Predicted> {
    run(turbolane, row.scenario, row.machine, row.variant, &row.policy)
}

/// What this program simulates, each as its options take it; the variant may be empty.
pub(crate) fn run(
    turbolane: &Path,
    scenario: &str,
    machine: &str,
    variant: &str,
    policy: &str,
) -> Result<Predicted> {
    let mut args = vec!["sim", scenario, "--machine", machine, "--json", "--policy", policy];
    if !variant.is_empty() {
        args.extend(["--variant", variant]);
    }
    let json = repo::output(&turbolane.display().to_string(), &args)?;
    read(&json).with_context(|| format!("what turbolane {} printed", args.join(" ")))
}

fn read(json: &str) -> Result<Predicted> {
    let report: Value = serde_json::from_str(json)?;
    let loads = report["runs"][0]["loads"].as_array().context("no loads of a first run")?;
    let load = |load: &Value| {
        let (name, per_s) = (load["name"].as_str(), load["work_per_s"].as_f64());
        let (name, per_s) = name.zip(per_s).context("a load without a name or work_per_s")?;
        Ok((name.to_owned(), per_s))
    };
    loads.iter().map(load).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loads_of_the_first_run_count() {
        let json = r#"{"runs":[{"loads":[{"name":"nginx","work_per_s":4210.5},{"name":"b","work_per_s":1}]},
            {"loads":[{"name":"nginx","work_per_s":7}]}]}"#;
        let loads = read(json).unwrap();
        assert_eq!((loads["nginx"], loads["b"]), (4210.5, 1.0));
    }

    #[test]
    fn reports_without_loads_fail() {
        for json in [r#"{"runs":[]}"#, r#"{"runs":[{"loads":[{"name":"a"}]}]}"#, "nothing"] {
            assert!(read(json).is_err(), "{json}");
        }
    }
}
