// SPDX-License-Identifier: MIT OR Apache-2.0
//! `turbolane verify` on a machine with dim silicon: it finds the gain of a load that has one. That
//! it finds none where there is none is a test of `crates/probe`: eight more runs here would take
//! as long again.

use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use report::verify::{Verdict, VerifyReport};

use crate::lane::TURBOLANE;

/// The load, with and without the lane.
fn verify() -> Result<VerifyReport> {
    let mut verify = Command::new(TURBOLANE);
    verify.args(["verify", "--runs", "4", "--warmup", "0", "--metric", "turns per second: {}"]);
    verify.args(["--run", "--wide-cpus 1", "--json", "--"]);
    verify.args(["vmtests", "silicon-bursts", "8", "60", "wide"]).stdin(Stdio::null());
    // Its exit code says what it found.
    let output = verify.output().context("turbolane cannot be started")?;
    let (json, errors) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    serde_json::from_str(&json).with_context(|| format!("the report: {json}{errors}"))
}

/// One of four cores at 1.9 GHz instead of four: (3 * 2.8 + 1.9) / (4 * 1.9) is 36 % more.
pub fn gain() -> Result<()> {
    let found = verify()?;
    println!("wide: {:?}, {}", found.effect, found.verdict);
    ensure!(found.effect.verdict == Verdict::Better, "with wide code: {}", found.verdict);
    let change_pct = found.effect.change_pct;
    ensure!((20.0..40.0).contains(&change_pct), "throughput changes by {change_pct} %");
    Ok(())
}
