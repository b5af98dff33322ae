// SPDX-License-Identifier: MIT OR Apache-2.0
//! Debian packages of another release than this machine's, by a private apt
//! state: the machine's own package lists and sources are never touched.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::cache::Cache;
use crate::{mirror, process};

/// The keys that Debian signs its archive with, from the package
/// `debian-archive-keyring`.
const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

/// A `sources.list` line for one suite of the machine's own mirror.
pub(crate) fn source_line(suite: &str) -> Result<String> {
    Ok(format!("deb [signed-by={KEYRING}] {} {suite} main", mirror::find()?))
}

/// The machine's proxy and certificate settings for downloads, as apt.conf
/// lines: tools that ignore the machine's apt configuration need them.
pub(crate) fn acquire_options() -> Result<Vec<String>> {
    let dump = process::output(Command::new("apt-config").arg("dump"))?;
    Ok(dump
        .lines()
        .filter(|line| {
            ["Acquire::http::", "Acquire::https::"].iter().any(|prefix| line.starts_with(prefix))
                && !line.ends_with("\"\";")
        })
        .map(str::to_owned)
        .collect())
}

/// A private apt state that knows one suite.
pub(crate) struct Apt {
    dir: PathBuf,
    log: PathBuf,
}

impl Apt {
    /// Fetches the package lists of `suite` into the cache.
    pub(crate) fn update(cache: &Cache, suite: &str) -> Result<Self> {
        let dir = cache.root().join("apt").join(suite);
        for sub in ["lists/partial", "cache/archives/partial"] {
            fs::create_dir_all(dir.join(sub))
                .with_context(|| format!("cannot make {}", dir.display()))?;
        }
        let sources = dir.join("sources.list");
        fs::write(&sources, source_line(suite)? + "\n")
            .with_context(|| format!("cannot write {}", sources.display()))?;
        let apt = Self { dir, log: cache.log("apt") };
        process::run_logged(apt.command("apt-get").arg("update"), &apt.log)
            .context("cannot fetch Debian's package lists; is the mirror reachable?")?;
        Ok(apt)
    }

    /// All package names that match a regular expression.
    pub(crate) fn names(&self, regex: &str) -> Result<Vec<String>> {
        let found =
            process::output(self.command("apt-cache").args(["search", "--names-only", regex]))?;
        Ok(found
            .lines()
            .filter_map(|line| line.split_whitespace().next())
            .map(str::to_owned)
            .collect())
    }

    /// Downloads a package into `folder` and returns the file's path.
    pub(crate) fn download(&self, package: &str, folder: &Path) -> Result<PathBuf> {
        process::run_logged(
            self.command("apt-get").args(["download", package]).current_dir(folder),
            &self.log,
        )?;
        let entries =
            fs::read_dir(folder).with_context(|| format!("cannot list {}", folder.display()))?;
        for entry in entries {
            let path = entry.context("cannot list the download")?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            if name.starts_with(&format!("{package}_")) {
                return Ok(path);
            }
        }
        bail!("apt-get reported success but left no {package}_*.deb")
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        for (name, value) in [
            ("Dir::Etc::sourcelist", self.dir.join("sources.list")),
            ("Dir::Etc::sourceparts", PathBuf::from("/dev/null")),
            ("Dir::State::lists", self.dir.join("lists")),
            ("Dir::Cache", self.dir.join("cache")),
        ] {
            command.arg("-o").arg(format!("{name}={}", value.display()));
        }
        // The `_apt` user cannot enter a cache in the home of root.
        command.args(["-o", "APT::Sandbox::User=root"]);
        command.args(["-o", "Acquire::Languages=none", "-o", "APT::Architecture=amd64"]);
        command
    }
}

/// Fetches a file as apt would, with the machine's proxy and certificates, and
/// checks it.
pub(crate) fn fetch(uri: &str, file: &Path, sha256: &str, log: &Path) -> Result<()> {
    process::run_logged(
        Command::new("/usr/lib/apt/apt-helper")
            .args(["-o", "APT::Sandbox::User=root", "download-file", uri])
            .arg(file)
            .arg(format!("SHA256:{sha256}")),
        log,
    )
}

/// Unpacks a package's files into `folder`.
pub(crate) fn unpack(package: &Path, folder: &Path, log: &Path) -> Result<()> {
    process::run_logged(Command::new("dpkg-deb").arg("-x").args([package, folder]), log)
}
