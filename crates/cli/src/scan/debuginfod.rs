// SPDX-License-Identifier: MIT OR Apache-2.0
//! Debug files from servers (debuginfod), by build id.
//!
//! elfutils' client asks the servers that `DEBUGINFOD_URLS` names, and keeps what they send in its
//! cache (debuginfod-find(1)). The scanner checks that a file is the same build's.

use std::env;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use report::problem::Problem;

use crate::failure::Failure;

const CLIENT: &str = "debuginfod-find";
const SERVERS: &str = "DEBUGINFOD_URLS";
const CANNOT: &str = "cannot ask for debug files";

/// Servers that can be asked.
pub(super) struct Debuginfod(());

impl Debuginfod {
    /// Checks that there are servers and the client, so that a scan does not merely lack names.
    pub(super) fn new() -> Result<Self, Failure> {
        if env::var_os(SERVERS).is_none_or(|servers| servers.is_empty()) {
            return Err(Failure::failed(Problem::new(
                CANNOT,
                format!("{SERVERS} names no server"),
                format!("{SERVERS}=https://debuginfod.debian.net turbolane scan --debuginfod ..."),
            )));
        }
        let mut client = Command::new(CLIENT);
        client.arg("--version").stdout(Stdio::null()).stderr(Stdio::null());
        client.status().map(|_| Debuginfod(())).map_err(|error| {
            Failure::unsupported(Problem::new(
                CANNOT,
                format!("{CLIENT}: {error}"),
                "install elfutils' client: apt install debuginfod, or dnf install elfutils-debuginfod-client",
            ))
        })
    }

    /// The debug file of a build; `None` if no server has it.
    pub(super) fn find(&self, build_id: &str) -> Option<PathBuf> {
        let mut client = Command::new(CLIENT);
        let asked = client.args(["debuginfo", build_id]).stderr(Stdio::null()).output().ok()?;
        let path = PathBuf::from(String::from_utf8(asked.stdout).ok()?.trim_end());
        (asked.status.success() && path.is_absolute()).then_some(path)
    }
}
