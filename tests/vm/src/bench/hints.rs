// SPDX-License-Identifier: MIT OR Apache-2.0
//! `lane.hint_ns`: begin and end of a section when nothing has to move, on this machine. The
//! measurement is the library's own example `hint_bench`, which prints a figure per line; here
//! it is run and collected.

use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use crate::measure;

/// Measure and publish.
pub fn run() -> Result<()> {
    let mut program = std::env::current_exe()?;
    program.set_file_name("examples");
    program.push("hint_bench");
    let output = Command::new(&program).stdin(Stdio::null()).stderr(Stdio::inherit()).output();
    let output = output.with_context(|| format!("{} cannot be started", program.display()))?;
    ensure!(output.status.success(), "{} ended with {}", program.display(), output.status);
    let text = String::from_utf8(output.stdout)?;
    let figures: Vec<&str> = text.lines().filter(|line| line.starts_with('{')).collect();
    ensure!(!figures.is_empty(), "{} measured nothing", program.display());
    measure::write("hints", &format!("[{}]", figures.join(",")))
}
