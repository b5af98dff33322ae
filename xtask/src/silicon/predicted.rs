// SPDX-License-Identifier: MIT OR Apache-2.0
//! What `turbolane sim` predicts for the rows of experiments, on a model of the very machine that
//! they are measured on.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::Path;

use anyhow::{Context, Result};
use serde_json::Value;
use tempfile::NamedTempFile;

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
    /// Simulated time before what counts; `None` for the scenario's own.
    pub(crate) warm_up_ns: Option<u64>,
}

/// Throughput of each load, per second.
pub(crate) type Predicted = BTreeMap<String, f64>;

/// The row as simulated by this program.
pub(crate) fn simulate(turbolane: &Path, row: &Simulated) -> Result<Predicted> {
    let Some(warm_up_ns) = row.warm_up_ns else {
        return run(turbolane, row.scenario, row.machine, row.variant, &row.policy);
    };
    let mut file = NamedTempFile::with_suffix(".toml").context("a scenario's copy")?;
    let text = fs::read_to_string(repo::root().join(row.scenario)).context(row.scenario)?;
    file.write_all(later(&text, warm_up_ns)?.as_bytes()).context("a scenario's copy")?;
    let scenario = file.path().to_str().context("the path of a scenario's copy")?;
    run(turbolane, scenario, row.machine, row.variant, &row.policy)
}

/// The scenario with so much time before what counts, which lasts as long as before.
fn later(scenario: &str, warm_up_ns: u64) -> Result<String> {
    let mut table: toml::Table = scenario.parse()?;
    let ns = |table: &toml::Table, key: &str| {
        table.get(key).and_then(toml::Value::as_integer).with_context(|| format!("no {key}"))
    };
    let warm_up_ns = i64::try_from(warm_up_ns)?;
    let counted_ns = ns(&table, "duration_ns")? - ns(&table, "warmup_ns")?;
    table.insert("duration_ns".to_owned(), (warm_up_ns + counted_ns).into());
    table.insert("warmup_ns".to_owned(), warm_up_ns.into());
    Ok(toml::to_string(&table)?)
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
    fn what_counts_comes_later() {
        let text = later("name = \"a\"\nduration_ns = 10\nwarmup_ns = 2\n", 5).unwrap();
        let table: toml::Table = text.parse().unwrap();
        let ns = |key: &str| table[key].as_integer().unwrap();
        assert_eq!((ns("duration_ns"), ns("warmup_ns")), (13, 5));
        assert!(later("duration_ns = 10", 5).is_err());
    }

    #[test]
    fn reports_without_loads_fail() {
        for json in [r#"{"runs":[]}"#, r#"{"runs":[{"loads":[{"name":"a"}]}]}"#, "nothing"] {
            assert!(read(json).is_err(), "{json}");
        }
    }
}
