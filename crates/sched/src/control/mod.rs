// SPDX-License-Identifier: MIT OR Apache-2.0
//! The control socket: lets `turbolane ctl` and `turbolane stats` talk to the running scheduler
//! (THESIS 4.6: experiments need no restart). Its language is [`report::ctl`]'s.
//!
//! **Problem.** A monitor stays connected for hours. It must keep neither another client waiting
//! nor the end of the run; nor may a client that floods, stops in the middle or does not read.
//!
//! **Idea.** One thread owns the socket and all connections, and waits in `poll` alone. Another
//! makes the answers, one at a time, because there is one scheduler. A stop ends the first and
//! waits only for it; the second may be in the middle of an answer, which is not waited for.
//!
//! **What bounds it.** A connection has one request with the second thread, and the next is not
//! read before the reply to the last has been taken: so a client that asks and does not read costs
//! one reply. Replies that wait to be read take [`Limits::unread_bytes`] together; then the oldest
//! of these clients is cut off. A client may be silent for as long as it likes, but half a request,
//! and a reply that is not read, have a time limit. One connection more than [`Limits::peers`]
//! replaces the one that has been silent for longest, so that a flood locks no client out.
//!
//! **Who may ask.** Root, and the user that the scheduler runs as. The socket has mode 0600 from
//! its first moment, and the kernel names each client's user (SO_PEERCRED); another one is refused
//! before anything of it is read, and takes no place.
//!
//! **Limits.** Root can still fill all places with requests that are being answered; then the
//! oldest is cut off.

mod client;
mod peer;
mod socket;

use std::fs;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use report::ctl::{self, Reply, Request};
use report::problem::Problem;

pub use client::Client;
#[cfg(test)]
use peer::REQUEST_MAX_BYTES;
use peer::{Gone, Peer};

/// What clients may use up.
struct Limits {
    /// Connections at once.
    peers: usize,
    /// From the first byte of a request to its last.
    request: Duration,
    /// In which a reply has to be read.
    reply: Duration,
    /// Replies that wait to be read, all together.
    unread_bytes: usize,
}

/// A monitor per CPU of a large machine; a list of 16,384 tasks has up to 8 MiB, and its reader,
/// `turbolane top`, takes it at once.
const LIMITS: Limits = Limits {
    peers: 256,
    request: Duration::from_secs(2),
    reply: Duration::from_secs(5),
    unread_bytes: 64 << 20,
};

/// New connections per round, so that a flood of them leaves time for those that are there.
const ACCEPTED_PER_ROUND: usize = 16;

/// Pause after the kernel refused a connection for want of memory or descriptors.
const REFUSED_PAUSE: Duration = Duration::from_millis(50);

/// Serves until dropped.
pub struct ControlServer {
    path: PathBuf,
    stop: Arc<AtomicBool>,
    wake: UnixStream,
    thread: Option<JoinHandle<()>>,
}

/// A request on its way to the thread that answers, or a reply on its way back; of the peer with
/// this id.
type Job<T> = (u64, T);

impl ControlServer {
    /// Listen at `path`. The caller holds the instance lock, so a socket that is there already
    /// is a dead one's.
    pub fn start(
        path: &Path,
        answer: impl Fn(Request) -> Reply + Send + 'static,
    ) -> io::Result<Self> {
        Self::start_with(path, LIMITS, answer)
    }

    fn start_with(
        path: &Path,
        limits: Limits,
        answer: impl Fn(Request) -> Reply + Send + 'static,
    ) -> io::Result<Self> {
        let _ = fs::remove_file(path);
        let listener = socket::listen(path)?;
        let (wake, woken) = UnixStream::pair()?;
        for end in [&wake, &woken] {
            end.set_nonblocking(true)?;
        }
        let stop = Arc::new(AtomicBool::new(false));
        let (requests, asked) = mpsc::channel();
        let (replies, answered) = mpsc::channel();
        let bell = wake.try_clone()?;
        thread::Builder::new()
            .name("turbolane-ask".into())
            .spawn(move || answer_all(&asked, &replies, &bell, answer))?;
        let stopping = Arc::clone(&stop);
        let thread = thread::Builder::new().name("turbolane-ctl".into()).spawn(move || {
            let mut desk = Desk { limits, peers: Vec::new(), next_id: 0, requests };
            desk.serve(&listener, &woken, &answered, &stopping);
        })?;
        Ok(ControlServer { path: path.to_owned(), stop, wake, thread: Some(thread) })
    }
}

impl Drop for ControlServer {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        ring(&self.wake);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        let _ = fs::remove_file(&self.path);
    }
}

/// Makes answers until there is no one to make them for.
fn answer_all(
    asked: &Receiver<Job<Request>>,
    replies: &Sender<Job<Vec<u8>>>,
    bell: &UnixStream,
    answer: impl Fn(Request) -> Reply,
) {
    for (id, request) in asked {
        // A panic has been printed; the next request is answered all the same.
        let reply = catch_unwind(AssertUnwindSafe(|| answer(request))).unwrap_or_else(|_| {
            let why = "it reached an invalid state";
            let next = "report this with the output of turbolane run";
            Reply::Error(Problem::new("the scheduler cannot answer", why, next))
        });
        let mut line = Vec::new();
        if ctl::send(&mut line, &reply).is_err() || replies.send((id, line)).is_err() {
            return;
        }
        ring(bell);
    }
}

/// Wakes the thread that owns the connections. A full pipe has woken it already.
fn ring(mut bell: &UnixStream) {
    _ = bell.write(&[0]);
}

/// What the thread that owns the connections works with.
struct Desk {
    limits: Limits,
    peers: Vec<Peer>,
    next_id: u64,
    requests: Sender<Job<Request>>,
}

impl Desk {
    fn serve(
        &mut self,
        listener: &UnixListener,
        mut woken: &UnixStream,
        answered: &Receiver<Job<Vec<u8>>>,
        stop: &AtomicBool,
    ) {
        let mut deaf_until = None;
        while !stop.load(Ordering::Acquire) {
            let now = Instant::now();
            deaf_until = deaf_until.filter(|until| *until > now);
            let ready = self.wait(listener, woken, deaf_until);
            let mut bytes = [0; 64];
            while matches!(woken.read(&mut bytes), Ok(1..)) {}
            self.go_on(&ready.peers);
            for (id, line) in answered.try_iter() {
                self.hand_out(id, line);
            }
            if ready.listener {
                deaf_until = self.accept(listener).err().map(|_| Instant::now() + REFUSED_PAUSE);
            }
            self.take_requests();
            self.cut_off_late();
        }
    }

    /// Waits for something to do: at most until the first deadline.
    fn wait(&self, listener: &UnixListener, woken: &UnixStream, deaf: Option<Instant>) -> Ready {
        let polled = |fd, events| libc::pollfd { fd, events, revents: 0 };
        let listening = if deaf.is_some() { -1 } else { listener.as_raw_fd() };
        let mut polled =
            vec![polled(woken.as_raw_fd(), libc::POLLIN), polled(listening, libc::POLLIN)];
        polled.extend(self.peers.iter().map(Peer::polled));
        let deadlines = self.peers.iter().filter_map(|peer| peer.deadline(&self.limits));
        let timeout_ms = deadlines.chain(deaf).min().map_or(-1, |first| {
            let left = first.saturating_duration_since(Instant::now());
            // Rounded up: a moment too early would be a round for nothing.
            i32::try_from(left.as_millis()).unwrap_or(i32::MAX - 1) + 1
        });
        // SAFETY: the array is as long as said.
        unsafe { libc::poll(polled.as_mut_ptr(), polled.len() as libc::nfds_t, timeout_ms) };
        let is_ready = |fd: &libc::pollfd| fd.revents != 0;
        Ready { listener: is_ready(&polled[1]), peers: polled[2..].iter().map(is_ready).collect() }
    }

    fn go_on(&mut self, ready: &[bool]) {
        let mut ready = ready.iter();
        self.peers.retain_mut(|peer| {
            let is_ready = ready.next().is_some_and(|ready| *ready);
            !is_ready || peer.go_on().is_ok()
        });
    }

    /// Gives a reply to whom it is for. When too much waits to be read, who has waited longest
    /// goes.
    fn hand_out(&mut self, id: u64, line: Vec<u8>) {
        let mut unread_bytes: usize = self.peers.iter().map(Peer::unread_bytes).sum();
        while unread_bytes > 0 && unread_bytes + line.len() > self.limits.unread_bytes {
            let reading = self.peers.iter().enumerate().filter(|(_, peer)| peer.unread_bytes() > 0);
            let Some((oldest, _)) = reading.min_by_key(|(_, peer)| peer.since) else { break };
            unread_bytes -= self.peers.remove(oldest).unread_bytes();
        }
        if let Some(at) = self.peers.iter().position(|peer| peer.id == id)
            && self.peers[at].reply(line).is_err()
        {
            self.peers.remove(at);
        }
    }

    /// Lets in who is waiting. An error is the kernel's want of something.
    fn accept(&mut self, listener: &UnixListener) -> io::Result<()> {
        for _ in 0..ACCEPTED_PER_ROUND {
            match listener.accept() {
                Ok((client, _)) => self.let_in(client),
                Err(error) => match error.kind() {
                    ErrorKind::WouldBlock => return Ok(()),
                    ErrorKind::Interrupted | ErrorKind::ConnectionAborted => {}
                    _ => return Err(error),
                },
            }
        }
        Ok(())
    }

    fn let_in(&mut self, client: UnixStream) {
        // SAFETY: no arguments, and it cannot fail.
        if !may_ask(socket::uid_of(&client), unsafe { libc::geteuid() }) {
            return;
        }
        let Ok(peer) = Peer::new(self.next_id, client) else { return };
        self.next_id += 1;
        if self.peers.len() >= self.limits.peers {
            let oldest =
                self.peers.iter().enumerate().min_by_key(|(_, peer)| (!peer.is_idle(), peer.since));
            if let Some((oldest, _)) = oldest {
                self.peers.remove(oldest);
            }
        }
        self.peers.push(peer);
    }

    /// Passes complete requests on; who is done or cannot be understood any more goes.
    fn take_requests(&mut self) {
        let requests = &self.requests;
        self.peers.retain_mut(|peer| match peer.next_request() {
            Ok(None) => true,
            Ok(Some(request)) => requests.send((peer.id, request)).is_ok(),
            Err(Gone) => false,
        });
    }

    fn cut_off_late(&mut self) {
        let now = Instant::now();
        let limits = &self.limits;
        self.peers.retain(|peer| peer.deadline(limits).is_none_or(|deadline| deadline > now));
    }
}

/// What `poll` has found.
struct Ready {
    listener: bool,
    peers: Vec<bool>,
}

/// Whether this user may ask a scheduler that runs as `own`.
fn may_ask(user: Option<u32>, own: u32) -> bool {
    user.is_some_and(|user| user == 0 || user == own)
}

#[cfg(test)]
mod tests;
