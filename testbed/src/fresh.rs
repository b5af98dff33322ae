// SPDX-License-Identifier: MIT OR Apache-2.0
//! Debian roots that have seen nothing of this project: what its package is installed into.
//!
//! A root is an entry of the cache and never changes; code that installs something takes a copy.

use std::path::PathBuf;

use anyhow::{Context, Result};

use crate::cache::Cache;
use crate::debian;
use crate::versions::Versions;

/// Raised when the method by which a root is made changes, so that old ones are rebuilt.
const RECIPE: &str = "2";

/// The Debian releases of which there are roots, the guests' one first.
#[must_use]
pub fn fresh_suites() -> Vec<String> {
    Versions::pinned().fresh.into_iter().map(|root| root.suite).collect()
}

/// Returns the root of a Debian release, one of [`fresh_suites`]; makes it when it is missing.
/// Needs root for that.
///
/// # Errors
/// When it cannot be made, or there is none of this release.
pub fn fresh_root(cache: &Cache, suite: &str) -> Result<PathBuf> {
    let pins = Versions::pinned().fresh;
    let pins = pins.iter().find(|root| root.suite == suite);
    let packages = pins.with_context(|| format!("there is no root of Debian {suite}"))?;
    let packages = packages.packages.join(",");
    let what = format!("root for the package's test (Debian {suite}, about a minute)");
    cache.get("fresh-root", &[RECIPE, suite, &packages], &what, |root| {
        // Complete, as on a user's machine: where pages are left out, dpkg changes its lists of
        // other packages.
        debian::install_without(&[], &[suite], &packages, root, &cache.log("fresh-root"))
    })
}
