// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where the repository is, and commands run in it.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use anyhow::{Context, Result};

/// The repository's root folder. `cargo run` says where it is; the path noted
/// at compile time would be wrong after the tree was moved.
pub(crate) fn root() -> &'static Path {
    static ROOT: OnceLock<PathBuf> = OnceLock::new();
    ROOT.get_or_init(|| {
        let manifest = std::env::var_os("CARGO_MANIFEST_DIR");
        let xtask = manifest.unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into());
        Path::new(&xtask).parent().expect("xtask lies in the root").to_owned()
    })
}

/// The cargo that started us, or the one in the PATH.
pub(crate) fn cargo() -> Command {
    let program = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(program);
    command.current_dir(root());
    command
}

/// A finished command: whether it succeeded, and its output as it came.
pub(crate) struct Finished {
    pub(crate) success: bool,
    pub(crate) text: String,
}

/// Runs a command with its standard output and error in one log file.
pub(crate) fn logged(command: &mut Command, name: &str) -> Result<Finished> {
    let (path, out) = log(name)?;
    let err = out.try_clone().context("cannot share the log")?;
    finish(command.stdout(out).stderr(err), &path)
}

/// Runs a command with its standard output in a log file; what it says on
/// standard error is shown.
pub(crate) fn reported(command: &mut Command, name: &str) -> Result<Finished> {
    let (path, out) = log(name)?;
    finish(command.stdout(out), &path)
}

fn finish(command: &mut Command, log: &Path) -> Result<Finished> {
    let status = testbed::run_child(command)?;
    let bytes = std::fs::read(log).with_context(|| format!("cannot read {}", log.display()))?;
    Ok(Finished { success: status.success(), text: String::from_utf8_lossy(&bytes).into_owned() })
}

fn log(name: &str) -> Result<(PathBuf, File)> {
    let path = logs()?.join(format!("{name}.log"));
    let file = File::create(&path).with_context(|| format!("cannot write {}", path.display()))?;
    Ok((path, file))
}

/// The folder that cargo builds into.
pub(crate) fn target() -> PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR");
    target.map_or_else(|| root().join("target"), PathBuf::from)
}

/// The folder for logs and other things that can be made again.
pub(crate) fn logs() -> Result<PathBuf> {
    let folder = target().join("x");
    std::fs::create_dir_all(&folder)
        .with_context(|| format!("cannot make {}", folder.display()))?;
    Ok(folder)
}

/// The standard output of a short command run in the root, trimmed.
pub(crate) fn output(program: &str, args: &[&str]) -> Result<String> {
    let out = Command::new(program)
        .args(args)
        .current_dir(root())
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("cannot start {program}"))?;
    anyhow::ensure!(
        out.status.success(),
        "{program} {} ended with {}: {}",
        args.join(" "),
        out.status,
        String::from_utf8_lossy(&out.stderr).trim()
    );
    Ok(String::from_utf8_lossy(&out.stdout).trim().to_owned())
}
