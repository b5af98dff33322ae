// SPDX-License-Identifier: MIT OR Apache-2.0
//! The guests' kernel: fetched, unpacked, and pinned in one place.

use std::cmp::Ordering;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::apt::{self, Apt};
use crate::cache::Cache;
use crate::{versions, vmlinux};

const STEP: &str = "kernel";

/// Raised when the way an entry is made changes, so that old ones are rebuilt.
const RECIPE: &str = "3";

/// Names of two files of a kernel.
const PACKED: &str = "vmlinuz";
const CONFIG: &str = "config";

/// A kernel in the cache.
#[derive(Debug, Clone)]
pub struct Kernel {
    /// As `uname -r` prints it in the guest.
    pub release: String,
    /// The Debian suite it is from.
    pub(crate) suite: String,
    dir: PathBuf,
}

impl Kernel {
    /// The folder that becomes `/usr/lib/modules/RELEASE`.
    #[must_use]
    pub fn modules(&self) -> PathBuf {
        self.dir.join("usr/lib/modules").join(&self.release)
    }

    /// The kernel as an uncompressed ELF file with its type information. Booted
    /// as it is: unpacking `vmlinuz` under emulation would take 3 s of a boot.
    #[must_use]
    pub fn image(&self) -> PathBuf {
        self.dir.join("vmlinux")
    }

    /// The configuration it was built with.
    pub(crate) fn config(&self) -> PathBuf {
        self.dir.join(CONFIG)
    }

    /// One compressed module, looked up by name.
    pub(crate) fn module(&self, name: &str) -> Result<PathBuf> {
        let file = format!("{name}.ko.xz");
        find(&self.modules().join("kernel"), &file)
            .with_context(|| format!("the package of kernel {} has no module {file}", self.release))
    }
}

fn find(dir: &Path, name: &str) -> Option<PathBuf> {
    fs::read_dir(dir).ok()?.find_map(|entry| {
        let path = entry.ok()?.path();
        if path.is_dir() { find(&path, name) } else { path.ends_with(name).then_some(path) }
    })
}

/// Returns the pinned kernel, or, when the mirror has dropped it, the newest
/// one of the same kind.
pub(crate) fn prepare(cache: &Cache, pins: &versions::Kernel) -> Result<Kernel> {
    let pinned = &pins.release;
    let find = |release: &str| cache.find(STEP, &[RECIPE, release]);
    if let Some(entry) = find(pinned) {
        return Ok(kernel(pins, pinned, entry));
    }
    let substitute = cache.root().join(format!("substitute-for-{pinned}"));
    if let Ok(release) = fs::read_to_string(&substitute)
        && let Some(entry) = find(&release)
    {
        say_substituted(pinned, &release);
        return Ok(kernel(pins, &release, entry));
    }
    let apt = Apt::update(cache, &pins.suite)?;
    let offered = offered(&apt, pins)?;
    let release = choose(pinned, &offered).with_context(|| {
        format!(
            "the mirror has no package {}-{}*{} in {}; adjust testbed/versions.toml",
            pins.packages[0], pins.fallback_prefix, pins.fallback_flavour, pins.suite
        )
    })?;
    let what = format!("kernel {release}");
    let entry =
        cache.get(STEP, &[RECIPE, release], &what, |dir| fetch(cache, &apt, pins, release, dir))?;
    if release != pinned {
        say_substituted(pinned, release);
        fs::write(&substitute, release).context("cannot note the substituted kernel")?;
    }
    Ok(kernel(pins, release, entry))
}

fn kernel(pins: &versions::Kernel, release: &str, dir: PathBuf) -> Kernel {
    Kernel { release: release.to_owned(), suite: pins.suite.clone(), dir }
}

fn say_substituted(pinned: &str, release: &str) {
    eprintln!(
        "WARNING: the pinned kernel {pinned} is no longer on the mirror; using {release}.\n\
         WARNING: change `release` in testbed/versions.toml if the tests pass with it."
    );
}

fn fetch(
    cache: &Cache,
    apt: &Apt,
    pins: &versions::Kernel,
    release: &str,
    dir: &Path,
) -> Result<()> {
    let debs = dir.join("debs");
    fs::create_dir_all(&debs).with_context(|| format!("cannot make {}", debs.display()))?;
    for part in &pins.packages {
        let deb = apt.download(&format!("{part}-{release}"), &debs)?;
        apt::unpack(&deb, dir, &cache.log("kernel"))?;
    }
    gather(dir, release)?;
    vmlinux::extract(&dir.join(PACKED), &dir.join("vmlinux"))?;
    fs::remove_dir_all(&debs).context("cannot remove the unpacked packages")
}

/// Debian has two of the files beside the modules, or, until 6.12, in `/boot`.
fn gather(dir: &Path, release: &str) -> Result<()> {
    for name in [PACKED, CONFIG] {
        let old = dir.join("boot").join(format!("{name}-{release}"));
        let new = dir.join("usr/lib/modules").join(release).join(name);
        let file = if old.exists() { old } else { new };
        fs::rename(&file, dir.join(name))
            .with_context(|| format!("the packages of kernel {release} have no {name}"))?;
    }
    Ok(())
}

/// The releases of our flavour for which all packages are offered.
fn offered(apt: &Apt, pins: &versions::Kernel) -> Result<Vec<String>> {
    let releases = |part: &str| -> Result<Vec<String>> {
        let start = format!("{part}-");
        let names = apt.names(&format!("^{start}"))?;
        Ok(names
            .iter()
            .filter_map(|name| name.strip_prefix(&start))
            .filter(|release| {
                release.starts_with(&pins.fallback_prefix)
                    && release.ends_with(&pins.fallback_flavour)
            })
            .map(str::to_owned)
            .collect())
    };
    let mut complete = releases(&pins.packages[0])?;
    for part in &pins.packages[1..] {
        let offered = releases(part)?;
        complete.retain(|release| offered.contains(release));
    }
    Ok(complete)
}

fn choose<'a>(pinned: &str, offered: &'a [String]) -> Option<&'a str> {
    let newest = || offered.iter().max_by(|a, b| compare(a, b));
    let exact = offered.iter().find(|release| *release == pinned);
    exact.or_else(newest).map(String::as_str)
}

/// Compares releases by their numbers: 7.10.1 is newer than 7.9.12.
fn compare(a: &str, b: &str) -> Ordering {
    let numbers = |text: &str| -> Vec<u64> {
        text.split(|c: char| !c.is_ascii_digit()).filter_map(|digits| digits.parse().ok()).collect()
    };
    numbers(a).cmp(&numbers(b))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owned(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn the_pinned_release_wins_while_it_exists() {
        let offered = owned(&["7.3.4+deb13", "7.10.1+deb13"]);
        assert_eq!(choose("7.3.4+deb13", &offered), Some("7.3.4+deb13"));
    }

    #[test]
    fn else_the_newest_by_number_not_by_letter() {
        let offered = owned(&["7.9.12+deb13", "7.10.1+deb13", "7.10.0+deb13"]);
        assert_eq!(choose("7.3.4+deb13", &offered), Some("7.10.1+deb13"));
        assert_eq!(choose("7.3.4+deb13", &[]), None);
    }
}
