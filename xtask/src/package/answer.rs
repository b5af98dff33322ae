// SPDX-License-Identifier: MIT OR Apache-2.0
//! How long it takes from the package to the first answer: `turbolane advise` in a fresh root of
//! each Debian release that the testbed has.
//!
//! What a package manager would download first is not counted: the roots have the packages that
//! ours depends on. Nor is the copy of the root.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, ensure};

use super::stage;
use crate::repo;
use crate::results::{BenchResult, Better};

/// Installations into each root.
const REPETITIONS: usize = 3;

/// `$1` root, `$2` folder of the package, `$3` the package.
const SESSION: &str = r#"mount -t proc proc "$1/proc"
mount -t sysfs -o ro sysfs "$1/sys"
mount -t tmpfs tmpfs "$1/tmp"
mount --rbind /dev "$1/dev"
mount --bind "$2" "$1/mnt"
exec chroot "$1" sh -euc 'dpkg --install "/mnt/$1"; turbolane advise' sh "$3""#;

/// `ship.install_to_answer_s.SUITE` of each release.
pub(super) fn measure(deb: &Path) -> Result<Vec<BenchResult>> {
    testbed::fresh_suites().iter().map(|suite| of_suite(deb, suite)).collect()
}

fn of_suite(deb: &Path, suite: &str) -> Result<BenchResult> {
    let mut seconds = (0..REPETITIONS).map(|_| once(deb, suite)).collect::<Result<Vec<f64>>>()?;
    seconds.sort_by(f64::total_cmp);
    Ok(BenchResult {
        name: format!("ship.install_to_answer_s.{suite}"),
        value: seconds[REPETITIONS / 2],
        unit: "s".into(),
        better: Better::Lower,
        n: REPETITIONS as u64,
        min: seconds[0],
        max: seconds[REPETITIONS - 1],
        baseline: None,
    })
}

fn once(deb: &Path, suite: &str) -> Result<f64> {
    let root = copy_of_root(suite)?;
    let folder = deb.parent().context("the package is in a folder")?;
    let mut session = Command::new("unshare");
    session.args(["--mount", "--propagation", "private", "--pid", "--fork", "sh", "-euc", SESSION]);
    session.arg("sh").arg(&root).arg(folder).arg(deb.file_name().unwrap_or_default());
    let start = Instant::now();
    let done =
        repo::logged(session.env("LC_ALL", "C").env("PATH", "/usr/sbin:/usr/bin"), "answer")?;
    let seconds = start.elapsed().as_secs_f64();
    // Nothing is mounted there any more: the mounts were in the session's namespace.
    stage::remove(&root)?;
    ensure!(
        done.success && done.text.contains("Worth it:"),
        "the package gives no answer in a fresh Debian {suite}:\n{}",
        testbed::last_lines(&done.text, 20)
    );
    Ok(seconds)
}

/// A copy of the fresh root of a Debian release.
fn copy_of_root(suite: &str) -> Result<PathBuf> {
    let work = repo::target().join("package/fresh");
    stage::remove(&work)?;
    let base = testbed::fresh_root(&testbed::Cache::open()?, suite)?;
    stage::run(Command::new("cp").args(["--archive", "--reflink=auto"]).arg(base).arg(&work))?;
    Ok(work)
}
