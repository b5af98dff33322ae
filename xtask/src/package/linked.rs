// SPDX-License-Identifier: MIT OR Apache-2.0
//! Programs that find the package's libraries by pkg-config, and by CMake where there is one, link
//! with them and run. Another interface is not taken for ours.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::stage;
use crate::repo;

/// Opens and closes a section: 0 if there is no scheduler too.
const PROGRAM: &str = r#"#include <turbolane.h>
int main(void) { return tl_wide_begin(1) || tl_wide_end(); }
"#;

/// With the version that is asked for in place of @version@.
const PROJECT: &str = r#"cmake_minimum_required(VERSION 3.16)
project(user C)
find_package(turbolane @version@ CONFIG REQUIRED)
foreach(library turbolane hint)
  add_executable(with_${library} user.c)
  target_link_libraries(with_${library} PRIVATE turbolane::${library})
endforeach()
"#;

/// What does not work of the package's files below `root`, one line each.
pub(super) fn check(root: &Path) -> Result<Vec<String>> {
    let user = tempfile::tempdir().context("cannot make a folder")?;
    let user = user.path();
    fs::write(user.join("user.c"), PROGRAM)?;
    let mut found: Vec<String> = by_pkg_config(root, user)?.into_iter().collect();
    if Command::new("cmake").arg("--version").output().is_ok() {
        found.extend(by_cmake(root, user)?);
    }
    Ok(found)
}

fn by_cmake(root: &Path, user: &Path) -> Result<Vec<String>> {
    let mut found = Vec::new();
    let ours = env!("CARGO_PKG_VERSION");
    configure(root, user, ours)?;
    stage::run(Command::new("cmake").arg("--build").arg(user.join("build")))?;
    for program in ["with_turbolane", "with_hint"] {
        found.extend(run(root, &user.join("build").join(program))?);
    }
    let other = "9.0";
    if configure(root, user, other).is_ok() {
        found.push(format!("cmake: {ours} is taken for {other}"));
    }
    Ok(found)
}

fn configure(root: &Path, user: &Path, version: &str) -> Result<()> {
    fs::write(user.join("CMakeLists.txt"), PROJECT.replace("@version@", version))?;
    stage::remove(&user.join("build"))?;
    let mut configure = Command::new("cmake");
    configure.arg("-S").arg(user).arg("-B").arg(user.join("build"));
    let prefix = format!("-DCMAKE_PREFIX_PATH={}", root.join("usr").display());
    // As CMake finds it by the compiler's name for its machine.
    stage::run(configure.args([&prefix, "-DCMAKE_LIBRARY_ARCHITECTURE=x86_64-linux-gnu"]))
}

/// Executes it with the package's libraries.
fn run(root: &Path, program: &Path) -> Result<Option<String>> {
    let mut run = Command::new(program);
    let done = repo::logged(run.env("LD_LIBRARY_PATH", root.join(stage::LIBRARIES)), "linked")?;
    Ok((!done.success).then(|| format!("{} fails: {}", program.display(), done.text.trim())))
}

fn by_pkg_config(root: &Path, user: &Path) -> Result<Option<String>> {
    let mut ask = Command::new("pkg-config");
    ask.args(["--cflags", "--libs", "turbolane"]);
    ask.env("PKG_CONFIG_PATH", root.join(stage::LIBRARIES).join("pkgconfig"));
    let told = ask.env("PKG_CONFIG_SYSROOT_DIR", root).output().context("pkg-config is missing")?;
    ensure!(told.status.success(), "pkg-config: {}", String::from_utf8_lossy(&told.stderr));
    let program = user.join("by_pkg_config");
    let mut link = Command::new("cc");
    link.arg(user.join("user.c")).arg("-o").arg(&program);
    stage::run(link.args(String::from_utf8_lossy(&told.stdout).split_whitespace()))?;
    run(root, &program)
}
