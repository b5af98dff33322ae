// SPDX-License-Identifier: MIT OR Apache-2.0
//! A program with heavy 512-bit sections between calls of memset and string functions
//! (`c/sections.c`), and how many of its sections the module and the scheduler catch.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use anyhow::{Context, Result, ensure};

const PROGRAM: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/sections"));
const PATH: &str = "/tmp/sections";

/// Moves glibc alone to its AVX2 forms (docs/kernel-module.md).
pub const REMEDY: (&str, &str) =
    ("GLIBC_TUNABLES", "glibc.cpu.hwcaps=-AVX512F,-AVX512VL,-AVX512BW");

/// Runs it; returns the share of its sections, in percent, that ran on the wide CPU.
pub fn caught_pct(sections: u32, wide_cpu: usize, remedy: bool) -> Result<f64> {
    fs::write(PATH, PROGRAM).with_context(|| format!("cannot write {PATH}"))?;
    fs::set_permissions(PATH, fs::Permissions::from_mode(0o755))?;
    let mut command = Command::new(PATH);
    command.args([sections.to_string(), wide_cpu.to_string()]);
    if remedy {
        command.env(REMEDY.0, REMEDY.1);
    }
    let output = command.output().context("the program does not start")?;
    ensure!(output.status.success(), "the program ended with {}", output.status);
    let text = String::from_utf8(output.stdout)?;
    let mut numbers = text.split_whitespace().map(str::parse::<f64>);
    let (Some(Ok(caught)), Some(Ok(count))) = (numbers.next(), numbers.next()) else {
        anyhow::bail!("the program printed {text:?}");
    };
    Ok(100.0 * caught / count)
}
