// SPDX-License-Identifier: MIT OR Apache-2.0
//! The control socket: lets `turbolane ctl` and `turbolane stats` talk to the running scheduler
//! (THESIS 4.6: experiments need no restart). Its language is [`report::ctl`]'s.
//!
//! One client is served at a time, each with a time limit, so no client can pile up threads or
//! memory here. The socket is root's alone.

use std::fs::{self, Permissions};
use std::io::{self, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use report::ctl::{self, Reply, Request};
use report::problem::Problem;

/// A client that is silent for longer is dropped.
const CLIENT_TIMEOUT: Duration = Duration::from_secs(2);

/// Serves until dropped.
pub struct ControlServer {
    path: PathBuf,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl ControlServer {
    /// Listen at `path`. The caller holds the instance lock, so a socket that is there already
    /// is a dead one's.
    pub fn start(
        path: &Path,
        answer: impl Fn(Request) -> Reply + Send + 'static,
    ) -> io::Result<Self> {
        let _ = fs::remove_file(path);
        let listener = UnixListener::bind(path)?;
        fs::set_permissions(path, Permissions::from_mode(0o600))?;
        let stop = Arc::new(AtomicBool::new(false));
        let stopping = Arc::clone(&stop);
        let thread = thread::Builder::new().name("turbolane-ctl".into()).spawn(move || {
            for client in listener.incoming() {
                if stopping.load(Ordering::Relaxed) {
                    return;
                }
                // A client that goes away early or sends nonsense is its own affair.
                let _ = client.and_then(|client| serve(&client, &answer));
            }
        })?;
        Ok(ControlServer { path: path.to_owned(), stop, thread: Some(thread) })
    }
}

impl Drop for ControlServer {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        // Wakes accept().
        let _ = UnixStream::connect(&self.path);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        let _ = fs::remove_file(&self.path);
    }
}

fn serve(client: &UnixStream, answer: &impl Fn(Request) -> Reply) -> io::Result<()> {
    client.set_read_timeout(Some(CLIENT_TIMEOUT))?;
    client.set_write_timeout(Some(CLIENT_TIMEOUT))?;
    let mut from = BufReader::new(client);
    let mut to = client;
    loop {
        let reply = match ctl::receive::<Request>(&mut from) {
            Ok(Some(request)) => answer(request),
            Ok(None) => return Ok(()),
            Err(e) if e.kind() == io::ErrorKind::InvalidData => {
                let why = e.to_string();
                let next = "use a `turbolane ctl` of the same version as the scheduler";
                return ctl::send(
                    &mut to,
                    &Reply::Error(Problem::new("the request is not understood", &why, next)),
                );
            }
            Err(e) => return Err(e),
        };
        ctl::send(&mut to, &reply)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn server(dir: &tempfile::TempDir) -> (ControlServer, PathBuf) {
        let path = dir.path().join("ctl.sock");
        let server = ControlServer::start(&path, |request| match request {
            Request::Stats => Reply::Stats(Box::default()),
            _ => Reply::Settings(vec![]),
        });
        (server.unwrap(), path)
    }

    /// Several requests on one connection get one reply each; the socket goes with the server.
    #[test]
    fn answers_and_cleans_up() {
        let dir = tempfile::tempdir().unwrap();
        let (server, path) = server(&dir);
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let client = UnixStream::connect(&path).unwrap();
        let mut from = BufReader::new(&client);
        for (request, reply) in [
            (Request::Stats, Reply::Stats(Box::default())),
            (Request::Get { keys: vec![] }, Reply::Settings(vec![])),
        ] {
            ctl::send(&mut &client, &request).unwrap();
            assert_eq!(ctl::receive::<Reply>(&mut from).unwrap(), Some(reply));
        }
        drop(from);
        drop(client);
        drop(server);
        assert!(!path.exists());
    }

    /// Nonsense is answered with an error, and the next client is served as if nothing had been.
    #[test]
    fn survives_nonsense() {
        let dir = tempfile::tempdir().unwrap();
        let (_server, path) = server(&dir);
        let client = UnixStream::connect(&path).unwrap();
        (&client).write_all(b"\x00\xff garbage\n").unwrap();
        assert!(matches!(
            ctl::receive::<Reply>(&mut BufReader::new(&client)).unwrap(),
            Some(Reply::Error(_))
        ));
        let client = UnixStream::connect(&path).unwrap();
        ctl::send(&mut &client, &Request::Stats).unwrap();
        assert!(matches!(
            ctl::receive::<Reply>(&mut BufReader::new(&client)).unwrap(),
            Some(Reply::Stats(_))
        ));
    }
}
