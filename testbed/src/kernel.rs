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
const RECIPE: &str = "2";

/// A kernel in the cache.
#[derive(Debug, Clone)]
pub struct Kernel {
    /// As `uname -r` prints it in the guest.
    pub release: String,
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
    let entry_of = |release: &str| cache.entry(STEP, &[RECIPE, release]);
    let entry = entry_of(pinned);
    if entry.exists() {
        return Ok(kernel(pinned, entry));
    }
    let substitute = cache.root().join(format!("substitute-for-{pinned}"));
    if let Ok(release) = fs::read_to_string(&substitute) {
        let entry = entry_of(&release);
        if entry.exists() {
            say_substituted(pinned, &release);
            return Ok(kernel(&release, entry));
        }
    }
    let apt = Apt::update(cache, &pins.suite)?;
    let offered = offered(&apt, pins)?;
    let release = choose(pinned, &offered).with_context(|| {
        format!(
            "the mirror has no package linux-binary-{}*{} in {}; adjust testbed/versions.toml",
            pins.fallback_prefix, pins.fallback_flavour, pins.suite
        )
    })?;
    let what = format!("kernel {release}");
    let entry =
        cache.get(STEP, &[RECIPE, release], &what, |dir| fetch(cache, &apt, release, dir))?;
    if release != pinned {
        say_substituted(pinned, release);
        fs::write(&substitute, release).context("cannot note the substituted kernel")?;
    }
    Ok(kernel(release, entry))
}

fn kernel(release: &str, dir: PathBuf) -> Kernel {
    Kernel { release: release.to_owned(), dir }
}

fn say_substituted(pinned: &str, release: &str) {
    eprintln!(
        "WARNING: the pinned kernel {pinned} is no longer on the mirror; using {release}.\n\
         WARNING: change `release` in testbed/versions.toml if the tests pass with it."
    );
}

fn fetch(cache: &Cache, apt: &Apt, release: &str, dir: &Path) -> Result<()> {
    let debs = dir.join("debs");
    fs::create_dir_all(&debs).with_context(|| format!("cannot make {}", debs.display()))?;
    // The image, the modules, the configuration.
    for part in ["linux-binary", "linux-modules", "linux-base"] {
        let deb = apt.download(&format!("{part}-{release}"), &debs)?;
        apt::unpack(&deb, dir, &cache.log("kernel"))?;
    }
    let packed = dir.join("usr/lib/modules").join(release).join("vmlinuz");
    vmlinux::extract(&packed, &dir.join("vmlinux"))?;
    fs::remove_file(&packed).context("cannot remove the packed kernel")?;
    fs::remove_dir_all(&debs).context("cannot remove the unpacked packages")
}

/// The releases of our flavour for which both packages are offered.
fn offered(apt: &Apt, pins: &versions::Kernel) -> Result<Vec<String>> {
    let releases = |part: &str| -> Result<Vec<String>> {
        let start = format!("linux-{part}-");
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
    let modules = releases("modules")?;
    let mut both = releases("binary")?;
    both.retain(|release| modules.contains(release));
    Ok(both)
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
