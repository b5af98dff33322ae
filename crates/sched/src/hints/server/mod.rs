// SPDX-License-Identifier: MIT OR Apache-2.0
//! Gives threads their slots on the hint page: the daemon's side of `turbolane_hint::protocol`.
//!
//! Problem: any program on the machine may connect, from any PID namespace, and send anything, or
//! nothing, or ten thousand requests a second. The daemon must serve the honest ones within the
//! 200 ms that they wait.
//!
//! Idea: one thread, and nothing in it waits for a peer. A connection is one request of 16 bytes
//! and one reply; a peer that sends something else is cut off, one that sends nothing is cut off
//! after 200 ms. There are 64 connections at most; one more replaces the oldest of the user who has
//! most, so that peers that connect and stay silent cannot keep out those that send at once.
//!
//! The kernel says who a thread is, not the peer: the process and its user by SO_PEERCRED (in our
//! PID namespace), the thread by a search of that process for the number that the thread has in its
//! own namespace (`hw::task::look_up`). So no peer can register threads of another process. At the
//! end the daemon checks that no number has passed to another process meanwhile (SO_PEERPIDFD,
//! Linux 6.5; otherwise start times).
//!
//! Only processes in containers need a search, which reads /proc once per thread, 20 us each. It is
//! done in steps: a few threads per round, while others are served; one search per user at a time,
//! the users in turn.
//!
//! Areas are made before they are needed, many at a time: to make one takes as long as the
//! scheduler's programs may run, tens of milliseconds on a busy machine, and the workers of a
//! server all come at once.
//!
//! Order of a registration: the slot is prepared, the scheduler gets its number, the owner is
//! written, the thread is answered. Neither the scheduler nor the thread sees a slot half done.
//!
//! Limits: registering all threads of a large containered process takes time that grows with the
//! square of their number: 1000 threads 10 s in the worst case, during which they run unserved and
//! ask again.

mod desk;
mod peers;
mod socket;

use std::collections::HashMap;
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::linux::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use report::take_over::GivenSlots;

use super::memory::{Area, NewAreas};
use crate::lock::lock;
use desk::Desk;
use peers::serve;
use socket::listen;

pub use desk::{OnRegister, Registration};

/// Serves until it is dropped; then the socket is gone.
pub struct HintServer {
    path: PathBuf,
    /// Device and inode of the socket file, to remove no other.
    identity: (u64, u64),
    desk: Arc<Mutex<Desk>>,
    /// Closing it ends the thread.
    stop: Option<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

impl HintServer {
    /// Listens at `path`, whose folder is made if need be. Fails with `AddrInUse` if someone else
    /// listens there; a socket whose owner is gone is replaced.
    pub fn start(
        path: &Path,
        board_fd: OwnedFd,
        new_areas: NewAreas,
        on_register: OnRegister,
    ) -> io::Result<HintServer> {
        Self::start_at(path, Desk::new(board_fd, new_areas, on_register)?)
    }

    /// The same, for who takes over from another server: board and areas are that one's, and the
    /// slots that it has given stay whose they are.
    pub fn go_on(
        path: &Path,
        board_fd: OwnedFd,
        new_areas: NewAreas,
        on_register: OnRegister,
        given: &GivenSlots,
        areas: HashMap<u32, Area>,
    ) -> io::Result<HintServer> {
        let mut desk = Desk::new(board_fd, new_areas, on_register)?;
        desk.go_on_from(given, areas);
        Self::start_at(path, desk)
    }

    fn start_at(path: &Path, desk: Desk) -> io::Result<HintServer> {
        let listener = listen(path)?;
        let file = fs::symlink_metadata(path)?;
        let (stopped, stop) = io::pipe()?;
        let desk = Arc::new(Mutex::new(desk));
        let served = Arc::clone(&desk);
        let thread = std::thread::Builder::new()
            .name("hints".into())
            .spawn(move || serve(&listener, &stopped.into(), &served))?;
        Ok(HintServer {
            path: path.to_owned(),
            identity: (file.st_dev(), file.st_ino()),
            desk,
            stop: Some(stop.into()),
            thread: Some(thread),
        })
    }

    /// Calls another one from now on, beginning with all threads that are registered and live: for
    /// a scheduler that was loaded anew, with the same board and areas. Their slots stay what they
    /// are.
    pub fn hand_over(&self, on_register: OnRegister) {
        lock(&self.desk).hand_over(on_register);
    }

    /// Serves no one any more, and says what the next server goes on from.
    pub fn stop(self) -> GivenSlots {
        let desk = Arc::clone(&self.desk);
        drop(self);
        lock(&desk).given()
    }
}

impl Drop for HintServer {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join(); // a panic there was reported there
        }
        let is_ours = |file: &fs::Metadata| (file.st_dev(), file.st_ino()) == self.identity;
        if fs::symlink_metadata(&self.path).is_ok_and(|file| is_ours(&file)) {
            let _ = fs::remove_file(&self.path); // no one to report to; the next server replaces it
        }
    }
}

#[cfg(test)]
mod tests;
