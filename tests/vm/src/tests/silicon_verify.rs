// SPDX-License-Identifier: MIT OR Apache-2.0
//! `turbolane verify` on a machine with dim silicon: it finds the gain of a load that has one, and
//! none where there is no wide code.

use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use report::verify::{Verdict, VerifyReport};

use crate::lane::TURBOLANE;

/// The load, with and without the lane.
fn verify(kind: &str) -> Result<VerifyReport> {
    let mut verify = Command::new(TURBOLANE);
    verify.args(["verify", "--runs", "4", "--warmup", "0", "--metric", "turns per second: {}"]);
    verify.args(["--run", "--wide-cpus 1", "--json", "--"]);
    verify.args(["vmtests", "silicon-bursts", "8", "60", kind]).stdin(Stdio::null());
    // Its exit code says what it found.
    let output = verify.output().context("turbolane cannot be started")?;
    let (json, errors) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    serde_json::from_str(&json).with_context(|| format!("the report: {json}{errors}"))
}

/// One of four cores at 1.9 GHz instead of four: (3 * 2.8 + 1.9) / (4 * 1.9) is 36 % more.
pub fn gain_and_none() -> Result<()> {
    let wide = verify("wide")?;
    println!("wide: {:?}, {}", wide.effect, wide.verdict);
    ensure!(wide.effect.verdict == Verdict::Better, "with wide code: {}", wide.verdict);
    let change_pct = wide.effect.change_pct;
    ensure!((20.0..40.0).contains(&change_pct), "throughput changes by {change_pct} %");
    let scalar = verify("scalar")?;
    println!("scalar: {:?}, {}", scalar.effect, scalar.verdict);
    ensure!(scalar.effect.verdict != Verdict::Better, "without wide code: {}", scalar.verdict);
    let change_pct = scalar.effect.change_pct;
    ensure!(change_pct.abs() < 5.0, "without wide code throughput changes by {change_pct} %");
    Ok(())
}
