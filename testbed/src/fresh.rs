// SPDX-License-Identifier: MIT OR Apache-2.0
//! A Debian root that has seen nothing of this project: what its package is installed into.
//!
//! The root is an entry of the cache and never changes; who installs something takes a copy.

use std::path::PathBuf;

use anyhow::{Result, ensure};

use crate::cache::{self, Cache};
use crate::debian;
use crate::versions::Versions;

/// Raised when the method by which the root is made changes, so that old ones are rebuilt.
const RECIPE: &str = "2";

/// Returns the root, making it when it is missing. Needs root for that.
///
/// # Errors
/// When it cannot be made.
pub fn fresh_root(cache: &Cache) -> Result<PathBuf> {
    let pins = Versions::pinned();
    let (suite, packages) = (pins.guest.suite.as_str(), pins.fresh.packages.join(","));
    let what = format!("root for the package's test (Debian {suite}, about a minute)");
    cache.get("fresh-root", &[RECIPE, suite, &packages], &what, |root| {
        // SAFETY: geteuid takes nothing and cannot fail.
        let is_root = unsafe { libc::geteuid() } == 0;
        ensure!(is_root, "only root can make a Debian root folder; run it as root once");
        // Complete, as on a user's machine: where pages are left out, dpkg changes its lists of other packages.
        let log = cache.log("fresh-root");
        let installed = debian::install_without(&[], &[suite], &packages, root, &log);
        if installed.is_err() {
            cache::remove(root)?;
        }
        installed
    })
}
