// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the tests of preloaded libraries have in common: where the library is, and programs in C
//! that know nothing of it. Each crate's tests include this file.

#![allow(dead_code)] // each test program uses a part

use std::path::{Path, PathBuf};
use std::process::Command;

/// A library: Cargo builds it beside the tests.
pub fn library(name: &str) -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let built = test.parent().unwrap().join(name);
    assert!(built.exists(), "{} is not built", built.display());
    built
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Whether there is a compiler; said loudly if not.
pub fn has_compiler() -> bool {
    let started = Command::new("cc").arg("--version").output();
    if let Err(error) = &started {
        println!("skipped (77): cc cannot be started: {error}");
    }
    started.is_ok()
}

/// Builds a program or library from a source in the crate's tests.
pub fn cc(source: &Path, built: &Path, arguments: &[&str]) {
    let mut cc = Command::new("cc");
    cc.args(["-O1", "-Wall", "-Werror", "-pthread", "-o"]).arg(built).arg(source);
    let done = cc.args(arguments).output().unwrap();
    assert!(done.status.success(), "{}", text(&done.stderr));
}
