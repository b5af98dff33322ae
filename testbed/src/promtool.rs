// SPDX-License-Identifier: MIT OR Apache-2.0
//! Prometheus's own checker of metrics and alert rules.
//!
//! It is part of Debian's package `prometheus`, whose installation would start a server on this
//! machine. So the package is only unpacked. It is that of the oldest release that the project
//! builds on: a program runs with a newer C library, and not with an older one.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result};

use crate::apt::{self, Apt};
use crate::cache::{self, Cache};
use crate::versions::Versions;

/// The package's program.
const PROGRAM: &str = "usr/bin/promtool";

/// Returns `promtool`, fetching it when it is missing.
///
/// # Errors
/// When it cannot be fetched.
pub fn promtool(cache: &Cache) -> Result<PathBuf> {
    let suite = Versions::pinned().promtool.suite;
    let what = format!("promtool (Debian {suite}, 19 MB)");
    cache.get("promtool", &[&suite], &what, |program| {
        let folder = program.with_extension("unpacked");
        cache::remove(&folder)?;
        fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
        let package = Apt::update(cache, &suite)?.download("prometheus", &folder)?;
        apt::unpack(&package, &folder, &cache.log("promtool"))?;
        // A copy has the time of now; the cache would remove a file of the package's age as unused.
        fs::copy(folder.join(PROGRAM), program).context("the package has no promtool")?;
        cache::remove(&folder)
    })
}
