// SPDX-License-Identifier: MIT OR Apache-2.0
//! A machine that booted with `isolcpus=`: the kernel takes no scheduler there, and everything says
//! so before it tries.

use std::process::{Command, Output, Stdio};

use anyhow::{Context, Result, ensure};
use report::doctor::{Doctor, Status};

use crate::guest::scx_state;
use crate::lane::TURBOLANE;

fn output(args: &[&str]) -> Result<Output> {
    Ok(Command::new(TURBOLANE).args(args).stdin(Stdio::null()).output()?)
}

/// `doctor`, `run --check` and `run` refuse mode scx with the same reason, and mode auto falls
/// back.
pub fn isolated_cpus() -> Result<()> {
    let doctor = output(&["doctor", "--json"])?;
    ensure!(doctor.status.code() == Some(1), "doctor: {doctor:?}");
    let report: Doctor = serde_json::from_slice(&doctor.stdout)?;
    let mut checks = report.sections.into_iter().flat_map(|section| section.checks);
    let check = checks.find(|check| check.id == "run-scx").context("no check run-scx")?;
    ensure!(check.status == Status::No && check.seen.contains("CPUs 3 are isolated"), "{check:?}");

    for args in [&["run", "--check", "--mode", "scx"][..], &["run", "--mode", "scx", "--", "true"]]
    {
        let refused = output(args)?;
        let why = String::from_utf8_lossy(&refused.stderr);
        ensure!(refused.status.code() == Some(77), "{args:?}: {refused:?}");
        ensure!(why.contains("isolated") && why.contains("isolcpus="), "{args:?}: {why}");
    }
    let fallback = output(&["run", "--wide-cpus", "1", "--", "true"])?;
    let told = String::from_utf8_lossy(&fallback.stderr);
    ensure!(fallback.status.success() && told.contains("affinity mode"), "{fallback:?}");
    ensure!(scx_state() == "disabled", "sched_ext is {}", scx_state());
    Ok(())
}
