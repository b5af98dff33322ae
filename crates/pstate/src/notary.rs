// SPDX-License-Identifier: MIT OR Apache-2.0
//! The messages between the program and its watchdog: one byte each, followed by a setting's number
//! for [`NOTE`].

use std::sync::Mutex;

use crate::error::Error;
use crate::raw::{self, Fd};

/// What the program sends when it has restored everything itself.
pub(crate) const DISMISSED: u8 = b'.';
/// What the program sends, with a setting's number, before it changes it.
pub(crate) const NOTE: u8 = b'n';
/// What the watchdog sends when it is ready, and when it has made a note.
pub(crate) const READY: u8 = b'!';
/// What it sends when it cannot make one.
pub(crate) const REFUSED: u8 = b'?';
/// Longest message: a byte and a number.
pub(crate) const MESSAGE_MAX: usize = 5;

/// Asks the watchdog to note settings. It has a descriptor of its own, which lives as long as the
/// journal.
#[derive(Debug)]
pub(crate) struct Notary(Mutex<Fd>);

impl Notary {
    /// Over a socket to the watchdog.
    pub fn new(socket: Fd) -> Self {
        Notary(Mutex::new(socket))
    }

    /// Returns when the watchdog has read what the setting holds.
    pub fn ask(&self, number: u32) -> Result<(), Error> {
        // A question and its answer at a time.
        let socket = self.0.lock().unwrap_or_else(|broken| broken.into_inner());
        let [a, b, c, d] = number.to_le_bytes();
        let message = [NOTE, a, b, c, d];
        // SAFETY: bytes of ours; MSG_NOSIGNAL, since no one may be listening.
        let sent = unsafe {
            libc::send(socket.0, message.as_ptr().cast(), message.len(), libc::MSG_NOSIGNAL)
        };
        if sent != message.len() as isize {
            return Err(Error::Watchdog(raw::errno()));
        }
        match receive(socket.0)? {
            READY => Ok(()),
            _ => Err(Error::Watchdog(libc::EACCES)),
        }
    }
}

/// The watchdog's next word.
pub(crate) fn receive(socket: i32) -> Result<u8, Error> {
    loop {
        let mut message = [0];
        // SAFETY: one byte of ours.
        match unsafe { libc::recv(socket, message.as_mut_ptr().cast(), 1, 0) } {
            1 => return Ok(message[0]),
            -1 if raw::errno() == libc::EINTR => {}
            _ => return Err(Error::Watchdog(libc::ESRCH)),
        }
    }
}
