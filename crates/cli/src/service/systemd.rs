// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the service needs of systemd, through its own command.

use std::process::{Command, Output};

use report::problem::Problem;
use report::service::Unit;

use crate::failure::Failure;

/// The unit's name.
pub(super) const UNIT: &str = "turbolane.service";

/// Runs `systemctl`; its messages are the reason of a failure.
pub(super) fn systemctl(args: &[&str]) -> Result<(), Failure> {
    let done = output(args)?;
    if done.status.success() {
        return Ok(());
    }
    let message = String::from_utf8_lossy(&done.stderr).trim().to_string();
    let why = if message.is_empty() { done.status.to_string() } else { message };
    let next = format!("journalctl -u {UNIT} shows what the service reported");
    Err(Failure::failed(Problem::new(format!("systemctl {} failed", args.join(" ")), why, next)))
}

/// The unit's state.
pub(super) fn unit() -> Result<Unit, Failure> {
    const PROPERTIES: &str =
        "--property=LoadState,UnitFileState,ActiveState,Result,NRestarts,MainPID";
    let shown = output(&["show", UNIT, PROPERTIES])?;
    Ok(parse(&String::from_utf8_lossy(&shown.stdout)))
}

fn output(args: &[&str]) -> Result<Output, Failure> {
    Command::new("systemctl").args(args).output().map_err(|error| {
        let next = "install systemd, or start turbolane run --config FILE by other means";
        Failure::unsupported(Problem::new("cannot run systemctl", error.to_string(), next))
    })
}

/// Lines of KEY=VALUE.
fn parse(shown: &str) -> Unit {
    let value = |key: &str| {
        let lines = shown.lines().filter_map(|line| line.split_once('='));
        lines.filter(|(name, _)| *name == key).map(|(_, value)| value).next().unwrap_or("")
    };
    let is_loaded = value("LoadState") == "loaded";
    Unit {
        enabled: if is_loaded { value("UnitFileState").into() } else { String::new() },
        active: value("ActiveState").into(),
        result: value("Result").into(),
        restarts: value("NRestarts").parse().unwrap_or(0),
        pid: value("MainPID").parse().ok().filter(|&pid| pid != 0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What systemctl shows of a unit that runs, and of one that does not exist.
    #[test]
    fn properties_are_read() {
        let shown = "Result=success\nNRestarts=2\nMainPID=71\nLoadState=loaded\nActiveState=active\n\
                     UnitFileState=enabled\n";
        let unit = parse(shown);
        assert_eq!((unit.enabled.as_str(), unit.active.as_str()), ("enabled", "active"));
        assert_eq!((unit.restarts, unit.pid), (2, Some(71)));
        let absent =
            parse("MainPID=0\nLoadState=not-found\nActiveState=inactive\nUnitFileState=\n");
        assert_eq!((absent.enabled.as_str(), absent.pid), ("", None));
    }
}
