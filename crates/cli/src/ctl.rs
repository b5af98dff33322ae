// SPDX-License-Identifier: MIT OR Apache-2.0
//! `turbolane ctl`: reads and changes the settings of a running scheduler.

use std::io::{self, BufReader};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Subcommand};
use report::ctl::{Change, Reply, Request, SOCKET, receive, send};
use report::lane::LaneStatus;
use report::problem::Problem;
use report::settings::{Setting, Settings, settings_text};
use report::{Document, json_line};
use sched::config::{Config, Mark};
use sched::marks::lasting_path;
use sched::parse::ParseError;
use sched::settings::{changed, setting};

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

/// Where the scheduler listens.
#[derive(Args, Clone)]
pub(crate) struct At {
    /// Control socket of the scheduler
    #[arg(long, value_name = "PATH", default_value = SOCKET, global = true, hide = true)]
    socket: PathBuf,
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
    /// Show what runs, and on which CPUs
    Status,
}

#[derive(Subcommand)]
enum MarkAction {
    /// Mark a function as wide code
    Add {
        /// FILE:FUNCTION or FILE:+0xOFFSET, followed by @LEVEL (1 to 3; default 1), and by
        /// ,min-argN=VALUE to ignore calls with a smaller argument
        mark: Mark,
    },
    /// Remove a mark
    Remove {
        /// The mark, as `turbolane ctl status` shows it
        mark: Mark,
    },
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
        Action::Status => Request::Status,
    };
    match Client::connect(&args.at)?.ask(&request)? {
        Reply::Settings(settings) => print(&show_settings(settings, args.json))?,
        Reply::Status(status) => print(&show_status(&status, args.json))?,
        other => return Err(unexpected(&other)),
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

/// A connection to the running scheduler.
pub(crate) struct Client {
    stream: UnixStream,
    replies: BufReader<UnixStream>,
}

/// Far longer than any request takes; a scheduler that is silent for so long is stuck.
const REPLY_TIMEOUT: Duration = Duration::from_secs(30);

impl Client {
    /// Connects to the scheduler.
    pub(crate) fn connect(at: &At) -> Result<Self, Failure> {
        let open = || -> io::Result<Client> {
            let stream = UnixStream::connect(&at.socket)?;
            stream.set_read_timeout(Some(REPLY_TIMEOUT))?;
            Ok(Client { replies: BufReader::new(stream.try_clone()?), stream })
        };
        open().map_err(|error| not_connected(at, &error))
    }

    /// Sends a request and returns the reply; a refusal is a failure.
    pub(crate) fn ask(&mut self, request: &Request) -> Result<Reply, Failure> {
        let reply = send(&mut self.stream, request).and_then(|()| receive(&mut self.replies));
        let lost = |why: String| {
            let next = "see whether it still runs: turbolane ctl status";
            Failure::failed(Problem::new("the scheduler gave no answer", why, next))
        };
        match reply {
            Ok(Some(Reply::Error(problem))) => Err(Failure::failed(problem)),
            Ok(Some(reply)) => Ok(reply),
            Ok(None) => Err(lost("it closed the connection".into())),
            Err(error) => Err(lost(error.to_string())),
        }
    }
}

fn not_connected(at: &At, error: &io::Error) -> Failure {
    let what = "cannot reach a running scheduler";
    match error.kind() {
        io::ErrorKind::PermissionDenied => Failure::unsupported(Problem::new(
            what,
            format!("only root may open {}", at.socket.display()),
            "run it with sudo",
        )),
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => {
            Failure::failed(Problem::new(
                what,
                "no turbolane runs on this machine",
                "start one: sudo turbolane run",
            ))
        }
        _ => {
            Failure::failed(Problem::new(what, error.to_string(), "start one: sudo turbolane run"))
        }
    }
}

/// The reply is none that the request allows.
pub(crate) fn unexpected(reply: &Reply) -> Failure {
    let kind = match reply {
        Reply::Settings(_) => "settings",
        Reply::Status(_) => "a status",
        Reply::Stats(_) => "statistics",
        Reply::Tasks(_) => "a list of tasks",
        Reply::Error(_) => "an error",
    };
    Failure::failed(Problem::new(
        "cannot understand the scheduler's answer",
        format!("it sent {kind}, which was not requested"),
        "use the turbolane program that started the scheduler",
    ))
}
