// SPDX-License-Identifier: MIT OR Apache-2.0
//! The kernel modules of `kmod/`, built for the guests' kernel.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use testbed::{Cache, Kernel};

use crate::repo;

/// Builds them and returns the `.ko` files, stripped of debug information.
///
/// The build writes beside its sources, so it works on a copy. Only changed
/// files are copied again: `make` goes by their times.
pub(crate) fn build(cache: &Cache, kernel: &Kernel) -> Result<Vec<PathBuf>> {
    let work = repo::logs()?.join(format!("kmod-{}", kernel.release));
    copy_changed(&repo::root().join("kmod"), &work)?;
    // A module for tests scores tasks as the scheduler does.
    copy_changed(&repo::root().join("policy"), &work.join("test/policy"))?;
    let modules = testbed::build_modules(cache, kernel, &work)?;
    for module in &modules {
        repo::output("strip", &["--strip-debug", &module.display().to_string()])?;
    }
    Ok(modules)
}

/// The bytes of a section. Writes below `work`.
pub(crate) fn contents(module: &Path, section: &str, work: &Path) -> Result<Vec<u8>> {
    let (from, to) = (module.display().to_string(), work.join("section"));
    let only = format!("--only-section={section}");
    repo::output("objcopy", &["-O", "binary", &only, &from, &to.display().to_string()])?;
    fs::read(&to).with_context(|| format!("cannot read {section} of {from}"))
}

/// Where a module lies in the guest: beside the kernel's own, where
/// `turbolane run --trap` looks for it.
pub(crate) fn place(module: &Path, kernel: &Kernel) -> PathBuf {
    let name = module.file_name().unwrap_or_default();
    Path::new("/usr/lib/modules").join(&kernel.release).join("extra").join(name)
}

fn copy_changed(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to).with_context(|| format!("cannot make {}", to.display()))?;
    let entries = fs::read_dir(from).with_context(|| format!("cannot list {}", from.display()))?;
    for entry in entries {
        let source = entry.with_context(|| format!("cannot list {}", from.display()))?.path();
        let copy = to.join(source.file_name().unwrap_or_default());
        if source.is_dir() {
            copy_changed(&source, &copy)?;
            continue;
        }
        let text =
            fs::read(&source).with_context(|| format!("cannot read {}", source.display()))?;
        if fs::read(&copy).is_ok_and(|old| old == text) {
            continue;
        }
        fs::write(&copy, text).with_context(|| format!("cannot write {}", copy.display()))?;
    }
    Ok(())
}
