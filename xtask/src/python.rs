// SPDX-License-Identifier: MIT OR Apache-2.0
//! The Python package (crates/python): builds its wheel, tests and measures it as users get it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use testbed::Cache;

use crate::lab::Lab;
use crate::repo;
use crate::results::{BenchResult, Better, Outside, exact};

/// The largest wheel, in units of 1,000,000 bytes.
const WHEEL_MB_MAX: f64 = 15.0;

/// What its tests and benchmarks need.
pub(crate) struct Python {
    /// The interpreter of an environment with all libraries.
    interpreter: PathBuf,
    wheel: PathBuf,
    /// The wheel, unpacked: the environment is shared between versions and stays as it is.
    site: PathBuf,
}

/// What came of the tests.
pub(crate) struct Checked {
    pub(crate) passed: u32,
    pub(crate) failed: u32,
    pub(crate) skipped: u32,
    pub(crate) note: String,
    pub(crate) details: String,
}

fn folder() -> PathBuf {
    repo::root().join("crates/python")
}

/// The interpreter of an environment for tests; an error where none can be made, e.g. without
/// network.
pub(crate) fn interpreter() -> Result<PathBuf> {
    testbed::python(&Cache::open()?, "Python packages for tests (350 MB)", &requirements()?)
}

/// The interpreter of an environment that can build the wheel and nothing else.
pub(crate) fn builder() -> Result<PathBuf> {
    let all = requirements()?;
    let maturin = all.lines().find(|line| line.starts_with("maturin=="));
    let maturin = maturin.context("crates/python/requirements.txt has no maturin")?;
    testbed::python(&Cache::open()?, "maturin (12 MB)", maturin)
}

fn requirements() -> Result<String> {
    let path = folder().join("requirements.txt");
    fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))
}

/// Builds the wheel.
pub(crate) fn wheel(interpreter: &Path) -> Result<PathBuf> {
    let out = repo::target().join("package");
    let is_ours = |path: &Path| path.extension().is_some_and(|extension| extension == "whl");
    for old in fs::read_dir(&out).into_iter().flatten().flatten() {
        if is_ours(&old.path()) {
            fs::remove_file(old.path()).context("cannot remove an old wheel")?;
        }
    }
    let mut maturin = Command::new(interpreter.with_file_name("maturin"));
    maturin.args(["build", "--release", "--interpreter"]).arg(interpreter).arg("--out").arg(&out);
    maturin.arg("--target-dir").arg(repo::target()).current_dir(folder());
    let done = repo::logged(&mut maturin, "wheel")?;
    ensure!(done.success, "no wheel was built:\n{}", testbed::last_lines(&done.text, 20));
    let built = fs::read_dir(&out).context("cannot list wheels")?.flatten();
    built.map(|file| file.path()).find(|path| is_ours(path)).context("maturin built no wheel")
}

impl Python {
    /// Builds the wheel and unpacks it.
    pub(crate) fn prepare(interpreter: PathBuf) -> Result<Self> {
        let (wheel, site) = (wheel(&interpreter)?, repo::target().join("package/site"));
        if site.exists() {
            fs::remove_dir_all(&site).context("cannot remove the last wheel's files")?;
        }
        let mut pip = Command::new(&interpreter);
        pip.args(["-m", "pip", "install", "--no-deps", "--no-input", "--quiet"]);
        pip.arg("--disable-pip-version-check").arg("--target").arg(&site).arg(&wheel);
        let done = repo::logged(&mut pip, "wheel-install")?;
        ensure!(done.success, "the wheel does not install:\n{}", done.text);
        Ok(Python { interpreter, wheel, site })
    }

    /// Python with the package, started in a folder where no sources hide it.
    fn command(&self) -> Command {
        let mut command = Command::new(&self.interpreter);
        command.env("PYTHONPATH", &self.site).env("MYPYPATH", &self.site);
        // What is imported is compiled once, and not beside the sources.
        let compiled = repo::target().join("package/pycache");
        command.env("PYTHONPYCACHEPREFIX", compiled).env_remove("PYTHONDONTWRITEBYTECODE");
        command.env("RAY_USAGE_STATS_ENABLED", "0");
        command.current_dir(folder().join("tests"));
        command
    }

    fn wheel_mb(&self) -> Result<f64> {
        let meta = fs::metadata(&self.wheel).context("the wheel is gone")?;
        Ok(meta.len() as f64 / 1e6)
    }

    /// Style, types and tests; `command` is the program that figures are compared with.
    pub(crate) fn check(&self, command: &Path) -> Result<Checked> {
        let mut details = String::new();
        for (what, args) in [("format", ["format", "--check"]), ("style", ["check", "--quiet"])] {
            let mut ruff = self.command();
            ruff.args(["-m", "ruff"]).args(args).arg("--no-cache").arg(folder());
            let done = repo::logged(&mut ruff, &format!("python-{what}"))?;
            if !done.success {
                details += &done.text;
            }
        }
        let mut pytest = self.command();
        pytest.args(["-m", "pytest", "-q", "-n", "2", "--dist", "worksteal"]);
        pytest.args(["-p", "no:cacheprovider"]).env("TURBOLANE", command);
        let done = repo::logged(&mut pytest, "python")?;
        let (passed, mut failed, skipped) = counts(&done.text);
        if !done.success {
            details += &testbed::last_lines(&done.text, 80);
        }
        let size = self.wheel_mb()?;
        if size > WHEEL_MB_MAX {
            details += &format!("the wheel has {size:.1} MB, {WHEEL_MB_MAX} are the most\n");
        }
        failed += u32::from(failed == 0 && !details.is_empty());
        let note = format!("{passed} passed, wheel {size:.1} MB");
        Ok(Checked { passed, failed, skipped, note, details })
    }
}

/// Passed, failed and skipped of pytest's last line.
fn counts(text: &str) -> (u32, u32, u32) {
    let line = text.lines().rfind(|line| line.contains(" in ")).unwrap_or_default();
    let words: Vec<&str> = line.split([' ', ',']).filter(|word| !word.is_empty()).collect();
    let count = |name: &str| {
        let pairs = words.windows(2).filter(|pair| pair[1].starts_with(name));
        pairs.filter_map(|pair| pair[0].parse::<u32>().ok()).sum()
    };
    (count("passed"), count("failed") + count("error"), count("skipped"))
}

/// What `./x bench predict` measures.
pub(crate) const OUTSIDE: [Outside; 1] = [Outside { group: "predict", name: "python", measure }];

fn measure(_: &Lab) -> Result<Vec<BenchResult>> {
    let python = Python::prepare(interpreter()?)?;
    let mut command = python.command();
    command.arg(folder().join("bench/predict.py"));
    let done = repo::logged(&mut command, "bench-python")?;
    ensure!(done.success, "it failed:\n{}", testbed::last_lines(&done.text, 30));
    let line = done.text.lines().rfind(|line| line.starts_with('[')).context("no results")?;
    let mut results: Vec<BenchResult> =
        serde_json::from_str(line).context("these are not results")?;
    results.push(exact("python.wheel_mb", python.wheel_mb()?, "MB", 1, Better::Lower));
    Ok(results)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pytests_last_line_is_counted() {
        let line = "..F\n== short test summary info ==\n1 failed, 50 passed, 2 skipped in 9.1s\n";
        assert_eq!(counts(line), (50, 1, 2));
        assert_eq!(counts("1 error in 0.07s"), (0, 1, 0));
        assert_eq!(counts("Segmentation fault"), (0, 0, 0));
    }
}
