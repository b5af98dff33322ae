// SPDX-License-Identifier: MIT OR Apache-2.0
//! A connection to the running scheduler: requests and replies over its control socket.

use std::io;
use std::path::PathBuf;

use clap::Args;
use report::ctl::{Reply, Request, SOCKET};
use report::problem::Problem;
use sched::control;

use crate::failure::Failure;

/// Where the scheduler listens.
#[derive(Args, Clone)]
pub(crate) struct At {
    /// Control socket of the scheduler
    #[arg(long, value_name = "PATH", default_value = SOCKET, global = true, hide = true)]
    socket: PathBuf,
}

/// A connection to the running scheduler.
pub(crate) struct Client(control::Client);

impl Client {
    /// Connects to the scheduler.
    pub(crate) fn connect(at: &At) -> Result<Self, Failure> {
        control::Client::connect(&at.socket).map(Client).map_err(|error| not_connected(at, &error))
    }

    /// Sends a request and returns the reply; a refusal is a failure.
    pub(crate) fn ask(&mut self, request: &Request) -> Result<Reply, Failure> {
        match self.0.ask(request) {
            Ok(Reply::Error(problem)) => Err(Failure::failed(problem)),
            Ok(reply) => Ok(reply),
            Err(error) => {
                let next = "see whether it still runs: turbolane ctl status";
                let what = "the scheduler gave no answer";
                Err(Failure::failed(Problem::new(what, error.to_string(), next)))
            }
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
