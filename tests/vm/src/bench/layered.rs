// SPDX-License-Identifier: MIT OR Apache-2.0
//! scx_layered, the peer that most people know, with its example configuration.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::Result;

use crate::guest::{scx_state, wait_for};

const LAYERED: &str = "/usr/bin/scx_layered";

/// What is measured while scx_layered runs; `None` if the guest does not have it.
pub fn under<T>(measure: impl FnOnce() -> Result<T>) -> Result<Option<T>> {
    if !Path::new(LAYERED).exists() {
        return Ok(None);
    }
    let mut layered = Command::new(LAYERED)
        .arg("--run-example")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()?;
    let up =
        wait_for("scx_layered is not up", Duration::from_secs(60), || scx_state() == "enabled");
    let values = up.and_then(|()| measure());
    // SAFETY: our own child.
    unsafe { libc::kill(layered.id() as i32, libc::SIGINT) };
    layered.wait()?;
    values.map(Some)
}
