// SPDX-License-Identifier: MIT OR Apache-2.0
//! Hints by a preloaded library: Debian's own programs, unchanged.

use std::process::Command;

use anyhow::{Result, ensure};

use crate::lane::{Lane, stat, stats};

/// OpenSSL's benchmark of a cipher, with libturbolane_openssl.so and these hints; the statistics
/// behind it.
fn speed(bytes: &str, hints: Option<&str>) -> Result<serde_json::Value> {
    let mut openssl = Command::new("openssl");
    openssl.args(["speed", "-seconds", "1", "-bytes", bytes, "-evp", "chacha20"]);
    openssl.env("LD_PRELOAD", "libturbolane_openssl.so").env_remove("TURBOLANE_OPENSSL");
    let done = openssl.envs(hints.map(|hints| ("TURBOLANE_OPENSSL", hints))).output()?;
    let said = String::from_utf8_lossy(&done.stderr);
    ensure!(done.status.success() && !said.contains("turbolane"), "openssl: {said}");
    stats()
}

/// Its sections run on the wide CPU, and calls below the threshold are none.
pub fn openssl() -> Result<()> {
    let lane = Lane::start(&["--mode", "scx", "--wide-cpus", "cpu:3"])?;
    let before = speed("8192", None)?;
    ensure!(stat(&before, "hint_events")? == 0, "sections without being asked for: {before}");
    let short = speed("256", Some("2,512"))?;
    ensure!(stat(&short, "hint_events")? == 0, "sections for 256 bytes: {short}");
    let bulk = speed("8192", Some("2"))?;
    let (wide, moves) = (stat(&bulk, "wide_run_ns")?, stat(&bulk, "migrations_to_wide")?);
    // The cipher runs for a second: most of it inside of sections, on the wide CPU.
    ensure!(wide > 300_000_000 && moves > 0, "{wide} ns wide, {moves} moves: {bulk}");
    let (wrong, ticks) = (stat(&bulk, "wide_on_scalar_ticks")?, stat(&bulk, "ticks")?);
    ensure!(wrong * 50 < ticks, "{wrong} of {ticks} ticks saw a section on a scalar CPU");
    lane.stop().map(drop)
}
