// SPDX-License-Identifier: MIT OR Apache-2.0
//! The release build of what runs in guests, and where it goes there.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use testbed::{Cache, Kernel};

use crate::{modules, repo};

/// The packages, beside the command, whose programs and libraries are for guests or the package.
const PACKAGES: [&str; 6] =
    ["vmtests", "turbolane", "turbolane-hint", "marks", "openssl-hints", "preload"];

/// Programs of these packages.
const PROGRAMS: [&str; 3] = ["vmtests", "hint_bench", "mark_bench"];

/// Has the command linked with all of its libraries, the C library included: so it runs on any
/// distribution, however old its C library is or whichever it is.
const STATIC: &str = "target-feature=+crt-static";

/// What was built: programs and libraries, each with its place in the guest.
///
/// | built | in the guest |
/// |---|---|
/// | program | `/usr/bin/NAME` |
/// | shared library | `/usr/lib/x86_64-linux-gnu/NAME.so` |
/// | kernel module | `/usr/lib/modules/RELEASE/extra/NAME.ko` |
pub(crate) struct Binaries {
    /// Pairs of a file here and its path in the guest.
    pub(crate) payload: Vec<(PathBuf, PathBuf)>,
}

impl Binaries {
    /// Builds them all in release mode.
    pub(crate) fn build() -> Result<Self> {
        const MESSAGES: &str = "--message-format=json-render-diagnostics";
        const COMMAND: [&str; 2] = ["-p", "turbolane-cli"];
        let mut command = repo::cargo();
        command.args(["rustc", "--release", "--bin", "turbolane", MESSAGES]).args(COMMAND);
        command.args(["--", "-C", STATIC]).args(further_libraries()?);
        // Cargo chooses the features of dependencies by what is built together: with the command
        // among it, though nothing is built of it here, nearly all that it needs is built once.
        let mut rest = repo::cargo();
        rest.args(["build", "--release", "--lib", MESSAGES]).args(COMMAND);
        rest.args(PACKAGES.iter().flat_map(|package| ["-p", package]));
        rest.args(PROGRAMS.iter().flat_map(|program| ["--bin", program]));
        let mut messages = String::new();
        for build in [&mut command, &mut rest] {
            let done = repo::reported(build, "build")?;
            ensure!(done.success, "the release build failed; the messages above say why");
            messages += &done.text;
        }
        let stripped = repo::logs()?.join("guest");
        std::fs::create_dir_all(&stripped)
            .with_context(|| format!("cannot make {}", stripped.display()))?;
        let mut payload = Vec::new();
        for (built, place) in messages.lines().flat_map(placed) {
            payload.push((strip(&built, &stripped)?, place));
        }
        Ok(Self { payload })
    }

    /// Adds the kernel modules, built for the guests' kernel.
    pub(crate) fn add_modules(&mut self, cache: &Cache, kernel: &Kernel) -> Result<()> {
        for module in modules::build(cache, kernel)? {
            let place = modules::place(&module, kernel);
            self.payload.push((module, place));
        }
        Ok(())
    }

    /// The program of this name on this machine.
    pub(crate) fn program(&self, name: &str) -> Result<&Path> {
        let place = Path::new("/usr/bin").join(name);
        let found = self.payload.iter().find(|(_, guest)| *guest == place);
        let (host, _) = found.with_context(|| format!("the build made no program {name}"))?;
        Ok(host)
    }
}

/// What libelf needs beyond libz where it is linked statically: libzstd, from Debian 13 on.
fn further_libraries() -> Result<Vec<String>> {
    let libraries = repo::output("pkg-config", &["--static", "--libs-only-l", "libelf"])?;
    let further =
        libraries.split_whitespace().filter(|library| !["-lelf", "-lz"].contains(library));
    Ok(further.flat_map(|library| ["-C".to_owned(), format!("link-arg={library}")]).collect())
}

/// Copies a program without its debug information, which is nine tenths of it:
/// every boot would have to unpack that. Symbols stay.
fn strip(built: &Path, folder: &Path) -> Result<PathBuf> {
    let copy = folder.join(built.file_name().unwrap_or_default());
    let time = |path: &Path| path.metadata().and_then(|meta| meta.modified()).ok();
    if time(&copy) > time(built) {
        return Ok(copy);
    }
    // Renamed when complete: an interrupted copy must not pass for a program.
    let new = copy.with_extension(format!("new{}", std::process::id()));
    let (from, to) = (built.display().to_string(), new.display().to_string());
    repo::output("objcopy", &["--strip-debug", &from, &to])?;
    std::fs::rename(&new, &copy).with_context(|| format!("cannot write {}", copy.display()))?;
    Ok(copy)
}

/// The files that one line of cargo's report says were built for us.
fn placed(line: &str) -> Vec<(PathBuf, PathBuf)> {
    let Ok(message) = serde_json::from_str::<Value>(line) else {
        return Vec::new();
    };
    let is = |kind: &str| {
        let kinds = message["target"]["kind"].as_array();
        kinds.is_some_and(|kinds| kinds.iter().any(|other| other == kind))
    };
    let folder = if message["reason"] != "compiler-artifact" || !is_ours(&message) {
        return Vec::new();
    } else if is("bin") {
        "/usr/bin"
    } else if is("cdylib") {
        "/usr/lib/x86_64-linux-gnu"
    } else {
        return Vec::new();
    };
    let files = match message["executable"].as_str() {
        Some(program) => vec![program],
        None => message["filenames"].as_array().into_iter().flatten().filter_map(shared).collect(),
    };
    files
        .into_iter()
        .map(PathBuf::from)
        .map(|file| {
            let name = file.file_name().unwrap_or_default().to_owned();
            (file, Path::new(folder).join(name))
        })
        .collect()
}

fn shared(file: &Value) -> Option<&str> {
    file.as_str().filter(|file| file.ends_with(".so"))
}

/// Whether the message is about a package of this workspace, not about a
/// dependency, such as a procedural macro or a build script's library.
fn is_ours(message: &Value) -> bool {
    let manifest = message["manifest_path"].as_str().unwrap_or_default();
    Path::new(manifest).starts_with(repo::root())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(kind: &str, executable: &str, files: &str) -> String {
        let manifest = repo::root().join("crates/x/Cargo.toml");
        format!(
            r#"{{"reason":"compiler-artifact","manifest_path":"{}","target":{{"kind":["{kind}"]}},"executable":{executable},"filenames":[{files}]}}"#,
            manifest.display()
        )
    }

    #[test]
    fn each_kind_has_its_place() {
        let one = |line: String| placed(&line).pop().map(|(_, guest)| guest);
        assert_eq!(
            one(message("bin", "\"/t/turbolane\"", "")),
            Some(PathBuf::from("/usr/bin/turbolane"))
        );
        assert_eq!(
            one(message("cdylib", "null", "\"/t/libx.rlib\",\"/t/libx.so\"")),
            Some(PathBuf::from("/usr/lib/x86_64-linux-gnu/libx.so"))
        );
        assert_eq!(one(message("lib", "null", "\"/t/libx.rlib\"")), None);
        assert_eq!(one("no JSON".to_owned()), None);
    }
}
