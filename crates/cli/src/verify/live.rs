// SPDX-License-Identifier: MIT OR Apache-2.0
//! The lane that runs on this machine, away for some runs (A) and at work for the others (B).
//!
//! A run without it is a pause of the lane (`turbolane ctl pause`), which leaves the machine to the
//! kernel's own scheduler and keeps all that was learned. Each pause is asked for a short time and
//! renewed while the run lasts: whatever becomes of this program, the lane is back soon.

use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use report::ctl::{Reply, Request};
use report::lane::LaneStatus;
use report::problem::Problem;

use crate::client::{At, Client, unexpected};
use crate::failure::Failure;

/// How long the lane stays away if no one renews the pause.
const PAUSE: Duration = Duration::from_secs(30);

/// From one renewal to the next.
const RENEWAL: Duration = Duration::from_secs(10);

/// From a change to the run that it is for: tasks have been queued anew, and run where they are to.
const SETTLING: Duration = Duration::from_secs(1);

/// A lane that may be paused.
pub(super) struct Live(Arc<Mutex<Client>>);

/// A pause, which lasts as long as this does.
pub(super) struct Pause {
    /// Nothing is sent: the pause ends when this is gone.
    lasts: Sender<()>,
    renewing: JoinHandle<Result<(), Failure>>,
}

impl Live {
    /// The lane that runs.
    pub(super) fn open(at: &At) -> Result<Self, Failure> {
        let live = Live(Arc::new(Mutex::new(Client::connect(at)?)));
        if ask(&live.0, &Request::Status)?.pause_left_ns.is_none() {
            return Ok(live);
        }
        Err(Failure::unsupported(Problem::new(
            "cannot compare with this lane",
            "it is paused, by another user",
            "end that: turbolane ctl resume",
        )))
    }

    /// Has the lane at work for a run.
    pub(super) fn with(&self) {
        thread::sleep(SETTLING);
    }

    /// Why the run that ends now was not one with the lane; `None` if it was. A lane that finds its
    /// size by itself may separate only while the load is there.
    pub(super) fn why_not_with(&self) -> Result<Option<String>, Failure> {
        let status = ask(&self.0, &Request::Status)?;
        let reason = || status.standby.unwrap_or_else(|| "it has no wide CPU".into());
        Ok(status.wide_cpus.is_empty().then(reason))
    }

    /// Has it away for a run.
    pub(super) fn without(&self) -> Result<Pause, Failure> {
        let client = Arc::clone(&self.0);
        renew(&client)?;
        let (lasts, ended) = mpsc::channel::<()>();
        let renewing = thread::spawn(move || {
            let mut held = Ok(());
            while ended.recv_timeout(RENEWAL) == Err(RecvTimeoutError::Timeout) {
                held = held.and_then(|()| is_paused(&client)).and_then(|()| renew(&client));
            }
            let held = held.and_then(|()| is_paused(&client));
            ask(&client, &Request::Resume).and(held)
        });
        thread::sleep(SETTLING);
        Ok(Pause { lasts, renewing })
    }
}

impl Pause {
    /// Ends it; fails if it was not there all the time.
    pub(super) fn end(self) -> Result<(), Failure> {
        drop(self.lasts);
        let held = self.renewing.join();
        held.unwrap_or_else(|_| Err(not_held("the renewal of the pause has failed".into())))
    }
}

/// Asks for a pause from now on, which another one may precede.
fn renew(client: &Mutex<Client>) -> Result<(), Failure> {
    ask(client, &Request::Pause { for_ns: PAUSE.as_nanos() as u64 }).map(drop)
}

/// Whether the lane is still away.
fn is_paused(client: &Mutex<Client>) -> Result<(), Failure> {
    match ask(client, &Request::Status)?.pause_left_ns {
        Some(_) => Ok(()),
        None => Err(not_held("the lane has come back during a run without it".into())),
    }
}

fn not_held(why: String) -> Failure {
    let next = "repeat it, and change no settings of the lane meanwhile";
    Failure::failed(Problem::new("the comparison is void", why, next))
}

fn ask(client: &Mutex<Client>, request: &Request) -> Result<LaneStatus, Failure> {
    let mut client = client.lock().unwrap_or_else(PoisonError::into_inner);
    match client.ask(request)? {
        Reply::Status(status) => Ok(status),
        other => Err(unexpected(&other)),
    }
}
