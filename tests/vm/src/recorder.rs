// SPDX-License-Identifier: MIT OR Apache-2.0
//! `turbolane record` in a guest: begun, at work, ended.

use std::fs;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::guest::wait_for;
use crate::lane::TURBOLANE;

/// `turbolane record ARGS`, begun.
pub fn start(args: &[&str]) -> Result<Child> {
    let mut command = Command::new(TURBOLANE);
    command.arg("record").args(args).stdin(Stdio::null()).stdout(Stdio::null());
    command.spawn().context("turbolane cannot be started")
}

/// A recording of the whole machine to this file, at work.
pub fn start_system(file: &str, options: &[&str]) -> Result<Child> {
    let _ = fs::remove_file(file);
    let recorder = start(&[&["-o", file, "--system"], options].concat())?;
    wait_for("no recording appears", Duration::from_secs(60), || {
        fs::metadata(file).is_ok_and(|file| file.len() > 0)
    })?;
    Ok(recorder)
}

/// Ends a recording as Ctrl-C does.
pub fn end(recorder: &mut Child) -> Result<()> {
    // SAFETY: our own child, not yet waited for.
    unsafe { libc::kill(recorder.id() as i32, libc::SIGINT) };
    let code = recorder.wait()?;
    ensure!(code.success(), "after Ctrl-C turbolane record ended with {code}");
    Ok(())
}
