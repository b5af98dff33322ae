// SPDX-License-Identifier: MIT OR Apache-2.0
//! The files of a package, below a folder, where they will be on a machine.
//!
//! | file | from |
//! |---|---|
//! | the command, the libraries for hints, OpenSSL and mutexes | the release build, stripped |
//! | libturbolane.so.0 | linked from the static library, with the versions of `turbolane.map` |
//! | header, files for pkg-config and CMake | `include/`, `crates/turbolane/` |
//! | schemas of the JSON output | `docs/schemas` |
//! | manual pages, completions | `docs/man`, and the command itself |
//! | unit, examples of settings, alert rules and a dashboard | `dist/` |

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::binaries::Binaries;
use crate::repo;

/// Where things are below the root.
pub(super) const COMMAND: &str = "usr/bin/turbolane";
pub(super) const UNIT: &str = "usr/lib/systemd/system/turbolane.service";
pub(super) const LIBRARIES: &str = "usr/lib/x86_64-linux-gnu";
/// Below the libraries: what `find_package(turbolane)` of CMake finds.
const CMAKE: &str = "cmake/turbolane";
const DOC: &str = "usr/share/doc/turbolane";

/// Libraries that are copied as they are.
const PLAIN_LIBRARIES: [&str; 4] = [
    "libturbolane_hint.so",
    "libturbolane_marks.so",
    "libturbolane_openssl.so",
    "libturbolane_preload.so",
];

/// Builds everything and lays it out below `root`, which is made anew.
pub(super) fn stage(root: &Path) -> Result<()> {
    remove(root)?;
    let binaries = Binaries::build()?;
    let release = repo::target().join("release");
    let command = root.join(COMMAND);
    strip("--strip-all", binaries.program("turbolane")?, &command)?;
    for library in PLAIN_LIBRARIES {
        let place = root.join(LIBRARIES).join(library);
        strip("--strip-unneeded", &release.join(library), &place)?;
        mode(&place, 0o644)?;
    }
    stage_library(&release, root)?;
    stage_documents(root)?;
    stage_completions(&command, root)?;
    copy(&repo::root().join("dist/turbolane.service"), &root.join(UNIT))
}

/// The library, its link for the linker, header, files for pkg-config and CMake.
fn stage_library(release: &Path, root: &Path) -> Result<()> {
    let package = repo::root().join("crates/turbolane");
    let libraries = root.join(LIBRARIES);
    let library = libraries.join("libturbolane.so.0");
    let mut link = Command::new("cc");
    link.args(["-shared", "-Wl,-soname,libturbolane.so.0", "-Wl,--gc-sections", "-Wl,--strip-all"]);
    link.arg("-o").arg(&library);
    link.arg(format!("-Wl,--version-script={}", package.join("turbolane.map").display()));
    link.arg("-Wl,--whole-archive").arg(release.join("libturbolane.a"));
    link.args(["-Wl,--no-whole-archive", "-lpthread", "-ldl"]);
    run(&mut link)?;
    mode(&library, 0o644)?;
    symlink("libturbolane.so.0", libraries.join("libturbolane.so"))?;
    copy(&repo::root().join("include/turbolane.h"), &root.join("usr/include/turbolane.h"))?;
    let filled = |file: &str| -> Result<String> {
        let text = fs::read_to_string(package.join(file))
            .with_context(|| format!("cannot read {file} of {}", package.display()))?;
        Ok(text.replace("@version@", env!("CARGO_PKG_VERSION")))
    };
    let text = filled("turbolane.pc.in")?.replace("@prefix@", "/usr");
    let text = text.replace("@libdir@", &format!("/{LIBRARIES}"));
    write(&libraries.join("pkgconfig/turbolane.pc"), &text)?;
    let cmake = libraries.join(CMAKE);
    copy(&package.join("turbolane-config.cmake"), &cmake.join("turbolane-config.cmake"))?;
    let text = filled("turbolane-config-version.cmake.in")?;
    write(&cmake.join("turbolane-config-version.cmake"), &text)
}

/// Manual pages and what Debian wants to have in the folder of documents.
fn stage_documents(root: &Path) -> Result<()> {
    let dir = repo::root().join("docs/man");
    for entry in fs::read_dir(&dir).with_context(|| format!("cannot list {}", dir.display()))? {
        let page = entry?.path();
        let section = page.extension().and_then(|section| section.to_str()).unwrap_or("1");
        let place = root.join(format!("usr/share/man/man{section}"));
        let place = place.join(page.file_name().unwrap_or_default());
        copy(&page, &place)?;
        compress(&place)?;
    }
    let schemas = repo::root().join("docs/schemas");
    let list = || format!("cannot list {}", schemas.display());
    for entry in fs::read_dir(&schemas).with_context(list)? {
        let entry = entry?;
        copy(&entry.path(), &root.join(DOC).join("schemas").join(entry.file_name()))?;
    }
    let dist = repo::root().join("dist");
    let examples = root.join(DOC).join("examples");
    for example in [
        "turbolane.toml",
        "prometheus/turbolane.rules.yml",
        "grafana/turbolane.json",
        "container/Containerfile",
        "kubernetes/advise.yaml",
        "kubernetes/lane.yaml",
    ] {
        copy(&dist.join(example), &examples.join(example))?;
    }
    copy(&dist.join("deb/copyright"), &root.join(DOC).join("copyright"))?;
    let changelog = root.join(DOC).join("changelog");
    copy(&repo::root().join("CHANGELOG.md"), &changelog)?;
    compress(&changelog)
}

fn stage_completions(command: &Path, root: &Path) -> Result<()> {
    for (shell, place) in [
        ("bash", "usr/share/bash-completion/completions/turbolane"),
        ("zsh", "usr/share/zsh/vendor-completions/_turbolane"),
        ("fish", "usr/share/fish/vendor_completions.d/turbolane.fish"),
    ] {
        let script = repo::output(&command.display().to_string(), &["completions", shell])?;
        write(&root.join(place), &(script + "\n"))?;
    }
    Ok(())
}

fn strip(what: &str, from: &Path, to: &Path) -> Result<()> {
    make_parent(to)?;
    run(Command::new("strip").arg(what).arg("-o").arg(to).arg(from))
}

pub(super) fn copy(from: &Path, to: &Path) -> Result<()> {
    make_parent(to)?;
    fs::copy(from, to).with_context(|| format!("cannot copy {}", from.display()))?;
    mode(to, 0o644)
}

fn write(to: &Path, text: &str) -> Result<()> {
    make_parent(to)?;
    fs::write(to, text).with_context(|| format!("cannot write {}", to.display()))?;
    mode(to, 0o644)
}

fn compress(path: &PathBuf) -> Result<()> {
    run(Command::new("gzip").args(["-9", "--no-name"]).arg(path))
}

fn mode(path: &Path, mode: u32) -> Result<()> {
    fs::set_permissions(path, Permissions::from_mode(mode))
        .with_context(|| format!("cannot set the mode of {}", path.display()))
}

/// Folders of a package have one mode, whatever the umask here.
fn make_parent(path: &Path) -> Result<()> {
    let parent = path.parent().context("a file has a folder")?;
    if parent.exists() {
        return Ok(());
    }
    make_parent(parent)?;
    fs::create_dir(parent).with_context(|| format!("cannot make {}", parent.display()))?;
    mode(parent, 0o755)
}

/// Removes a folder, if it is there.
pub(super) fn remove(folder: &Path) -> Result<()> {
    if folder.exists() {
        fs::remove_dir_all(folder)
            .with_context(|| format!("cannot remove {}", folder.display()))?;
    }
    Ok(())
}

pub(super) fn run(command: &mut Command) -> Result<()> {
    let program = command.get_program().to_string_lossy().into_owned();
    let done = repo::logged(command, "stage")?;
    ensure!(done.success, "{program} failed:\n{}", done.text);
    Ok(())
}
