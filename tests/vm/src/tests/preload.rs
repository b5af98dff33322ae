// SPDX-License-Identifier: MIT OR Apache-2.0
//! Hints by a preloaded library: Debian's own programs, unchanged.

use std::process::Command;

use anyhow::{Result, ensure};

use crate::lane::{Lane, stat, stats};

/// Functions through which the benchmark reaches a cipher.
const MARKS: &str = "libcrypto.so.3:EVP_EncryptUpdate@2,min-arg5=512; report";

/// OpenSSL's benchmark of a cipher with a preloaded library, and its variable if it is set; what it
/// said, and the statistics after it.
fn speed(
    library: &str,
    bytes: &str,
    variable: Option<(&str, &str)>,
) -> Result<(String, serde_json::Value)> {
    let mut openssl = Command::new("openssl");
    openssl.args(["speed", "-seconds", "1", "-bytes", bytes, "-evp", "chacha20"]);
    openssl.env("LD_PRELOAD", library).env_remove("TURBOLANE_OPENSSL").envs(variable);
    let done = openssl.output()?;
    let said = String::from_utf8_lossy(&done.stderr).into_owned();
    ensure!(done.status.success(), "openssl: {said}");
    Ok((said, stats()?))
}

/// libturbolane_openssl.so: sections run on the wide CPU, and calls below the threshold are none.
pub fn openssl() -> Result<()> {
    let lane = Lane::start(&["--mode", "scx", "--wide-cpus", "cpu:3"])?;
    let speed = |bytes, hints: Option<&str>| {
        let variable = hints.map(|hints| ("TURBOLANE_OPENSSL", hints));
        let (said, stats) = speed("libturbolane_openssl.so", bytes, variable)?;
        ensure!(!said.contains("turbolane"), "openssl: {said}");
        Ok(stats)
    };
    let before = speed("8192", None)?;
    ensure!(stat(&before, "hint_events")? == 0, "sections without being asked for: {before}");
    let short = speed("256", Some("2,512"))?;
    ensure!(stat(&short, "hint_events")? == 0, "sections for 256 bytes: {short}");
    runs_on_the_wide_cpu(&speed("8192", Some("2"))?)?;
    lane.stop().map(drop)
}

/// libturbolane_marks.so: the same by marks.
pub fn marks() -> Result<()> {
    let lane = Lane::start(&["--mode", "scx", "--wide-cpus", "cpu:3"])?;
    let speed = |bytes| {
        let (said, stats) =
            speed("libturbolane_marks.so", bytes, Some(("TURBOLANE_MARKS", MARKS)))?;
        // openssl itself, and libraries that it loads
        let report = "turbolane_marks: libcrypto.so.3:EVP_EncryptUpdate: ";
        ensure!(said.contains(report) && !said.contains(": 0 callers"), "openssl: {said}");
        Ok(stats)
    };
    let short = speed("256")?;
    ensure!(stat(&short, "hint_events")? == 0, "sections for 256 bytes: {short}");
    runs_on_the_wide_cpu(&speed("8192")?)?;
    lane.stop().map(drop)
}

/// The cipher runs for a second: most of it inside of sections, on the wide CPU.
fn runs_on_the_wide_cpu(stats: &serde_json::Value) -> Result<()> {
    let (wide, moves) = (stat(stats, "wide_run_ns")?, stat(stats, "migrations_to_wide")?);
    ensure!(wide > 300_000_000 && moves > 0, "{wide} ns wide, {moves} moves: {stats}");
    let (wrong, ticks) = (stat(stats, "wide_on_scalar_ticks")?, stat(stats, "ticks")?);
    ensure!(wrong * 50 < ticks, "{wrong} of {ticks} ticks saw a section on a scalar CPU");
    Ok(())
}
