// SPDX-License-Identifier: MIT OR Apache-2.0
//! `turbolane verify` on a machine with dim silicon: it finds the gain of a load that has one. That
//! it finds none where there is none is a test of `crates/probe`, for eight more runs here would
//! take as long again; that the lane changes nothing where there is no wide code is seen by one run
//! with it and one without.

use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use report::verify::{Verdict, VerifyReport};

use crate::lane::TURBOLANE;

/// The load, with and without the lane.
fn verify() -> Result<VerifyReport> {
    let mut verify = Command::new(TURBOLANE);
    verify.args(["verify", "--runs", "4", "--warmup", "0", "--metric", "turns per second: {}"]);
    verify.args(["--run", "--wide-cpus 1", "--json", "--"]);
    verify.args(["vmtests", "silicon-bursts", "8", "30", "wide"]).stdin(Stdio::null());
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
    let (alone, laned) = (scalar(&[])?, scalar(&["turbolane", "run", "--wide-cpus", "1", "--"])?);
    let change_pct = (laned / alone - 1.0) * 100.0;
    println!("scalar: {alone} turns per second, {laned} with the lane: {change_pct:.2} %");
    ensure!(change_pct.abs() < 5.0, "without wide code throughput changes by {change_pct} %");
    Ok(())
}

/// Turns per second of the load without wide code, started by this command.
fn scalar(by: &[&str]) -> Result<f64> {
    let load = ["vmtests", "silicon-bursts", "8", "30", "scalar"];
    let words = [by, &load].concat();
    let output = Command::new(words[0]).args(&words[1..]).stdin(Stdio::null()).output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let turns = text.lines().find_map(|line| line.strip_prefix("turns per second: "));
    let turns = turns.with_context(|| String::from_utf8_lossy(&output.stderr).into_owned())?;
    turns.parse().context("turns per second are a number")
}
