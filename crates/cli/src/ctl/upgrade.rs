// SPDX-License-Identifier: MIT OR Apache-2.0
//! `turbolane ctl upgrade`: the running scheduler starts the version that is installed now, which
//! takes over from it (`sched::take_over`). This waits for either to happen: the new process
//! answers requests, or it is gone.

use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use report::ctl::{Reply, Request};
use report::lane::LaneStatus;
use report::problem::Problem;

use crate::client::{At, Client, unexpected};
use crate::failure::Failure;

/// A new version has loaded by then, even on a busy machine: it is the time that systemd gives it.
const LIMIT: Duration = Duration::from_secs(120);

/// From one look to the next.
const PAUSE: Duration = Duration::from_millis(50);

/// Has the installed version take over; its status then.
pub(super) fn upgrade(at: &At) -> Result<LaneStatus, Failure> {
    let successor = match Client::connect(at)?.ask(&Request::Upgrade)? {
        Reply::Successor { pid } => pid,
        other => return Err(unexpected(&other)),
    };
    let start = Instant::now();
    loop {
        // First this, then whether it answers: it may have ended after a long life.
        let lives = Path::new(&format!("/proc/{successor}")).exists();
        // Between the two there is nobody to ask.
        if let Some(status) = status(at).filter(|status| status.pid == successor) {
            return Ok(status);
        }
        if !lives {
            return Err(not_taken_over("it has ended"));
        }
        if start.elapsed() > LIMIT {
            return Err(not_taken_over(&format!("process {successor} is still not ready")));
        }
        thread::sleep(PAUSE);
    }
}

fn status(at: &At) -> Option<LaneStatus> {
    match Client::connect(at).ok()?.ask(&Request::Status) {
        Ok(Reply::Status(status)) => Some(status),
        _ => None,
    }
}

fn not_taken_over(why: &str) -> Failure {
    let next = "see its messages: journalctl -u turbolane; what runs: turbolane ctl status";
    Failure::failed(Problem::new("the installed version has not taken over", why, next))
}
