// SPDX-License-Identifier: MIT OR Apache-2.0
//! A Debian root that has seen nothing of this project: what its package is installed into.
//!
//! The root is an entry of the cache and never changes; who installs something takes a copy.

use std::path::PathBuf;

use anyhow::Result;

use crate::cache::Cache;
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
        // Complete, as on a user's machine: where pages are left out, dpkg changes its lists of
        // other packages.
        debian::install_without(&[], &[suite], &packages, root, &cache.log("fresh-root"))
    })
}
