// SPDX-License-Identifier: MIT OR Apache-2.0
//! What `turbolane sim` predicts for the web server's rows on a model of the very machine that they are measured on.

use std::path::Path;

use anyhow::{Context, Result};
use serde_json::Value;

use crate::repo;

const SCENARIO: &str = "docs/experiments/silicon-nginx.toml";
const MACHINE: &str = "docs/experiments/silicon-machine.toml";

/// How a row is simulated.
pub(crate) struct Simulated {
    /// Of the scenario's code; empty for the scenario as it stands.
    pub(crate) variant: &'static str,
    /// The scheduler, as `turbolane sim --policy` takes it.
    pub(crate) policy: &'static str,
}

/// Requests per second of the row, as simulated by this program.
pub(crate) fn per_s(turbolane: &Path, row: &Simulated) -> Result<f64> {
    let mut args = vec!["sim", SCENARIO, "--machine", MACHINE, "--json", "--policy", row.policy];
    if !row.variant.is_empty() {
        args.extend(["--variant", row.variant]);
    }
    let json = repo::output(&turbolane.display().to_string(), &args)?;
    read(&json).with_context(|| format!("what turbolane {} printed", args.join(" ")))
}

fn read(json: &str) -> Result<f64> {
    let report: Value = serde_json::from_str(json)?;
    let nginx = &report["runs"][0]["loads"][0];
    nginx["work_per_s"].as_f64().context("no requests per second of nginx")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_load_of_the_first_run_counts() {
        let json =
            r#"{"runs":[{"loads":[{"name":"nginx","work_per_s":4210.5},{"work_per_s":1}]}]}"#;
        assert_eq!(read(json).ok(), Some(4210.5));
        assert!(read(r#"{"runs":[]}"#).is_err());
        assert!(read("nothing").is_err());
    }
}
