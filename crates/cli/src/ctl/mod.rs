// SPDX-License-Identifier: MIT OR Apache-2.0
//! `turbolane ctl`: reads and changes the settings of a running scheduler.

mod reload;
mod upgrade;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Subcommand};
use report::ctl::{Change, Reply, Request};
use report::lane::LaneStatus;
use report::problem::Problem;
use report::settings::{Setting, Settings, settings_text};
use report::{Document, json_line};
use sched::config::{Config, Mark};
use sched::marks::lasting_path;
use sched::parse::{ParseError, duration_at_least};
use sched::scx_lane::PAUSE_MAX;
use sched::settings::{changed, setting};

use crate::client::{At, Client, unexpected};
use crate::failure::{Failure, print};
use crate::terminal;

/// Read and change the settings of a running scheduler
///
/// Settings have the names and the syntax of the flags of `turbolane run`. Changes take effect at
/// once; a refused change changes nothing.
#[derive(Args)]
#[command(after_long_help = "\
Examples:
  turbolane ctl get                          all settings and their meaning
  turbolane ctl set wide-cpus=2-3 slice=3ms  make both changes, or neither
  turbolane ctl mark add ./libfoo.so:dot@2   mark another function
  turbolane ctl reload                       what /etc/turbolane.toml says now
  turbolane ctl upgrade                      run the installed version instead
  turbolane ctl pause 30s                    the kernel's scheduling, for a while
  turbolane ctl status                       what runs, and on which CPUs")]
pub(crate) struct CtlArgs {
    #[command(subcommand)]
    action: Action,
    /// Print JSON
    #[arg(long, global = true)]
    json: bool,
    #[command(flatten)]
    at: At,
}

#[derive(Subcommand)]
enum Action {
    /// Show settings with their units and meaning
    Get {
        /// Names of settings [default: all]
        #[arg(value_name = "KEY")]
        keys: Vec<String>,
    },
    /// Change settings
    Set {
        /// Changes, such as slice=3ms
        #[arg(value_name = "KEY=VALUE", required = true, value_parser = parse_change)]
        changes: Vec<Change>,
    },
    /// Add and remove marks
    #[command(subcommand)]
    Mark(MarkAction),
    /// Apply all settings and marks of a file, or change nothing
    ///
    /// Settings that the file omits get their defaults. Settings that are fixed while the scheduler
    /// runs must have their current values; `metrics` and `ignore-cgroup-limits` are not compared.
    /// `systemctl reload turbolane` does the same.
    Reload {
        /// File of settings, as `turbolane run --config` takes it
        #[arg(value_name = "FILE", default_value = "/etc/turbolane.toml")]
        file: PathBuf,
    },
    /// Have the installed version take over from the running one
    ///
    /// After an upgrade of the package. The program of the running service is started again, with
    /// the same arguments and --take-over. It loads everything while the old one is at work, and
    /// programs keep their connections for hints. If it does not start, the old one continues.
    /// Settings are read anew; changes by `turbolane ctl set` are not carried over.
    Upgrade,
    /// Leave the machine to the kernel's own scheduler for a time
    ///
    /// Everything stays loaded, and settings, marks and hint connections stay as they are. The lane
    /// continues after TIME, or at `turbolane ctl resume`. A change of a setting, a restart after
    /// CPUs came or went, and another version that takes over end a pause too. `turbolane verify
    /// --live` measures by such pauses.
    Pause {
        /// For how long, at most 10min
        #[arg(value_name = "TIME", default_value = "1min", value_parser = pause_time)]
        time: Duration,
    },
    /// End a pause
    Resume,
    /// Show what runs, and on which CPUs
    Status,
}

#[derive(Subcommand)]
enum MarkAction {
    /// Mark a function as wide code
    Add {
        /// FILE:FUNCTION or FILE:+0xOFFSET, followed by @LEVEL (1 to 3; default 1), and by
        /// ,min-argN=VALUE to ignore calls with a smaller argument, ,build-id=ID if an offset is
        /// for one build of the file
        mark: Mark,
    },
    /// Remove a mark
    Remove {
        /// The mark, as `turbolane ctl status` shows it
        mark: Mark,
    },
}

fn pause_time(text: &str) -> Result<Duration, ParseError> {
    let time = duration_at_least(text, Duration::from_millis(1), "less is not noticed")?;
    match time <= PAUSE_MAX {
        true => Ok(time),
        false => Err(ParseError {
            why: format!("{text} is longer than 10min"),
            next: "pause for 10min, and again before that ends; or stop the run".into(),
        }),
    }
}

/// Checks names and values here, where the message can say more than the far end's.
fn parse_change(text: &str) -> Result<Change, ParseError> {
    let (key, value) = text.split_once('=').ok_or_else(|| ParseError {
        why: "a change has an equals sign".into(),
        next: "write it as KEY=VALUE".into(),
    })?;
    changed(&Config::default(), [(key, value)])?;
    Ok(Change { key: key.into(), value: value.into() })
}

/// Asks the scheduler and prints its answer.
pub(crate) fn main(args: CtlArgs) -> Result<ExitCode, Failure> {
    let request = match args.action {
        Action::Get { keys } => {
            for key in &keys {
                setting(key).map_err(|error| {
                    Failure::failed(Problem::new("cannot read the setting", error.why, error.next))
                })?;
            }
            Request::Get { keys }
        }
        Action::Set { changes } => Request::Set { changes },
        Action::Mark(MarkAction::Add { mark }) => Request::MarkAdd { mark: absolute(mark) },
        Action::Mark(MarkAction::Remove { mark }) => Request::MarkRemove { mark: absolute(mark) },
        Action::Reload { file } => return reloaded(&args.at, &file, args.json),
        Action::Upgrade => {
            print(&show_status(&upgrade::upgrade(&args.at)?, args.json))?;
            return Ok(ExitCode::SUCCESS);
        }
        Action::Pause { time } => Request::Pause { for_ns: time.as_nanos() as u64 },
        Action::Resume => Request::Resume,
        Action::Status => Request::Status,
    };
    match Client::connect(&args.at)?.ask(&request)? {
        Reply::Settings(settings) => print(&show_settings(settings, args.json))?,
        Reply::Status(status) => print(&show_status(&status, args.json))?,
        other => return Err(unexpected(&other)),
    }
    Ok(ExitCode::SUCCESS)
}

/// Reloads a file and prints what has changed; the settings as JSON.
fn reloaded(at: &At, file: &Path, json: bool) -> Result<ExitCode, Failure> {
    let mut client = Client::connect(at)?;
    let lines = reload::reload(&mut client, file)?;
    if json {
        match client.ask(&Request::Get { keys: Vec::new() })? {
            Reply::Settings(settings) => print(&show_settings(settings, true))?,
            other => return Err(unexpected(&other)),
        }
    } else if lines.is_empty() {
        print("nothing has changed\n")?;
    } else {
        print(&(lines.join("\n") + "\n"))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The scheduler has another working folder than we. A file that is not there is left as it is:
/// the scheduler says so.
fn absolute(mut mark: Mark) -> String {
    if let Ok(path) = lasting_path(&mark.file) {
        mark.file = path;
    }
    mark.to_string()
}

fn show_settings(settings: Vec<Setting>, json: bool) -> String {
    if json {
        json_line(&Document::new(Settings { settings })) + "\n"
    } else {
        settings_text(&settings, terminal::width())
    }
}

fn show_status(status: &LaneStatus, json: bool) -> String {
    if json { json_line(&Document::new(status)) + "\n" } else { status.text(terminal::width()) }
}
