// SPDX-License-Identifier: MIT OR Apache-2.0
//! `./x package`: what users install, as a Debian package, an RPM package and a tarball of the
//! command.
//!
//! The programs are those of the release build, which the guests' tests run too, without their
//! symbols: what is shipped is what was tested. [`stage`] lays them out as they are on a machine,
//! [`deb`], [`rpm`] and [`tarball`] pack that; [`dkms`] packs the module's sources; [`purge`]
//! installs the package on a guest with systemd and compares the machine before and after,
//! [`cycle`] does that with the RPM package in a root of its own, [`answer`] measures how soon it
//! answers there.

mod answer;
mod cycle;
mod deb;
mod dkms;
mod linked;
mod purge;
mod rpm;
mod stage;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, ensure};

pub(crate) use self::dkms::compare as compare_dkms;
use crate::results::{BenchResult, Better, Outside, exact};
use crate::{python, repo};

/// The most that the command may have, in units of 1,000,000 bytes, like all sizes of packages.
const BINARY_MB_MAX: f64 = 15.0;

/// What was built.
pub(crate) struct Built {
    pub(crate) deb: PathBuf,
    dkms: PathBuf,
    /// None where there is no rpmbuild.
    rpm: Option<PathBuf>,
    tarball: PathBuf,
    /// Where their files lie as on a machine.
    root: PathBuf,
    /// The command, stripped.
    command: PathBuf,
}

/// Builds them and prints where they are and how large.
pub(crate) fn main() -> Result<ExitCode> {
    let built = build()?;
    for path in [&built.deb, &built.dkms, &built.tarball].into_iter().chain(&built.rpm) {
        println!("{:>6.1} MB  {}", mb(size(path)?), path.display());
    }
    if built.rpm.is_none() {
        eprintln!("no RPM package: install rpmbuild (package rpm) for one");
    }
    match python::builder().and_then(|interpreter| python::wheel(&interpreter)) {
        Ok(wheel) => println!("{:>6.1} MB  {}", mb(size(&wheel)?), wheel.display()),
        Err(error) => eprintln!("no wheel for Python: {error:#}"),
    }
    println!("{:>6.1} MB  of which the command, installed", built.binary_mb()?);
    ensure!(built.fits()?, "the command is larger than {BINARY_MB_MAX} MB");
    Ok(ExitCode::SUCCESS)
}

impl Built {
    fn binary_mb(&self) -> Result<f64> {
        Ok(mb(size(&self.command)?))
    }

    fn fits(&self) -> Result<bool> {
        Ok(self.binary_mb()? <= BINARY_MB_MAX)
    }
}

/// Builds the packages and the tarball.
pub(crate) fn build() -> Result<Built> {
    let work = repo::target().join("package");
    fs::create_dir_all(&work).with_context(|| format!("cannot make {}", work.display()))?;
    let root = work.join("root");
    stage::stage(&root)?;
    let version = env!("CARGO_PKG_VERSION");
    let deb = deb::pack(&root, &work, version)?;
    let dkms = dkms::pack(&work, version)?;
    let rpm = if rpm::is_possible() { Some(rpm::pack(&root, &work, version)?) } else { None };
    let tarball = tarball(&root, &work, version)?;
    let command = root.join(stage::COMMAND);
    Ok(Built { deb, dkms, rpm, tarball, root, command })
}

/// The stage `package` of `./x test`: what it found, and whether all is well.
pub(crate) fn check() -> Result<(bool, String, String)> {
    let built = build()?;
    let mut found = purge::differences(&built.deb)?;
    found.extend(alone(&built.command)?);
    found.extend(linked::check(&built.root)?);
    if let Some(rpm) = &built.rpm {
        found.extend(rpm::check(rpm)?);
    }
    let note =
        format!("command {:.1} MB, {} differences after purge", built.binary_mb()?, found.len());
    Ok((built.fits()? && found.is_empty(), note, found.join("\n")))
}

/// Executes the command in a root that has nothing else, no C library and no loader: so it needs
/// none of any distribution's. What does not work, one line each.
fn alone(command: &Path) -> Result<Vec<String>> {
    let root = tempfile::tempdir().context("cannot make a folder")?;
    fs::copy(command, root.path().join("turbolane")).context("cannot copy the command")?;
    let mut found = Vec::new();
    for (what, answer) in [("--version", "turbolane"), ("sim", "thesis-nginx")] {
        let mut look = Command::new("chroot");
        look.arg(root.path()).args(["/turbolane", what]);
        let done = repo::logged(&mut look, "alone")?;
        if !done.success || !done.text.contains(answer) {
            found.push(format!("turbolane {what} in an empty root: {}", done.text.trim()));
        }
    }
    Ok(found)
}

/// What `./x bench ship` measures.
pub(crate) const OUTSIDE: [Outside; 1] =
    [Outside { group: "ship", name: "package", measure: |_| measure() }];

fn measure() -> Result<Vec<BenchResult>> {
    let built = build()?;
    let differences = purge::differences(&built.deb)?;
    differences.iter().for_each(|difference| eprintln!("after purge: {difference}"));
    let result = |name, value, unit| exact(name, value, unit, 1, Better::Lower);
    let mut results = vec![
        result("ship.binary_mb", built.binary_mb()?, "MB"),
        result("ship.purge_differences", differences.len() as f64, "differences"),
    ];
    results.extend(answer::measure(&built.deb)?);
    Ok(results)
}

/// The command with its pages, completions, unit and an example of its settings, for machines
/// without a package.
fn tarball(root: &Path, work: &Path, version: &str) -> Result<PathBuf> {
    let name = format!("turbolane-{version}-x86_64-linux");
    let packed = work.join(format!("{name}.tar.gz"));
    let mut tar = Command::new("tar");
    tar.args(["--create", "--gzip", "--sort=name", "--owner=0", "--group=0", "--numeric-owner"]);
    tar.arg(format!("--mtime=@{}", commit_time()?)).arg(format!("--transform=s,^usr,{name},"));
    tar.arg("--file").arg(&packed).arg("--directory").arg(root).arg("--exclude=*.3.gz");
    tar.args([stage::COMMAND, "usr/share", stage::UNIT]);
    let done = repo::logged(&mut tar, "tarball")?;
    ensure!(done.success, "tar failed: {}", done.text);
    Ok(packed)
}

/// When the commit was made: the same sources give the same package.
fn commit_time() -> Result<String> {
    repo::output("git", &["log", "-1", "--format=%ct"])
}

fn size(path: &Path) -> Result<u64> {
    Ok(path.metadata().with_context(|| format!("cannot find {}", path.display()))?.len())
}

fn mb(bytes: u64) -> f64 {
    bytes as f64 / 1e6
}
