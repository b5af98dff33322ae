// SPDX-License-Identifier: MIT OR Apache-2.0
//! The Debian package of the kernel module's sources, which DKMS builds for each kernel.
//!
//! The stage `dkms` of `./x test` installs it, and compares what it builds with what guests test.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use testbed::{Cache, Kernel};

use super::{deb, stage};
use crate::{modules, repo};

/// The module's name for DKMS, as in `kmod/dkms.conf`.
const NAME: &str = "turbolane_trap";

/// The maintainer's scripts.
const SCRIPTS: [&str; 2] = ["postinst", "prerm"];

/// Packs the sources; the file's path.
pub(super) fn pack(work: &Path, version: &str) -> Result<PathBuf> {
    let tree = work.join("dkms");
    stage::remove(&tree)?;
    let sources = tree.join(format!("usr/src/{NAME}-{version}"));
    let kmod = repo::root().join("kmod");
    // Those that git knows: a build leaves others beside them. The tests' modules are not shipped.
    let listed = repo::output("git", &["ls-files", "kmod"])?;
    for file in listed.lines().filter_map(|file| file.strip_prefix("kmod/")) {
        if !file.starts_with("test/") {
            stage::copy(&kmod.join(file), &sources.join(file))?;
        }
    }
    let copyright = repo::root().join("dist/deb/copyright");
    stage::copy(&copyright, &tree.join("usr/share/doc/turbolane-dkms/copyright"))?;
    let name = format!("turbolane-dkms_{version}_all.deb");
    deb::finish(&tree, &repo::root().join("dist/dkms"), &SCRIPTS, version, &work.join(name))
}

/// Installs the package, has DKMS build the module, and says what differs from the one that guests
/// test: nothing, if the code is the same. The package is purged, and leaves nothing.
pub(crate) fn compare(cache: &Cache, kernel: &Kernel) -> Result<Option<String>> {
    let module = format!("{NAME}.ko");
    let named = |path: &PathBuf| path.file_name().is_some_and(|name| *name == *module);
    let ours = modules::build(cache, kernel)?.into_iter().find(named);
    let ours = ours.context("no module was built")?;
    let work = repo::logs()?.join(format!("dkms-{}", kernel.release));
    fs::create_dir_all(&work).with_context(|| format!("cannot make {}", work.display()))?;
    let version = env!("CARGO_PKG_VERSION");
    let deb = pack(&work, version)?;
    let theirs = testbed::build_by_dkms(cache, kernel, &deb, (NAME, version))?;
    let Some(theirs) = theirs.into_iter().find(named) else {
        return Ok(Some(format!("DKMS made no {module}")));
    };
    for section in [".text", ".modinfo", ".rodata"] {
        let [ours, theirs] =
            [&ours, &theirs].map(|module| modules::contents(module, section, &work));
        if ours? != theirs? {
            return Ok(Some(format!("section {section} of the module by DKMS differs")));
        }
    }
    Ok(None)
}
