// SPDX-License-Identifier: MIT OR Apache-2.0
//! `turbolane enable`: settings, unit, start.
//!
//! Everything that can be checked is checked before the first file is written; if the service does
//! not start, all files are made what they were.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::{env, fs, io};

use clap::Args;
use report::problem::Problem;
use report::text::wrap;
use sched::settings_file::{Settings, text};

use super::files::{Origin, Places, Written, origin};
use super::systemd::{UNIT, systemctl, unit};
use super::{Root, require_root, require_systemd};
use crate::doctor::{open, read_facts};
use crate::failure::{Failure, print};
use crate::run::settings::{Chosen, read, with_listed_marks};
use crate::run::{metrics, preflight};
use crate::terminal;

/// The unit, for the place where packages install the program.
const UNIT_TEXT: &str = include_str!("../../../../dist/turbolane.service");
const PACKAGED_PROGRAM: &str = "/usr/bin/turbolane";
/// systemd.
const FIRST_PROCESS: u32 = 1;

/// Separate wide code as a service, now and after each boot
///
/// Writes the chosen settings to /etc/turbolane.toml, installs a systemd unit unless a package has
/// installed it, and starts it. Without settings on the command line, an existing
/// /etc/turbolane.toml is used as it is. If the service does not start, all of this is undone.
#[derive(Args)]
#[command(after_long_help = "\
Examples:
  sudo turbolane enable --mark /usr/lib/x86_64-linux-gnu/libcrypto.so.3:EVP_EncryptUpdate@2
      OpenSSL's encryption is wide code in every program
  sudo turbolane enable
      with the settings of /etc/turbolane.toml, or with the defaults
  sudo turbolane ctl set wide-cpus=2-3
      change a setting of the running service until its next start

To change settings for good, edit /etc/turbolane.toml, check it by
`turbolane run --check --config /etc/turbolane.toml`, and restart the service by
`systemctl restart turbolane`.")]
pub(crate) struct EnableArgs {
    #[command(flatten)]
    settings: Chosen,
    /// A service to limit the lane to: refused, since there is one lane for the machine
    #[arg(hide = true, value_name = "SERVICE")]
    scope: Option<String>,
    #[command(flatten)]
    root: Root,
}

/// Writes the files and starts the service.
pub(crate) fn main(args: &EnableArgs) -> Result<ExitCode, Failure> {
    args.scope.as_deref().map_or(Ok(()), refuse_scope)?;
    let places = args.root.places();
    let path = places.settings();
    let found = origin(&path)?;
    let (settings, is_new) = choose(&args.settings, found, &path)?;
    require_root()?;
    require_systemd(&places)?;
    if unit()?.active == "active" {
        return already_active(&args.settings);
    }
    let facts = read_facts(open(None)?.as_ref())?;
    let config = with_listed_marks(&settings)?;
    let mut plan = preflight::check(&config, &facts)?;
    plan.notes.extend(preflight::group_note(plan.mode, settings.ignore_group_limits)?);
    // What services inherit, unless their units say otherwise.
    if let Ok(affinity) = hw::task::get_affinity(FIRST_PROCESS) {
        let whose = "the affinity that a service has from systemd";
        plan.notes.extend(preflight::affinity_note(&config, &facts, whose, affinity));
    }
    if let Some(path) = &settings.metrics {
        metrics::check(path)?;
        plan.notes.extend(metrics::name_note(path));
    }
    let mut written = Written::default();
    if let Err(failure) = install(&settings, is_new, &places, &mut written) {
        written.take_back();
        return Err(failure);
    }
    if let Err(failure) = start() {
        _ = systemctl(&["disable", "--now", UNIT]);
        written.take_back();
        _ = systemctl(&["daemon-reload"]);
        return Err(failure);
    }
    let mut said = plan.text(terminal::width());
    for path in written.paths() {
        said += &wrap("wrote        ", &path.display().to_string(), terminal::width());
    }
    said += &wrap(
        "service      ",
        "enabled and running; turbolane disable undoes this",
        terminal::width(),
    );
    print(&said)?;
    Ok(ExitCode::SUCCESS)
}

/// The lane is one for the machine: a service name would promise what does not happen.
fn refuse_scope(service: &str) -> Result<(), Failure> {
    Err(Failure::failed(Problem::new(
        format!("cannot enable the lane for {service} only"),
        "there is one lane for the machine, which separates the wide code of all programs",
        format!(
            "leave {service} out; --wide-tasks unit:{service} treats it as wide throughout, \
             --mark FILE:FUNCTION names functions that are wide"
        ),
    )))
}

/// The settings to run with, and whether they have to be written.
fn choose(chosen: &Chosen, found: Origin, path: &Path) -> Result<(Settings, bool), Failure> {
    match (found, chosen.is_any_given()) {
        (Origin::Enable | Origin::Other, false) => {
            let settings = read(path)?;
            refuse_relative(&settings, path)?;
            Ok((settings, false))
        }
        (Origin::Other, true) => Err(Failure::failed(Problem::new(
            format!("cannot write these settings to {}", path.display()),
            "the file is there, and turbolane enable did not write it, or it was edited since",
            "put the settings into it and run turbolane enable without settings, or move the file away",
        ))),
        (Origin::Absent | Origin::Enable, _) => {
            Ok((absolute(chosen.over(Settings::default()))?, true))
        }
    }
}

/// The service has another working folder than this shell. Links stay, so that marks follow
/// upgrades of a library.
fn absolute(mut settings: Settings) -> Result<Settings, Failure> {
    let marks = settings.config.marks.iter_mut().map(|mark| &mut mark.file);
    for file in marks.chain(&mut settings.mark_files).chain(&mut settings.metrics) {
        *file = std::path::absolute(&*file).map_err(|error| no_path(file, &error))?;
    }
    Ok(settings)
}

fn no_path(file: &Path, error: &io::Error) -> Failure {
    let what = format!("cannot use the path \"{}\"", file.display());
    Failure::failed(Problem::new(what, error.to_string(), "write an absolute path"))
}

fn refuse_relative(settings: &Settings, path: &Path) -> Result<(), Failure> {
    let marks = settings.config.marks.iter().map(|mark| &mark.file);
    let mut files = marks.chain(&settings.mark_files).chain(&settings.metrics);
    let Some(file) = files.find(|file| file.is_relative()) else { return Ok(()) };
    Err(Failure::failed(Problem::new(
        format!("cannot use {} for the service", path.display()),
        format!("\"{}\" is a relative path, and the service runs in /", file.display()),
        "write absolute paths",
    )))
}

/// The service runs: there is nothing to do, unless other settings are requested.
fn already_active(chosen: &Chosen) -> Result<ExitCode, Failure> {
    if !chosen.is_any_given() {
        print("the service is already enabled and running; see turbolane status\n")?;
        return Ok(ExitCode::SUCCESS);
    }
    Err(Failure::failed(Problem::new(
        "cannot enable the service with these settings",
        "it runs already, with the settings of /etc/turbolane.toml",
        "run turbolane disable first, or change a setting of the run by turbolane ctl set",
    )))
}

fn install(
    settings: &Settings,
    is_new: bool,
    places: &Places,
    written: &mut Written,
) -> Result<(), Failure> {
    if is_new {
        written.write(&places.settings(), &text(settings))?;
    }
    if places.packaged_unit().is_none() && origin(&places.unit())? != Origin::Other {
        written.write(&places.unit(), &unit_text(&own_path()?)?)?;
    }
    if let Some(path) = &settings.metrics {
        written.write_in_own_folder(&places.drop_in(), &drop_in_text(path)?)?;
    }
    Ok(())
}

fn start() -> Result<(), Failure> {
    systemctl(&["daemon-reload"])?;
    systemctl(&["enable", UNIT])?;
    // A service that used up its restarts would be refused.
    _ = systemctl(&["reset-failed", UNIT]);
    systemctl(&["start", UNIT])
}

fn own_path() -> Result<PathBuf, Failure> {
    env::current_exe().and_then(fs::canonicalize).map_err(|error| {
        let next = "start turbolane by its full path";
        Failure::failed(Problem::new("cannot find this program's file", error.to_string(), next))
    })
}

/// The unit for a program at this path.
fn unit_text(program: &Path) -> Result<String, Failure> {
    let path = in_unit(program, "copy the program to /usr/local/bin")?;
    Ok(UNIT_TEXT.replace(&format!("={PACKAGED_PROGRAM} "), &format!("={path} ")))
}

/// The addition to the unit that lets the service write metrics: a file is replaced, which its
/// folder must allow.
fn drop_in_text(metrics: &Path) -> Result<String, Failure> {
    let folder = metrics.parent().unwrap_or(Path::new("/"));
    let folder = in_unit(folder, "name a file in another folder by --metrics")?;
    Ok(format!("[Service]\nReadWritePaths={folder}\n"))
}

/// A path as a unit takes it.
fn in_unit<'a>(path: &'a Path, next: &str) -> Result<&'a str, Failure> {
    let is_plain = |text: &&str| !text.contains(['"', '\\', '\n', '$', '%', ' ', '\'']);
    path.to_str().filter(is_plain).ok_or_else(|| {
        let what = format!("cannot make a service with the path {}", path.display());
        let why = "it contains characters that have a meaning in a unit, or blanks";
        Failure::failed(Problem::new(what, why, next))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The unit starts the program that wrote it.
    #[test]
    fn the_unit_has_the_path_of_the_program() {
        let unit = unit_text(Path::new("/opt/tl/turbolane")).unwrap();
        assert!(unit.contains("\nExecStart=/opt/tl/turbolane run --config /etc/turbolane.toml\n"));
        assert!(unit.contains("\nExecReload=/opt/tl/turbolane ctl reload /etc/turbolane.toml\n"));
        assert!(!unit.contains(PACKAGED_PROGRAM));
    }

    /// The service may write to the folder of its metrics.
    #[test]
    fn the_folder_of_metrics_is_writable() {
        let text = drop_in_text(Path::new("/srv/metrics/a.prom")).unwrap();
        assert_eq!(text, "[Service]\nReadWritePaths=/srv/metrics\n");
    }

    /// Paths that systemd would read differently are refused.
    #[test]
    fn paths_with_special_characters_fail() {
        for path in ["/opt/my programs/turbolane", "/opt/100%/turbolane", "/opt/$x/turbolane"] {
            assert!(unit_text(Path::new(path)).is_err(), "{path}");
            assert!(drop_in_text(Path::new(path)).is_err(), "{path}");
        }
    }
}
