// SPDX-License-Identifier: MIT OR Apache-2.0
//! One connection of the control socket: what it has sent and is not answered yet, and what it was
//! answered and has not read yet. Nothing here waits.

use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::UnixStream;
use std::time::Instant;

use report::ctl::{self, Reply, Request};
use report::problem::Problem;

use super::Limits;

/// Longest request. The longest of ours holds two paths of 4,096 bytes each, six bytes per control
/// character.
pub(super) const REQUEST_MAX_BYTES: usize = 64 << 10;

/// A connection.
pub(super) struct Peer {
    /// Never used twice, unlike the descriptor.
    pub id: u64,
    socket: UnixStream,
    /// Sent by the client and not parsed yet.
    input: Vec<u8>,
    /// The reply, of which `written` bytes have been sent.
    output: Vec<u8>,
    written: usize,
    /// A request of it is with the thread that answers.
    is_asking: bool,
    /// The client sends nothing more.
    has_sent_all: bool,
    /// It is to be closed as soon as the output is sent.
    is_leaving: bool,
    /// When the present state began: silence, half a request, or a reply that is not read.
    pub since: Instant,
}

/// The connection is over.
pub(super) struct Gone;

impl Peer {
    pub fn new(id: u64, socket: UnixStream) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        Ok(Peer {
            id,
            socket,
            input: Vec::new(),
            output: Vec::new(),
            written: 0,
            is_asking: false,
            has_sent_all: false,
            is_leaving: false,
            since: Instant::now(),
        })
    }

    /// For `poll`: what is waited for. Nothing while a request is being answered; that a peer hangs
    /// up meanwhile is noticed when the reply is sent.
    pub fn polled(&self) -> libc::pollfd {
        let (fd, events): (RawFd, _) = match (self.is_asking, self.unread_bytes()) {
            (true, _) => (-1, 0),
            (false, 0) => (self.socket.as_raw_fd(), libc::POLLIN),
            (false, _) => (self.socket.as_raw_fd(), libc::POLLOUT),
        };
        libc::pollfd { fd, events, revents: 0 }
    }

    /// Neither asks nor is being answered nor has said half of something.
    pub fn is_idle(&self) -> bool {
        !self.is_asking && self.unread_bytes() == 0 && self.input.is_empty()
    }

    /// Bytes of its reply that it has not read.
    pub fn unread_bytes(&self) -> usize {
        self.output.len() - self.written
    }

    /// When it has to have got further; `None`: it may be silent for as long as it likes.
    pub fn deadline(&self, limits: &Limits) -> Option<Instant> {
        match (self.is_asking, self.unread_bytes(), self.input.is_empty()) {
            (true, ..) | (false, 0, true) => None,
            (false, 0, false) => Some(self.since + limits.request),
            _ => Some(self.since + limits.reply),
        }
    }

    /// Takes in or sends what is possible without waiting.
    pub fn go_on(&mut self) -> Result<(), Gone> {
        if self.is_asking {
            return Ok(());
        }
        if self.unread_bytes() > 0 {
            return self.send();
        }
        self.receive()
    }

    /// The next request, if it is complete and the one before is answered.
    pub fn next_request(&mut self) -> Result<Option<Request>, Gone> {
        if self.is_asking || self.unread_bytes() > 0 {
            return Ok(None);
        }
        let Some(end) = self.input.iter().position(|byte| *byte == b'\n') else {
            return match (self.has_sent_all, self.input.len()) {
                (true, _) => Err(Gone),
                (_, bytes) if bytes > REQUEST_MAX_BYTES => {
                    let why = format!("a request has at most {REQUEST_MAX_BYTES} bytes");
                    self.refuse(&why).map(|()| None)
                }
                _ => Ok(None),
            };
        };
        let line: Vec<u8> = self.input.drain(..=end).collect();
        self.since = Instant::now();
        match ctl::receive(&mut line.as_slice()) {
            Ok(Some(request)) => {
                self.is_asking = true;
                Ok(Some(request))
            }
            Ok(None) => Err(Gone),
            Err(error) => self.refuse(&error.to_string()).map(|()| None),
        }
    }

    /// Sends the reply to its request, as far as it is taken at once.
    pub fn reply(&mut self, line: Vec<u8>) -> Result<(), Gone> {
        self.is_asking = false;
        (self.output, self.written) = (line, 0);
        self.since = Instant::now();
        self.send()
    }

    /// A request that cannot be understood: what follows it cannot be either.
    fn refuse(&mut self, why: &str) -> Result<(), Gone> {
        let next = "use a `turbolane ctl` of the same version as the scheduler";
        let mut line = Vec::new();
        let problem = Problem::new("the request is not understood", why, next);
        ctl::send(&mut line, &Reply::Error(problem)).map_err(|_| Gone)?;
        self.is_leaving = true;
        self.reply(line)
    }

    fn receive(&mut self) -> Result<(), Gone> {
        let mut buffer = [0; 4096];
        while self.input.len() <= REQUEST_MAX_BYTES {
            match self.socket.read(&mut buffer) {
                Ok(0) => {
                    self.has_sent_all = true;
                    return Ok(());
                }
                Ok(bytes) => {
                    if self.input.is_empty() {
                        self.since = Instant::now();
                    }
                    self.input.extend_from_slice(&buffer[..bytes]);
                }
                Err(error) => return later(&error),
            }
        }
        Ok(())
    }

    fn send(&mut self) -> Result<(), Gone> {
        while self.unread_bytes() > 0 {
            match self.socket.write(&self.output[self.written..]) {
                Ok(bytes) => self.written += bytes,
                Err(error) => return later(&error),
            }
        }
        if self.is_leaving {
            return Err(Gone);
        }
        // A long reply's memory is not kept for a client that may be silent from now on.
        (self.output, self.written) = (Vec::new(), 0);
        self.since = Instant::now();
        Ok(())
    }
}

/// An error that only says that it would have to wait is none.
fn later(error: &io::Error) -> Result<(), Gone> {
    match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::Interrupted => Ok(()),
        _ => Err(Gone),
    }
}
