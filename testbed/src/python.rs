// SPDX-License-Identifier: MIT OR Apache-2.0
//! A Python of our own for the Python package's tests: a virtual environment with what they need.
//!
//! It is built under one name and used under another, so that only its interpreter may be called
//! (`python -m pip`), not the scripts beside it, which name their interpreter by path.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::Cache;
use crate::process::run_child;

/// Returns the interpreter of an environment with these packages (the text of a requirements file),
/// making it when it is missing; `what` names them while that takes.
///
/// # Errors
/// When there is no Python with venv, or the packages cannot be fetched.
pub fn python(cache: &Cache, what: &str, requirements: &str) -> Result<PathBuf> {
    let version = Command::new("python3").arg("--version").output();
    let version = version.context("there is no python3; install python3 and python3-venv")?;
    let version = String::from_utf8_lossy(&version.stdout).into_owned();
    let folder = cache.get("python", &[&version, requirements], what, |folder| {
        let log = cache.log("python");
        run(Command::new("python3").args(["-m", "venv"]).arg(folder), &log)?;
        let list = folder.join("requirements.txt");
        std::fs::write(&list, requirements)
            .with_context(|| format!("cannot write {}", list.display()))?;
        let mut pip = Command::new(folder.join(INTERPRETER));
        // What is imported is compiled then; most never is.
        pip.args(["-m", "pip", "install", "--no-compile", "--no-input"]);
        pip.arg("--disable-pip-version-check");
        run(pip.arg("--requirement").arg(&list), &log)
    })?;
    Ok(folder.join(INTERPRETER))
}

const INTERPRETER: &str = "bin/python3";

fn run(command: &mut Command, log: &Path) -> Result<()> {
    let out =
        std::fs::File::create(log).with_context(|| format!("cannot write {}", log.display()))?;
    let err = out.try_clone().context("cannot share the log")?;
    let status = run_child(command.stdout(out).stderr(err))?;
    let text = std::fs::read_to_string(log).unwrap_or_default();
    ensure!(status.success(), "{}", crate::last_lines(&text, 10));
    Ok(())
}
