// SPDX-License-Identifier: MIT OR Apache-2.0
//! `turbolane advise` on a machine with dim silicon: it finds who executes wide code, and predicts
//! a gain where `turbolane verify` finds one (`silicon_verify.rs`).

use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use report::advise::{Advice, Worth};

use crate::lane::TURBOLANE;

/// The load of `silicon_verify`, for so long.
fn advise(kind: &str) -> Result<Advice> {
    let mut advise = Command::new(TURBOLANE);
    advise.args(["advise", "--machine", "xeon-gold-6130", "--for", "150ms", "--json", "--"]);
    advise.args(["vmtests", "silicon-bursts", "8", "140", kind]).stdin(Stdio::null());
    let output = advise.output().context("turbolane cannot be started")?;
    let (json, errors) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    serde_json::from_str(&json).with_context(|| format!("the answer: {json}{errors}"))
}

/// The gain that may be predicted, %: one of four cores at 1.9 GHz instead of four is 36 % more
/// (`silicon_verify` measures 20 to 40 % by hints). What is proposed are traps, and the counters
/// say only that sections are shorter than some 50 us: for the shortest of them traps gain least.
const PREDICTED_PCT: std::ops::RangeInclusive<f64> = 5.0..=40.0;

/// Who, how much, and what it would gain.
pub fn finds_and_predicts() -> Result<()> {
    let wide = advise("wide")?;
    println!("{}", wide.text(100));
    let found = wide.found.first().context("nothing is found")?;
    ensure!(found.sustained_level == 2 && found.file.contains("vmtests"), "found {found:?}");
    // 21 of about 547 us: 40,000 instructions beside a million
    let busy_pct: f64 = wide.found.iter().map(|found| found.busy_pct).sum();
    ensure!((1.0..10.0).contains(&busy_pct), "{busy_pct} % of busy time are wide");
    let reduced_pct = wide.reduced_pct.context("the machine has licence counters")?;
    ensure!(reduced_pct > 70.0, "counters: {reduced_pct} % of cycles at a lowered clock");
    let prediction = wide.prediction.context("nothing is predicted")?;
    ensure!(
        PREDICTED_PCT.contains(&prediction.gain_pct) && prediction.least_pct > 0.0,
        "predicted: {prediction:?}"
    );
    ensure!(wide.verdict.worth == Worth::Yes, "{:?}", wide.verdict);
    let run = wide.run.context("nothing is proposed")?;
    let output = Command::new("sh").args(["-c", &check_of(&run)]).output()?;
    ensure!(output.status.success(), "{run}: {}", String::from_utf8_lossy(&output.stderr));
    let scalar = advise("scalar")?;
    println!("{}", scalar.text(100));
    ensure!(scalar.verdict.worth == Worth::No && scalar.found.is_empty(), "{:?}", scalar.verdict);
    Ok(())
}

/// The proposed command, only checked: `turbolane run --check` with the same options.
fn check_of(run: &str) -> String {
    let options = run.split(" -- ").next().unwrap_or(run);
    options.replace("sudo turbolane run", &format!("{TURBOLANE} run --check"))
}
