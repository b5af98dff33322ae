// SPDX-License-Identifier: MIT OR Apache-2.0
//! The unit and integration tests of all packages. `cargo test` runs one test program after the
//! other, and the last test of each keeps one CPU busy while the others idle; here as many programs
//! run at a time as there are CPUs, as `cargo test` would run each.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::{lab, repo};

/// A test program.
#[derive(Debug, PartialEq, Eq)]
struct Program {
    /// As in `cargo test --test NAME`.
    name: String,
    path: PathBuf,
    /// Of its package, where it runs.
    folder: PathBuf,
    /// As cargo numbers it, e.g. "path+file:///.../crates/sim#0.1.0".
    package: String,
}

/// Builds all of them. Always all: cargo chooses the features of dependencies by what is built
/// together, and would build them again for one alone.
fn build() -> Result<Vec<Program>> {
    let build = ["test", "--workspace", "--no-run", "--message-format=json-render-diagnostics"];
    let built = repo::reported(repo::cargo().args(build), "unit-build")?;
    ensure!(built.success, "the tests do not build; the messages above say why");
    Ok(built.text.lines().filter_map(program).collect())
}

/// Runs the tests of this integration test that only run when they are asked for.
pub(crate) fn ignored(name: &str, adjust: impl FnOnce(&mut Command)) -> Result<repo::Finished> {
    let programs = build()?;
    let program = programs.iter().find(|program| program.name == name);
    let program = program.with_context(|| format!("there is no test {name}"))?;
    let mut command = program.command();
    command.arg("--ignored");
    adjust(&mut command);
    repo::logged(&mut command, name)
}

/// Builds and runs them, and the examples in comments. The log is that of all.
pub(crate) fn test() -> Result<repo::Finished> {
    let programs = build()?;
    let all = Mutex::new(repo::Finished { success: !programs.is_empty(), text: String::new() });
    lab::for_each(&programs, |program| {
        let done = program.run().unwrap_or_else(|error| repo::Finished {
            success: false,
            text: format!("error: {error:#}\n"),
        });
        let mut all = all.lock().expect("no thread panics holding it");
        all.success &= done.success;
        all.text += &format!("     Running {}\n{}", program.path.display(), done.text);
    });
    let mut all = all.into_inner().expect("no thread panicked holding it");
    let examples = ["test", "--workspace", "--doc", "--no-fail-fast"];
    let examples = repo::logged(repo::cargo().args(examples), "unit-doc")?;
    all.success &= examples.success;
    all.text += &examples.text;
    let log = repo::logs()?.join("unit.log");
    std::fs::write(&log, &all.text).with_context(|| format!("cannot write {}", log.display()))?;
    Ok(all)
}

/// The test program that a line of cargo's messages is about.
fn program(line: &str) -> Option<Program> {
    let message: Value = serde_json::from_str(line).ok()?;
    if message["reason"] != "compiler-artifact" || message["profile"]["test"] != true {
        return None;
    }
    let manifest = Path::new(message["manifest_path"].as_str()?);
    Some(Program {
        name: message["target"]["name"].as_str()?.to_owned(),
        path: message["executable"].as_str()?.into(),
        folder: manifest.parent()?.to_owned(),
        package: message["package_id"].as_str()?.to_owned(),
    })
}

impl Program {
    fn run(&self) -> Result<repo::Finished> {
        let name = self.path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        repo::logged(&mut self.command(), &format!("unit-{name}"))
    }

    /// What `cargo test` would start.
    fn command(&self) -> Command {
        let mut command = Command::new(&self.path);
        command.current_dir(&self.folder).env("CARGO_MANIFEST_DIR", &self.folder);
        if let Some((_, version)) = self.package.rsplit_once(['#', '@']) {
            command.env("CARGO_PKG_VERSION", version);
        }
        command
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_program_is_found_in_the_messages() {
        let line = r#"{"reason":"compiler-artifact","package_id":"path+file:///a/crates/x#0.1.0",
            "manifest_path":"/a/crates/x/Cargo.toml","target":{"kind":["lib"],"name":"x"},
            "profile":{"test":true},"executable":"/a/target/debug/deps/x-1"}"#;
        let found = program(line).expect("it is one");
        assert_eq!(found.name, "x");
        assert_eq!(found.path, Path::new("/a/target/debug/deps/x-1"));
        assert_eq!(found.folder, Path::new("/a/crates/x"));
        for other in [
            r#"{"reason":"build-finished","success":true}"#,
            r#"{"reason":"compiler-artifact","profile":{"test":false},"executable":"/a/y"}"#,
            "   Compiling x v0.1.0",
        ] {
            assert_eq!(program(other), None);
        }
    }
}
