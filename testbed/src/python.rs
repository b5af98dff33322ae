// SPDX-License-Identifier: MIT OR Apache-2.0
//! A Python of our own for the Python package's tests: a virtual environment with what they need.
//!
//! It is built under one name and used under another, so that only its interpreter may be called
//! (`python -m pip`), not the scripts beside it, which name their interpreter by path.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result};

use crate::Cache;
use crate::process::run_logged;

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
        run_logged(Command::new("python3").args(["-m", "venv"]).arg(folder), &log)?;
        let list = folder.join("requirements.txt");
        std::fs::write(&list, requirements)
            .with_context(|| format!("cannot write {}", list.display()))?;
        let mut pip = Command::new(folder.join(INTERPRETER));
        // What is imported is compiled then; most never is.
        pip.args(["-m", "pip", "install", "--no-compile", "--no-input"]);
        pip.arg("--disable-pip-version-check");
        run_logged(pip.arg("--requirement").arg(&list), &log)
    })?;
    Ok(folder.join(INTERPRETER))
}

const INTERPRETER: &str = "bin/python3";
