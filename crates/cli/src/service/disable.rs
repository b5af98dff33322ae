// SPDX-License-Identifier: MIT OR Apache-2.0
//! `turbolane disable`: stops the service and removes what `enable` made.

use std::fs;
use std::path::Path;
use std::process::ExitCode;

use clap::Args;
use report::text::wrap;

use super::files::{Origin, origin, unchangeable};
use super::systemd::{UNIT, systemctl, unit};
use super::{Root, require_root, require_systemd};
use crate::failure::{Failure, print};
use crate::terminal;

/// Stop the service, and remove what `turbolane enable` made
///
/// The kernel's own scheduler takes over at once. A settings file or a unit that was edited since,
/// or that `turbolane enable` did not write, is kept.
#[derive(Args)]
pub(crate) struct DisableArgs {
    #[command(flatten)]
    root: Root,
}

/// Stops the service and removes its files.
pub(crate) fn main(args: &DisableArgs) -> Result<ExitCode, Failure> {
    let places = args.root.places();
    require_root()?;
    require_systemd(&places)?;
    let mut said = String::new();
    let before = unit()?;
    if !before.enabled.is_empty() {
        systemctl(&["disable", "--now", UNIT])?;
        let what = if before.enabled == "enabled" { "disabled" } else { "was not enabled" };
        said += &wrap("service  ", what, terminal::width());
    }
    for path in [places.unit(), places.drop_in(), places.settings()] {
        said += &remove(&path)?;
    }
    // Not if others have put files there.
    _ = places.drop_in().parent().map(fs::remove_dir);
    systemctl(&["daemon-reload"])?;
    // Forget that it failed, or it stays in the list of failed units.
    _ = systemctl(&["reset-failed", UNIT]);
    if said.is_empty() {
        said = "nothing to disable: turbolane enable has made nothing here\n".into();
    }
    print(&said)?;
    Ok(ExitCode::SUCCESS)
}

/// Removes the file if `enable` wrote it; what was done, as a line.
fn remove(path: &Path) -> Result<String, Failure> {
    let (label, note) = match origin(path)? {
        Origin::Absent => return Ok(String::new()),
        Origin::Other => {
            ("kept     ", ": turbolane enable did not write it, or it was edited since")
        }
        Origin::Enable => {
            fs::remove_file(path).map_err(|error| unchangeable(path, &error))?;
            ("removed  ", "")
        }
    };
    Ok(wrap(label, &format!("{}{note}", path.display()), terminal::width()))
}
