// SPDX-License-Identifier: MIT OR Apache-2.0
//! A Debian root in a folder: what guests boot, and what modules are built in.

use std::path::Path;
use std::process::Command;

use anyhow::{Result, ensure};

use crate::{apt, cache, process};

/// Installed files that nobody reads: they would make up a quarter of a root.
pub(crate) const LEFT_OUT: [&str; 4] =
    ["/usr/share/doc/*", "/usr/share/info/*", "/usr/share/locale/*", "/usr/share/man/*"];

/// Installs the packages, a list by commas, of these suites into an empty or absent folder, without
/// [`LEFT_OUT`]; the first suite is the root's own. Needs root. If it fails, the folder is removed.
pub(crate) fn install(suites: &[&str], packages: &str, root: &Path, log: &Path) -> Result<()> {
    install_without(&LEFT_OUT, suites, packages, root, log)
}

/// The same without files that match one of these patterns.
pub(crate) fn install_without(
    left_out: &[&str],
    suites: &[&str],
    packages: &str,
    root: &Path,
    log: &Path,
) -> Result<()> {
    // SAFETY: geteuid takes nothing and cannot fail.
    let is_root = unsafe { libc::geteuid() } == 0;
    ensure!(is_root, "only root can make a Debian root folder; run this command as root once");
    // mmdebstrap mounts into the new root. In a mount namespace of its own
    // those mounts vanish with it, whatever becomes of the process.
    let mut command = Command::new("unshare");
    command
        .args(["--mount", "--propagation", "private", "mmdebstrap"])
        .args(["--mode=root", "--skip=output/mknod", "--variant=minbase"])
        .arg(format!("--include={packages}"))
        .arg("--aptopt=Acquire::Languages \"none\"");
    for option in apt::acquire_options()? {
        command.arg(format!("--aptopt={option}"));
    }
    for pattern in left_out {
        command.arg(format!("--dpkgopt=path-exclude={pattern}"));
    }
    command.arg(suites[0]).arg(root);
    for suite in suites {
        command.arg(apt::source_line(suite)?);
    }
    // Time stamps inside do not depend on the day of the build.
    command.env("SOURCE_DATE_EPOCH", "0").env("LC_ALL", "C");
    let installed = process::run_logged(&mut command, log);
    if installed.is_err() {
        cache::remove(root)?;
    }
    installed
}
