// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where a process may not use all of the machine: a quota of CPU time by cgroup v2, as containers
//! have.

use std::fs;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use report::doctor::{Doctor, Status};
use report::verify::VerifyReport;

use crate::guest::control_groups;

/// Half a CPU, as a quota of the group above the process's own: told by doctor there and nowhere
/// else, and comparisons go on.
pub fn quota() -> Result<()> {
    let top = control_groups()?;
    let outer = top.join("pod");
    let inner = outer.join("container");
    fs::create_dir_all(&inner)?;
    fs::write(outer.join("cpu.max"), "50000 100000").context("cpu.max")?;

    let inside = |arguments: &str| {
        let join =
            format!("echo $$ > {}/cgroup.procs && exec turbolane {arguments}", inner.display());
        Command::new("sh").args(["-c", &join]).output()
    };
    let seen = |bytes: &[u8]| -> Result<(Status, String)> {
        let report: Doctor = serde_json::from_slice(bytes)?;
        let mut checks = report.sections.into_iter().flat_map(|section| section.checks);
        let check = checks.find(|check| check.id == "cpu-quota").context("no such check")?;
        Ok((check.status, check.seen))
    };
    let outside = Command::new("turbolane").args(["doctor", "--json"]).output()?;
    ensure!(seen(&outside.stdout)? == (Status::Ok, "no quota".into()), "{outside:?}");
    let limited = inside("doctor --json")?;
    ensure!(seen(&limited.stdout)? == (Status::Warn, "a quota of 0.50 CPUs".into()), "{limited:?}");

    let output = inside("verify --json --runs 4 --warmup 0 --a true --b true")?;
    let report: VerifyReport = serde_json::from_slice(&output.stdout)?;
    ensure!((report.a.samples.len(), report.b.samples.len()) == (4, 4), "{output:?}");
    Ok(())
}
