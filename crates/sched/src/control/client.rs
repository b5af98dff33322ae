// SPDX-License-Identifier: MIT OR Apache-2.0
//! The other end of the control socket: requests to a running scheduler, one at a time.

use std::io::{self, BufReader, ErrorKind};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use report::ctl::{Reply, Request, receive, send};

/// Far longer than any request takes; a scheduler that is silent for so long is stuck.
const REPLY_TIMEOUT: Duration = Duration::from_secs(30);

/// A connection to a running scheduler.
pub struct Client {
    stream: UnixStream,
    replies: BufReader<UnixStream>,
}

impl Client {
    /// Connects to the scheduler that listens at `path`.
    pub fn connect(path: &Path) -> io::Result<Self> {
        let stream = UnixStream::connect(path)?;
        stream.set_read_timeout(Some(REPLY_TIMEOUT))?;
        Ok(Client { replies: BufReader::new(stream.try_clone()?), stream })
    }

    /// Sends a request and returns the reply. A version that does not know the request ends the
    /// connection.
    pub fn ask(&mut self, request: &Request) -> io::Result<Reply> {
        send(&mut self.stream, request)?;
        let closed = || io::Error::new(ErrorKind::UnexpectedEof, "it closed the connection");
        receive(&mut self.replies)?.ok_or_else(closed)
    }
}
