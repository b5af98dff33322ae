// SPDX-License-Identifier: MIT OR Apache-2.0
//! A program with heavy 512-bit sections between calls of memset and string functions
//! (`c/sections.c`), and how many of its sections the module and the scheduler catch.

use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::guest::install;

const PROGRAM: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/sections"));
const PATH: &str = "/tmp/sections";

/// Moves glibc alone to its AVX2 forms (docs/kernel-module.md).
pub const REMEDY: (&str, &str) =
    ("GLIBC_TUNABLES", "glibc.cpu.hwcaps=-AVX512F,-AVX512VL,-AVX512BW");

/// How the scheduler is run: a wide period lasts longer than a section (2 ms in Bochs) and shorter
/// than the work between two (10 ms).
pub const SCHEDULER: [&str; 6] =
    ["--mode", "scx", "--wide-cpus", "1", "--remigrate", "timeout:5ms"];

/// What became of the sections of one run; with the remedy all began on another CPU than the wide
/// one.
pub struct Sections {
    /// Ran on the wide CPU from behind their first multiplication.
    pub caught: u32,
    /// All.
    pub count: u32,
}

impl Sections {
    /// Share of the sections that ran on the wide CPU, in percent.
    pub fn caught_pct(&self) -> f64 {
        100.0 * f64::from(self.caught) / f64::from(self.count)
    }
}

/// Runs the program.
pub fn run(count: u32, wide_cpu: usize, remedy: bool) -> Result<Sections> {
    install(PATH, PROGRAM)?;
    let mut command = Command::new(PATH);
    command.args([count.to_string(), wide_cpu.to_string()]);
    if remedy {
        command.env(REMEDY.0, REMEDY.1);
    }
    let output = command.output().context("the program does not start")?;
    ensure!(output.status.success(), "the program ended with {}", output.status);
    let text = String::from_utf8(output.stdout)?;
    let numbers: Vec<u32> =
        text.split_whitespace().map(str::parse).collect::<Result<_, _>>().unwrap_or_default();
    let &[caught, elsewhere] = &numbers[..] else {
        anyhow::bail!("the program printed {text:?}");
    };
    // Without the remedy, glibc's traps may have made the task wide already: then it moves as soon
    // as it may.
    ensure!(
        !remedy || elsewhere == count,
        "only {elsewhere} of {count} sections began on another CPU"
    );
    Ok(Sections { caught, count })
}
