// SPDX-License-Identifier: MIT OR Apache-2.0
//! `turbolane enable`, `disable` and `status`: a run as a service of systemd.
//!
//! The unit is `dist/turbolane.service`. A package installs it; without a package `enable` writes
//! it, with the path of this program. The settings are in `/etc/turbolane.toml`, which `enable`
//! writes from its flags, or leaves alone if a person wrote it. `disable` removes what `enable`
//! made ([`files`]).

mod disable;
mod enable;
mod files;
mod status;
mod systemd;

use std::path::PathBuf;

use clap::Args;
use report::problem::Problem;

pub(crate) use self::disable::{DisableArgs, main as disable};
pub(crate) use self::enable::{EnableArgs, main as enable};
use self::files::Places;
pub(crate) use self::status::{StatusArgs, main as status};
use crate::failure::Failure;

/// Where the service is.
#[derive(Args)]
struct Root {
    /// Look for all files below this folder, for tests
    #[arg(long, value_name = "DIR", default_value = "/", hide = true)]
    root: PathBuf,
}

impl Root {
    fn places(&self) -> Places {
        Places::below(&self.root)
    }
}

/// Refuses a machine without systemd.
fn require_systemd(places: &Places) -> Result<(), Failure> {
    if places.has_systemd() {
        return Ok(());
    }
    Err(Failure::unsupported(Problem::new(
        "cannot manage the service",
        "this machine does not run systemd (a container?)",
        "start turbolane run --config /etc/turbolane.toml from this machine's own service manager",
    )))
}

/// Refuses users who may not change the system's services.
fn require_root() -> Result<(), Failure> {
    // SAFETY: geteuid takes no memory and cannot fail.
    if unsafe { libc::geteuid() } == 0 {
        return Ok(());
    }
    Err(Failure::unsupported(Problem::new(
        "cannot manage the service",
        "only root may change services",
        "run it with sudo; turbolane status needs no root",
    )))
}
