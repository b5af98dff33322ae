// SPDX-License-Identifier: MIT OR Apache-2.0
//! A connection to the running scheduler: requests and replies over its control socket.

use std::io::{self, BufReader};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use report::ctl::{Reply, Request, SOCKET, receive, send};
use report::problem::Problem;

use crate::failure::Failure;

/// Where the scheduler listens.
#[derive(Args, Clone)]
pub(crate) struct At {
    /// Control socket of the scheduler
    #[arg(long, value_name = "PATH", default_value = SOCKET, global = true, hide = true)]
    socket: PathBuf,
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
        Reply::Successor { .. } => "the process that takes over",
        Reply::Predecessor(_) | Reply::HandedOver(_) => "what a successor needs",
        Reply::Error(_) => "an error",
    };
    Failure::failed(Problem::new(
        "cannot understand the scheduler's answer",
        format!("it sent {kind}, which was not requested"),
        "use the turbolane program that started the scheduler",
    ))
}
