// SPDX-License-Identifier: MIT OR Apache-2.0
//! A scheduler takes over from one that runs, in another process: a new version, without a
//! restart.
//!
//! **Problem.** To load the programs takes seconds on a busy machine. After a stop the kernel's own
//! scheduler would be at work for that long, and all applications would have lost their slots of
//! the hint page, and look for another scheduler a second later.
//!
//! **Idea.** The successor first loads everything, with the predecessor's maps for hints, which it
//! finds by their numbers. Only then it asks for the machine. The predecessor stops serving hints,
//! detaches its scheduler, and says which thread has which slot; the successor attaches its own.
//! Board and areas stay what they are, so applications notice nothing.
//!
//! ```text
//! successor                                        predecessor
//!   prepare_take_over   ---------------------------->  (nothing changes)
//!   <----------------------------- board, areas
//!   checks, loads its programs
//!   take_over           ---------------------------->  stops serving hints, detaches
//!   <----------------------------- slots, trap module
//!   attaches, serves hints
//!   taken_over          ---------------------------->  removes its probes, ends
//!   <----------------------------- lock
//!   serves requests
//! ```
//!
//! **If it fails.** Whatever goes wrong before the second request leaves the predecessor at work.
//! If the successor ends after it, or is not ready after [`CONFIRM_LIMIT`], the predecessor takes
//! the machine back.
//!
//! **Limits.** The successor begins as every run does: its counters at 0, and with
//! `--wide-cpus auto` without wide CPUs. A task inside a marked function at that moment is seen at
//! its next call.

use std::io::ErrorKind;
use std::path::Path;
use std::time::{Duration, Instant};

use report::ctl::{Reply, Request, SOCKET};
use report::problem::Problem;
use report::take_over::{GivenSlots, HandedOver, Predecessor};
use turbolane_hint::page;

use crate::control::Client;
use crate::error::{Error, Result};
use crate::scx_lane::ScxLane;

/// How long a successor may take from the moment in which it has the machine to the one in which it
/// says so. Longer than that, it hangs.
const CONFIRM_LIMIT: Duration = Duration::from_secs(30);

const WHAT: &str = "cannot take over";

/// A connection to the scheduler that is to go.
pub struct Connection(Client);

impl Connection {
    /// To the scheduler that runs here.
    pub fn open() -> Result<Self> {
        let connected = Client::connect(Path::new(SOCKET)).map(Connection);
        connected.map_err(|error| match error.kind() {
            ErrorKind::NotFound | ErrorKind::ConnectionRefused => Error::BadInput(Problem::new(
                WHAT,
                "no turbolane runs on this machine",
                "start one without --take-over",
            )),
            _ => Error::failed(WHAT, format!("{SOCKET}: {error}")),
        })
    }

    /// What to know before everything is loaded.
    pub fn prepare(&mut self) -> Result<Predecessor> {
        let about = match self.ask(&Request::PrepareTakeOver)? {
            Reply::Predecessor(about) => about,
            _ => return Err(not_understood("it sent an unexpected reply")),
        };
        if about.hint_abi != page::ABI {
            let (theirs, ours) = (about.hint_abi, page::ABI);
            return Err(not_understood(&format!(
                "its memory for hints is of kind {theirs}, not {ours}"
            )));
        }
        Ok(about)
    }

    /// It goes, in favour of this process.
    pub fn take_over(&mut self) -> Result<HandedOver> {
        match self.ask(&Request::TakeOver { pid: std::process::id() })? {
            Reply::HandedOver(handed) => Ok(*handed),
            _ => Err(not_understood("it sent an unexpected reply")),
        }
    }

    /// It may end.
    pub fn confirm(&mut self) -> Result<()> {
        self.ask(&Request::TakenOver).map(drop)
    }

    fn ask(&mut self, request: &Request) -> Result<Reply> {
        match self.0.ask(request) {
            Ok(Reply::Error(problem)) => Err(Error::BadInput(problem)),
            Ok(reply) => Ok(reply),
            Err(error) => Err(not_understood(&error.to_string())),
        }
    }
}

/// A scheduler that has left the machine to the next one, which is not at work for sure yet.
pub(crate) struct Retired {
    pub lane: Box<ScxLane>,
    pub slots: GivenSlots,
    pub owns_module: bool,
    /// The process of the next one, and when it started.
    pub successor: (u32, u64),
    pub since: Instant,
    /// The next one is at work.
    pub is_confirmed: bool,
}

impl Retired {
    /// Whether the next one is at work; `None` if that is still open.
    pub fn is_over(&self) -> Option<bool> {
        let (pid, start_ticks) = self.successor;
        let lives = hw::task::lives_since(pid, start_ticks);
        is_over(self.is_confirmed, lives, self.since.elapsed())
    }
}

fn is_over(is_confirmed: bool, successor_lives: bool, waited: Duration) -> Option<bool> {
    match (is_confirmed, successor_lives && waited <= CONFIRM_LIMIT) {
        (false, true) => None,
        (is_confirmed, _) => Some(is_confirmed),
    }
}

fn not_understood(why: &str) -> Error {
    let why = format!("the scheduler that runs does not hand over: {why}");
    Error::BadInput(Problem::new(WHAT, why, "stop it and start this version"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One that has said so is at work, whatever became of it since; one that is gone or silent
    /// for too long is not.
    #[test]
    fn a_silent_successor_has_failed() {
        let (soon, late) = (Duration::from_secs(1), CONFIRM_LIMIT * 2);
        assert_eq!(is_over(false, true, soon), None);
        assert_eq!(is_over(false, false, soon), Some(false));
        assert_eq!(is_over(false, true, late), Some(false));
        for (lives, waited) in [(true, soon), (false, soon), (true, late)] {
            assert_eq!(is_over(true, lives, waited), Some(true));
        }
    }
}
