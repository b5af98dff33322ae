// SPDX-License-Identifier: MIT OR Apache-2.0
//! Other people's schedulers, to compare ours with. Built from their published
//! sources when a benchmark asks for one, and never part of the guest image.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::cache::{self, Cache};
use crate::process;
use crate::versions::Versions;

/// Returns the program of the peer with this name, building it when it is
/// missing, which takes several minutes.
///
/// # Errors
/// When there is no such peer, or its build fails.
pub fn peer(cache: &Cache, name: &str) -> Result<PathBuf> {
    let pins = Versions::pinned().peers;
    let Some(version) = pins.get(name) else {
        let known: Vec<&str> = pins.keys().map(String::as_str).collect();
        bail!("no peer is called {name}; known: {}", known.join(" "));
    };
    let what = format!("peer {name} {version} (several minutes)");
    cache.get(&format!("peer-{name}"), &[version], &what, |program| {
        install(cache, name, version, program)
    })
}

/// Builds a crate's program with cargo. Its build folder is half a gigabyte and
/// of no further use.
fn install(cache: &Cache, name: &str, version: &str, program: &Path) -> Result<()> {
    let root = program.with_extension("build");
    cache::remove(&root)?;
    let mut command = Command::new("cargo");
    command
        .args(["install", name, "--version", version, "--locked", "--root"])
        .arg(&root)
        // Not the folder of the build that we may be part of.
        .env("CARGO_TARGET_DIR", root.join("target"))
        .env("BPF_CLANG", "clang-19");
    let built =
        process::run_logged(&mut command, &cache.log(&format!("peer-{name}"))).and_then(|()| {
            let made = root.join("bin").join(name);
            fs::copy(&made, program).with_context(|| format!("no program {}", made.display()))
        });
    built.map(drop).and(cache::remove(&root))
}
